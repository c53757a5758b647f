"""POAD: Policy Optimization with Action Decomposition."""

from poad_sb3.poad.poad import POAD

__all__ = ["POAD"]
