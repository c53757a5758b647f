"""Worker processes of SB3's `SubprocVecEnv`: a dead one is an error instead of a wait, and none is left behind.

SB3 waits for the answer of a dead worker for ever where forked siblings hold its pipe open, `close` raises
BrokenPipeError after a death, and an environment that is deleted while it steps leaves its workers to find out.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Sequence
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NoReturn

import gymnasium as gym
from stable_baselines3.common.vec_env import SubprocVecEnv, VecEnv

from poad_sb3.errors import WorkerError

_SECONDS_TO_END = 5.0
"""Maximum time for a worker to finish its step and close its environment, in seconds; then it is terminated."""


def guard_workers(env: gym.Env[Any, Any] | VecEnv) -> None:
    """Make the worker processes of a `SubprocVecEnv` raise `WorkerError` when one has ended, and end with it.

    Args:
        env: Environments of any kind, wrapped or not; only a `SubprocVecEnv` is changed.
    """
    workers = env.unwrapped
    if not isinstance(workers, SubprocVecEnv) or any(isinstance(remote, _Pipe) for remote in workers.remotes):
        return
    connections, processes = list(workers.remotes), list(workers.processes)
    end = weakref.finalize(workers, _end, connections, processes, os.getpid())
    venv = weakref.ref(workers)
    workers.remotes = tuple(
        _Pipe(number, connection, process, end, venv)
        for number, (connection, process) in enumerate(zip(connections, processes, strict=True))
    )
    workers.close = partial(_close, venv, end)  # type: ignore[method-assign]


def _close(venv: weakref.ref[SubprocVecEnv], end: weakref.finalize[Any, Any]) -> None:
    """End the workers; SB3's `close` waits for answers that were read, or that dead workers owe."""
    end()
    if (workers := venv()) is not None:
        workers.closed = True


class _Pipe:
    """The parent's end of a worker's pipe, in place of the `Connection` that SB3 uses.

    Args:
        number: Number of the environment.
        connection: Connection to the worker.
        process: Process of the worker.
        end: Finalizer that ends all workers.
        venv: Vector that the worker belongs to.
    """

    def __init__(
        self,
        number: int,
        connection: Connection,
        process: BaseProcess,
        end: weakref.finalize[Any, Any],
        venv: weakref.ref[SubprocVecEnv],
    ) -> None:
        self._number, self._connection, self._process = number, connection, process
        self._end, self._venv = end, venv

    def send(self, message: Any) -> None:
        """Send a message to the worker."""
        try:
            self._connection.send(message)
        except (BrokenPipeError, ConnectionResetError) as error:
            self._fail(error)
        except OSError as error:  # the handle is closed
            raise WorkerError(
                "Expected open environments; their worker processes are closed. "
                "Fix: make new environments and pass them to set_env() or load()."
            ) from error

    def recv(self) -> Any:
        """Wait for the answer of the worker, or for its end."""
        if self._connection.closed or self._process.sentinel in wait([self._connection, self._process.sentinel]):
            self._fail(None)
        try:
            return self._connection.recv()
        except (EOFError, ConnectionResetError) as error:
            self._fail(error)

    def close(self) -> None:
        """Close the pipe."""
        self._connection.close()

    def _fail(self, error: Exception | None) -> NoReturn:
        self._process.join(_SECONDS_TO_END)
        code = self._process.exitcode
        _close(self._venv, self._end)
        raise WorkerError(
            f"Expected an answer of every environment; a worker process has ended (environment {self._number}, "
            f"exit code {code}). Nothing was learned from this step. "
            "Fix: see its error above; go on from a checkpoint, with new environments."
        ) from error


def _end(connections: Sequence[Connection], processes: Sequence[BaseProcess], owner: int) -> None:
    """Let workers close their environments and end; those that do not are terminated."""
    if os.getpid() != owner:  # a forked copy of the parent
        return
    for connection in connections:
        try:
            connection.send(("close", None))
        except OSError:  # closed, or the worker is gone
            continue
    deadline = time.monotonic() + _SECONDS_TO_END
    for connection, process in zip(connections, processes, strict=True):
        _drain(connection, process, deadline)
        if process.is_alive():
            process.terminate()
            process.join(1.0)
        if process.is_alive():  # it handles the signal, or is stopped
            process.kill()
            process.join()
        connection.close()


def _drain(connection: Connection, process: BaseProcess, deadline: float) -> None:
    """Receive the remaining answers of a worker: a closed pipe would end it by an error of its own."""
    while not connection.closed and time.monotonic() < deadline:
        ready = wait([connection, process.sentinel], max(0.0, deadline - time.monotonic()))
        if connection not in ready or process.sentinel in ready:
            return
        try:
            connection.recv()
        except (EOFError, OSError):
            break
    process.join(max(0.0, deadline - time.monotonic()))
