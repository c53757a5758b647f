"""GiGPO."""

from poad_sb3.gigpo.gigpo import GiGPO

__all__ = ["GiGPO"]
