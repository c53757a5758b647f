"""`RayExecutor`: an executor of `concurrent.futures` whose workers are Ray actors."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from typing import Any, ParamSpec, TypeVar

from poad_sb3.distributed.ray_cluster import (
    RayConnection,
    cause_of_loss,
    check_room,
    find_modules,
    get,
    launch_actor,
    module_path,
    original,
    room,
)
from poad_sb3.errors import WorkerError

__all__ = ["RayExecutor"]

_SECONDS_TO_START, _SECONDS_TO_END = 300.0, 10.0

P = ParamSpec("P")
T = TypeVar("T")


class RayExecutor(Executor):
    """Workers on the nodes of a Ray cluster, each taking one core. A call goes to the worker with the fewest calls.

    A worker that is lost ends the executor, as one of a `ProcessPoolExecutor` does: its calls raise `BrokenExecutor`.

    Args:
        n_workers: Number of workers.
        address: Address of the cluster, see `RayConnection`.
        initializer: Function called first in every worker.
        initargs: Arguments of the initializer.

    Raises:
        MissingExtraError: If Ray is not installed.
        WorkerError: If there is no cluster at the address, it is too small, or a worker does not start.
        Exception: If the initializer raises it.
    """

    def __init__(
        self, n_workers: int, address: str, initializer: Callable[..., object], initargs: tuple[Any, ...] = ()
    ) -> None:
        self._connection = RayConnection(address)
        self._workers: list[Any] = []
        self._n_calls = [0] * n_workers
        demand = {"CPU": 1.0}
        import ray

        try:
            check_room(n_workers, room(demand), demand, "workers", "--workers")
            self._workers = [launch_actor(Worker, demand, arguments=[module_path()]) for _ in range(n_workers)]
            for begun in [worker.run.remote(initializer, initargs) for worker in self._workers]:
                get(begun, _SECONDS_TO_START)
        except ray.exceptions.RayError as error:
            self.shutdown()
            raise WorkerError(
                f"Expected {n_workers} workers to start within {_SECONDS_TO_START:g} s each; {cause_of_loss(error)}. "
                "Fix: wait for other jobs of the cluster, or fewer --workers."
            ) from error
        except BaseException:
            self.shutdown()
            raise

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


class Worker:
    """Actor that runs functions.

    Args:
        path: Folders of modules that it finds, see `module_path`.
    """

    def __init__(self, path: list[str]) -> None:
        find_modules(path)

    def run(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
        """Run a function."""
        return fn(*args, **(kwargs or {}))
