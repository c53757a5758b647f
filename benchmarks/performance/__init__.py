"""Measurements of speed, memory, scores and compatibility; each is a row of `python -m benchmarks measure`."""
