"""BADQ: off-policy token Q-learning with the backup of POAD."""

from poad_sb3.badq.badq import BADQ
from poad_sb3.badq.policy import BADQPolicy

__all__ = ["BADQ", "BADQPolicy"]
