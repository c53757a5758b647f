"""Behaviour cloning: a trained start for reinforcement learning."""

from poad_sb3.bc.bc import BC
from poad_sb3.bc.warm_start import warm_start
from poad_sb3.common.episodes import Episode, oracle_episodes, policy_episodes, recorded_episodes

__all__ = ["BC", "Episode", "oracle_episodes", "policy_episodes", "recorded_episodes", "warm_start"]
