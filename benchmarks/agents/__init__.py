"""Agents of the benchmark: the protocol, and adapters for whatever answers a text with a text."""
