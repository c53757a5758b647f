"""`ThreadVecEnv`: environments of this process that step at the same time, each in a thread of its own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent import futures
from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3.common.vec_env import DummyVecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

__all__ = ["ThreadVecEnv"]


class ThreadVecEnv(DummyVecEnv):
    """SB3's `DummyVecEnv`, except that the environments step at the same time.

    It pays where a step waits for other processes, as in DataSciCoding for the sandbox; Python computes in one thread
    at a time. Environments must not share data that is not thread-safe, and a step must not need the main thread (as
    `signal.signal` does).

    Args:
        env_fns: Functions that make the environments.
    """

    def __init__(self, env_fns: list[Callable[[], gym.Env[Any, Any]]]) -> None:
        super().__init__(env_fns)
        # The same thread for all steps: processes started in one may be bound to its life (PR_SET_PDEATHSIG on Linux).
        self._threads = [futures.ThreadPoolExecutor(max_workers=1) for _ in self.envs]
        self._steps: list[futures.Future[None]] = []

    def step_wait(self) -> VecEnvStepReturn:
        """Make the step of all environments; the first error is raised when none of them is stepping.

        Raises:
            RuntimeError: If an interrupt has left one of them stepping.
        """
        if not all(step.done() for step in self._steps):
            raise RuntimeError("Expected environments at rest; one is stepping since an interrupt. Fix: reset().")
        self._steps = [thread.submit(self._step_one, index) for index, thread in enumerate(self._threads)]
        futures.wait(self._steps)
        for step in self._steps:
            step.result()
        return self._obs_from_buf(), np.copy(self.buf_rews), np.copy(self.buf_dones), copy.deepcopy(self.buf_infos)

    def _step_one(self, index: int) -> None:
        """Step one environment, and reset it at the end of its episode, as `DummyVecEnv.step_wait` does."""
        observation, reward, terminated, truncated, info = self.envs[index].step(self.actions[index])
        self.buf_rews[index], self.buf_dones[index], self.buf_infos[index] = reward, terminated or truncated, info
        info["TimeLimit.truncated"] = truncated and not terminated
        if self.buf_dones[index]:
            info["terminal_observation"] = observation
            observation, self.reset_infos[index] = self.envs[index].reset()
        self._save_obs(index, observation)

    def reset(self) -> VecEnvObs:
        """Reset all environments, after the end of steps that an interrupt has left under way."""
        futures.wait(self._steps)
        return super().reset()

    def close(self) -> None:
        """Wait for steps that are under way, end the threads and close the environments."""
        for thread in self._threads:
            thread.shutdown()
        super().close()
