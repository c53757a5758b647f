"""Folders of runs: what is in them, and how they are loaded."""
