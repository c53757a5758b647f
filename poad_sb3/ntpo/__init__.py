"""Naive token-level policy optimisation."""

from poad_sb3.ntpo.ntpo import NTPO

__all__ = ["NTPO"]
