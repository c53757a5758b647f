"""Folders of runs: their files, and how to load them."""
