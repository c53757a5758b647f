"""Figures and programs that ours are compared with: published scores, baselines, a competent training loop."""
