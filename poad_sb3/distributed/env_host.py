"""`EnvHost`: environments of one actor. It knows no Ray: `ray_vec_env` makes an actor of it."""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import cloudpickle
import gymnasium as gym
import numpy as np
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv

import lang_envs  # noqa: F401 - registers its ids
from poad_sb3.distributed.ray_cluster import find_modules
from poad_sb3.vec_env.rewards import guard_rewards
from poad_sb3.vec_env.threads import ThreadVecEnv

__all__ = ["Description", "EnvHost"]


class Description(NamedTuple):
    """Facts of an actor and its environments.

    Attributes:
        process: Process and machine, for messages.
        observation_space: Observation space of the environments.
        action_space: Action space of the environments.
        metadata: Metadata of the environments.
    """

    process: str
    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]
    metadata: dict[str, Any]


class EnvHost:
    """Several environments as an SB3 vector, with SB3's Monitor around each.

    Arguments and results are pickled: arrays that Ray passes as they are arrive read-only.
    """

    _envs: DummyVecEnv

    def make(self, path: Sequence[str], packed: bytes, n_envs: int) -> bytes:
        """Create the environments, and return their `Description`.

        Args:
            path: Folders to find modules in, after those of this process.
            packed: Function that makes an environment.
            n_envs: Number of environments.
        """
        find_modules(path)
        make: Callable[[], gym.Env[Any, Any]] = cloudpickle.loads(packed)
        made = make_vec_env(make, n_envs)
        assert isinstance(made, DummyVecEnv)
        guard_rewards(made)
        if made.has_attr("steps_elsewhere") and all(made.get_attr("steps_elsewhere")):
            made = ThreadVecEnv([partial(_same, env) for env in made.envs])
        self._envs = made
        process = f"process {os.getpid()} on {socket.gethostname()}"
        return _dumps(Description(process, made.observation_space, made.action_space, made.metadata))

    def reset(self, packed: bytes) -> bytes:
        """Reset the environments with a seed and options for each; return observations and infos of the resets."""
        self._envs._seeds, self._envs._options = pickle.loads(packed)
        return _dumps((self._envs.reset(), self._envs.reset_infos))

    def step(self, packed: bytes) -> bytes:
        """Step the environments by their actions; return what SB3's vector does, and infos of resets by place."""
        observations, rewards, dones, infos = self._envs.step(pickle.loads(packed))
        resets = {place: self._envs.reset_infos[place] for place in np.flatnonzero(dones).tolist()}
        return _dumps((observations, rewards, dones, infos, resets))

    def call(self, packed: bytes) -> bytes:
        """Call a method of SB3's vector, given with its arguments and keyword arguments; return its result."""
        method, args, kwargs = pickle.loads(packed)
        return _dumps(getattr(self._envs, method)(*args, **kwargs))

    def close(self) -> None:
        """Close the environments."""
        self._envs.close()


def _same(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    return env


def _dumps(value: object) -> bytes:
    packed: bytes = cloudpickle.dumps(value)
    return packed
