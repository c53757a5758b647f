"""GRPO and Dr. GRPO."""

from poad_sb3.grpo.grpo import GRPO, DrGRPO

__all__ = ["GRPO", "DrGRPO"]
