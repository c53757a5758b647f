"""TWOSOME and GLAM: PPO on whole actions."""

from poad_sb3.twosome.twosome import GLAM, TWOSOME

__all__ = ["GLAM", "TWOSOME"]
