"""Does the wheel work where nothing else of ours is? `python -m benchmarks measure installing`."""
