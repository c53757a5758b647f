"""`make_envs`: environments of one id as an SB3 vector."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import gymnasium as gym
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

import lang_envs  # noqa: F401 - registers its ids
from poad_sb3.vec_env.pipelined import pipeline_envs


def make_envs(env_id: str, env_kwargs: Mapping[str, Any], n_envs: int, n_parts: int | None = None) -> VecEnv:
    """Make environments of one id, in this process, with SB3's Monitor around each.

    Args:
        env_id: Id of the environments.
        env_kwargs: Arguments of `gym.make`.
        n_envs: Number of environments.
        n_parts: Number of parts that take turns with the model; None for two where steps are made elsewhere
            (DataSciCoding) and there are several, else an ordinary vector.
    """
    # An id would get render_mode="rgb_array" from SB3.
    envs = make_vec_env(partial(gym.make, env_id, **env_kwargs), n_envs)
    assert isinstance(envs, DummyVecEnv)
    elsewhere = envs.has_attr("steps_elsewhere") and all(envs.get_attr("steps_elsewhere"))
    wanted = n_parts or (2 if elsewhere and n_envs > 1 else 1)
    # One part of them still steps at once, each in a thread; environments that compute here would gain no time by that.
    return pipeline_envs(envs.envs, wanted) if wanted > 1 or (elsewhere and n_envs > 1) else envs
