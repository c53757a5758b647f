"""Parity: a diagnostic family where a thought that counts along helps."""
