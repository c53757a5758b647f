"""RLOO."""

from poad_sb3.rloo.rloo import RLOO

__all__ = ["RLOO"]
