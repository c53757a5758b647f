"""Steps of a vector of environments in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent import futures
from queue import SimpleQueue

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn

Tasks = SimpleQueue[tuple["futures.Future[VecEnvStepReturn]", NDArray[np.int64]] | None]
"""Queue of the steps for a thread; None is the end."""


class Stepper:
    """Steps one part in a thread of its own, started by the first step.

    The thread is a daemon: an interpreter that was interrupted ends without waiting for a step. It stays the same for
    all steps, since processes started in a step may be bound to the life of its thread (PR_SET_PDEATHSIG on Linux).

    Args:
        part: Environments of the part.

    Attributes:
        tasks: Queue of steps; see `end_threads`.
    """

    def __init__(self, part: VecEnv) -> None:
        self.tasks: Tasks = SimpleQueue()
        self._step = part.step
        self._pending: futures.Future[VecEnvStepReturn] | None = None
        self._thread: threading.Thread | None = None

    def begin(self, actions: NDArray[np.int64]) -> None:
        """Begin a step, and return at once."""
        if self._pending is not None:
            raise RuntimeError("Expected an idle part; it is stepping. Fix: wait() for its step first.")
        self._pending = futures.Future()
        self._launch(self._pending, actions)

    def _launch(self, pending: futures.Future[VecEnvStepReturn], actions: NDArray[np.int64]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=_serve, args=(self._step, self.tasks), daemon=True)
            self._thread.start()
        self.tasks.put((pending, actions))

    def wait(self) -> VecEnvStepReturn:
        """Wait for the step; its exception is raised here."""
        pending = self._pending
        if pending is None:
            raise RuntimeError("Expected a step in progress; the part has none. Fix: call begin() first.")
        try:
            return pending.result()
        finally:
            if pending.done():  # else Ctrl-C has ended the waiting, and the step goes on
                self._pending = None

    def settle(self) -> None:
        """Wait for a running step; `wait` can still return its result."""
        if self._pending is not None:
            futures.wait([self._pending])

    def drop(self) -> None:
        """Wait for a running step, and drop its result."""
        self.settle()
        self._pending = None

    def stop(self) -> None:
        """End the thread; another step would start another one."""
        self.drop()
        if self._thread is not None:
            self.tasks.put(None)
            self._thread.join()
            self._thread = None


def _serve(step: Callable[[NDArray[np.int64]], VecEnvStepReturn], tasks: Tasks) -> None:
    """Serve steps until the end marker comes."""
    while (task := tasks.get()) is not None:
        answer, actions = task
        try:
            answer.set_result(step(actions))
        except BaseException as error:  # raised where it is waited for
            answer.set_exception(error)
        del task, answer, actions  # not kept alive until the next step


def end_threads(queues: Sequence[Tasks]) -> None:
    """Let the threads that serve these queues end."""
    for tasks in queues:
        tasks.put(None)
