"""Turn-level PPO."""

from poad_sb3.turn_ppo.turn_ppo import TurnPPO

__all__ = ["TurnPPO"]
