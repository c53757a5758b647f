"""`make_envs`: environments of one id as an SB3 vector."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import gymnasium as gym
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

import lang_envs  # noqa: F401 - registers its ids
from poad_sb3.vec_env.threads import ThreadVecEnv


def make_envs(env_id: str, env_kwargs: Mapping[str, Any], n_envs: int) -> VecEnv:
    """Make environments of one id, in this process, with SB3's Monitor around each.

    Environments whose steps other processes make (DataSciCoding) step at the same time, in threads.

    Args:
        env_id: Id of the environments.
        env_kwargs: Arguments of `gym.make`.
        n_envs: Number of environments.
    """
    # An id would get render_mode="rgb_array" from SB3.
    envs = make_vec_env(partial(gym.make, env_id, **env_kwargs), n_envs)
    assert isinstance(envs, DummyVecEnv)
    if n_envs > 1 and envs.has_attr("steps_elsewhere") and all(envs.get_attr("steps_elsewhere")):
        return ThreadVecEnv([partial(_same, env) for env in envs.envs])
    return envs


def _same(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    return env
