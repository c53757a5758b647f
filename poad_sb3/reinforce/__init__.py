"""REINFORCE++ and ReBN."""

from poad_sb3.reinforce.reinforce import ReBN, REINFORCEPlusPlus

__all__ = ["REINFORCEPlusPlus", "ReBN"]
