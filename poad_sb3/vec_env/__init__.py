"""Vectorised text environments: observations as questions, pipelined groups, worker processes."""
