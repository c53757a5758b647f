"""Measuring agents: episodes into files of JSON lines that survive a kill, and reports of such files."""
