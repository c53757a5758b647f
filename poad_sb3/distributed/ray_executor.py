"""`RayExecutor`: an executor of `concurrent.futures` whose workers are Ray actors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from typing import Any, ParamSpec, TypeVar

from poad_sb3.distributed.ray_cluster import RayConnection, check_room, launch_actor, original, room

__all__ = ["RayExecutor"]

_SECONDS_TO_END = 10.0

P = ParamSpec("P")
T = TypeVar("T")


class RayExecutor(Executor):
    """Workers on the nodes of a Ray cluster, each taking one core. A call goes to the worker with the fewest calls.

    A worker that is lost ends the executor, as one of a `ProcessPoolExecutor` does: its calls raise `BrokenExecutor`.

    Args:
        n_workers: Number of workers.
        address: See `RayConnection`.
        initializer: Called first in every worker.
        initargs: Its arguments.

    Raises:
        MissingExtraError: If Ray is not installed.
        WorkerError: If there is no cluster at the address, or it is too small.
    """

    def __init__(
        self, n_workers: int, address: str, initializer: Callable[..., object], initargs: tuple[Any, ...] = ()
    ) -> None:
        self._connection = RayConnection(address)
        self._workers: list[Any] = []
        try:
            check_room(n_workers, room({"CPU": 1.0}), {"CPU": 1.0}, "workers", "--workers")
            self._workers = [launch_actor(_Worker, {"CPU": 1.0}) for _ in range(n_workers)]
        except BaseException:
            self._connection.close()
            raise
        self._n_calls = [0] * n_workers
        path = list(filter(None, sys.path))
        for worker in self._workers:
            worker.find_modules.remote(path)
            worker.run.remote(initializer, initargs)  # an error of it comes again with the first call

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a function in a worker."""
        if not self._workers:
            raise RuntimeError("Expected an open executor; it was shut down. Fix: make another one.")
        number = min(range(len(self._workers)), key=self._n_calls.__getitem__)
        self._n_calls[number] += 1
        answer: Future[T] = Future()

        def note(done: Future[T]) -> None:
            self._n_calls[number] -= 1
            if not answer.set_running_or_notify_cancel():
                return
            error = done.exception()
            if error is None:
                answer.set_result(done.result())
            else:
                answer.set_exception(original(error) or BrokenExecutor(f"a worker was lost: {error}"))

        self._workers[number].run.remote(fn, args, kwargs).future().add_done_callback(note)
        return answer

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the workers, with their exit functions if they end in time; calls that are not answered are dropped."""
        import ray

        ending = [worker.__ray_terminate__.remote() for worker in self._workers]
        if ending:
            ray.wait(ending, num_returns=len(ending), timeout=_SECONDS_TO_END)
        for worker in self._workers:
            ray.kill(worker, no_restart=True)
        self._workers = []
        self._connection.close()


class _Worker:
    def find_modules(self, path: list[str]) -> None:
        sys.path += [folder for folder in path if folder not in sys.path]

    def run(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
        return fn(*args, **(kwargs or {}))
