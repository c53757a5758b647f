"""PPO with bi-level GAE."""

from poad_sb3.bilevel_ppo.bilevel_ppo import BiLevelPPO

__all__ = ["BiLevelPPO"]
