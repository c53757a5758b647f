"""`make_envs`: environments of one id as an SB3 vector."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    kind = ThreadVecEnv if n_envs > 1 and steps_elsewhere(env_id) else DummyVecEnv
    return make_vec_env(partial(gym.make, env_id, **env_kwargs), n_envs, vec_env_cls=kind)


def steps_elsewhere(env: str | Callable[..., gym.Env[Any, Any]]) -> bool:
    """Return whether the class of an environment declares that other processes make its steps.

    Args:
        env: Id of an environment, or its class.
    """
    made: Any = env
    if isinstance(env, str):
        try:
            made = gym.spec(env).entry_point
            made = gym.envs.registration.load_env_creator(made) if isinstance(made, str) else made
        except Exception:  # raised where it is made
            return False
    return getattr(made, "steps_elsewhere", False) is True
