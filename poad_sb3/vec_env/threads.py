"""`ThreadVecEnv`: environments of this process that step at the same time, each in a thread of its own."""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Callable
from concurrent import futures
from functools import partial
from queue import SimpleQueue
from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3.common.vec_env import DummyVecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

__all__ = ["StepThread", "ThreadVecEnv"]

_Tasks = SimpleQueue[tuple["futures.Future[Any]", Callable[[], Any]] | None]
"""Queue of the steps for a thread; None is the end."""


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
        self._threads = [StepThread() for _ in self.envs]

    def step_wait(self) -> VecEnvStepReturn:
        """Make the step of all environments; the first error is raised when none of them is stepping.

        Raises:
            RuntimeError: If an interrupt has left one of them stepping.
        """
        if any(thread.is_stepping for thread in self._threads):
            raise RuntimeError("Expected environments at rest; one is stepping since an interrupt. Fix: reset().")
        for index, thread in enumerate(self._threads):
            thread.begin(partial(self._step_one, index))
        try:
            for thread in self._threads:
                thread.wait()
        except Exception:
            self._drop()
            raise
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
        self._drop()
        return super().reset()

    def close(self) -> None:
        """Wait for steps that are under way, end the threads and close the environments."""
        for thread in self._threads:
            thread.stop()
        super().close()

    def _drop(self) -> None:
        for thread in self._threads:
            thread.drop()


class StepThread:
    """A thread that makes the steps of one environment; it is started by the first.

    The thread is a daemon: an interpreter that was interrupted ends without waiting for a step. It stays the same for
    all steps, since processes started in a step may be bound to the life of its thread (PR_SET_PDEATHSIG on Linux),
    and ends with the last reference to this object.
    """

    def __init__(self) -> None:
        self._tasks: _Tasks = SimpleQueue()
        self._pending: futures.Future[Any] | None = None
        self._thread: threading.Thread | None = None
        weakref.finalize(self, self._tasks.put, None)

    @property
    def is_stepping(self) -> bool:
        """Whether a step was begun and not waited for."""
        return self._pending is not None

    def begin(self, step: Callable[[], Any]) -> None:
        """Begin a step, and return at once."""
        assert not self.is_stepping, "wait() or drop() comes first"
        self._pending = futures.Future()
        if self._thread is None:
            self._thread = threading.Thread(target=_serve, args=(self._tasks,), daemon=True)
            self._thread.start()
        self._tasks.put((self._pending, step))

    def wait(self) -> Any:
        """Wait for the step, and return its result; its exception is raised here."""
        assert self._pending is not None, "begin() comes first"
        try:
            return self._pending.result()
        finally:
            if self._pending.done():  # else Ctrl-C has ended the waiting, and the step goes on
                self._pending = None

    def drop(self) -> None:
        """Wait for a running step, and drop its result."""
        if self._pending is not None:
            futures.wait([self._pending])
            self._pending = None

    def stop(self) -> None:
        """End the thread; another step would start another one."""
        self.drop()
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join()
            self._thread = None


def _serve(tasks: _Tasks) -> None:
    """Serve steps until the end marker comes."""
    while (task := tasks.get()) is not None:
        answer, step = task
        try:
            answer.set_result(step())
        except BaseException as error:  # raised where it is waited for
            answer.set_exception(error)
        del task, answer, step  # not kept alive until the next step
