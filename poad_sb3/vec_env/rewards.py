"""Rewards of environments as numbers, before SB3 takes them."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium as gym
from gymnasium.wrappers import PassiveEnvChecker
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecEnv

from lang_envs.arguments import reward_number
from lang_envs.core import LangEnv
from lang_envs.wrappers import AdmissibleObservation

_READERS = (Monitor, PassiveEnvChecker)
"""Wrappers that compute with the reward: SB3's adds it up, Gymnasium's fails on integers beyond 64 bits."""


class NumberReward(gym.RewardWrapper[Any, Any], gym.utils.RecordConstructorArgs):
    """The reward becomes a float; an array or tensor of one number is one.

    Args:
        env: Environment.

    Raises:
        RewardError: If a reward is no single number.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        gym.RewardWrapper.__init__(self, env)

    def reward(self, reward: SupportsFloat) -> float:
        """Return the reward as a float."""
        return reward_number(reward, self.env.unwrapped)


def guard_rewards(env: VecEnv) -> None:
    """Let the environments of a vector return their rewards as floats, inside wrappers that compute with them.

    Args:
        env: Environments of any kind; only those of this process that are not of `lang_envs` are changed.
    """
    envs = getattr(env.unwrapped, "envs", [])
    for index, single in enumerate(envs):
        envs[index] = with_number_rewards(single)


def with_number_rewards(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """Return an environment whose rewards are floats; see `guard_rewards`."""
    layer = env
    while isinstance(layer, gym.Wrapper):
        if isinstance(layer, _READERS):
            layer.env = with_number_rewards(layer.env)
            break
        layer = layer.env
    return env if isinstance(env, (NumberReward, AdmissibleObservation, LangEnv, *_READERS)) else NumberReward(env)
