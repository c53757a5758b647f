"""ARCHER, as the POAD paper ablates it."""

from poad_sb3.archer.archer import ARCHER

__all__ = ["ARCHER"]
