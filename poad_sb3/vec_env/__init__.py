"""Vectorised text environments: observations as questions, threads, worker processes."""
