"""Executors of jobs: calls that take minutes, such as trainings, in processes of this machine or on a Ray cluster."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import connection, get_context, parent_process
from typing import Any, ParamSpec, TypeVar

from poad_sb3.distributed.ray_cluster import (
    RayConnection,
    cause_of_loss,
    check_room,
    launch_actor,
    module_path,
    original,
    room,
)
from poad_sb3.distributed.ray_executor import Worker
from poad_sb3.errors import WorkerError

__all__ = ["ProcessJobs", "RayJobs", "end_with_parent", "job_executor"]

_DEMAND = {"CPU": 1.0}
_RETRIES = 3
"""Number of times that a job whose worker is lost begins again."""
_PAUSE = 1.0
"""Seconds before a lost job begins again: Ctrl-C ends the processes first, and in this time the executor too."""

P = ParamSpec("P")
T = TypeVar("T")


def job_executor(n_workers: int, ray: str | None = None) -> Executor:
    """Return an executor of jobs, which have one thread each.

    Args:
        n_workers: Number of jobs that run at a time.
        ray: Address of a Ray cluster, see `RayConnection`; None for processes of this machine.

    Raises:
        MissingExtraError: If Ray is not installed.
        WorkerError: If there is no cluster at the address, or it is too small.
    """
    if ray is not None:
        return RayJobs(n_workers, ray)
    return ProcessJobs(n_workers)


class ProcessJobs(Executor):
    """Jobs in processes of this machine, which take one job after another: a process needs seconds to begin.

    A job whose process is lost begins again in a new one, and the others go on. A job that is lost too often raises
    `WorkerError`.

    Args:
        n_workers: Number of jobs that run at a time.
    """

    def __init__(self, n_workers: int) -> None:
        self._threads = ThreadPoolExecutor(n_workers)
        self._idle: list[ProcessPoolExecutor] = []  # of one process each, so that no loss ends another
        self._is_ending = threading.Event()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a function in a process.

        Raises:
            RuntimeError: After `shutdown`.
        """
        return self._threads.submit(self._run, partial(fn, *args, **kwargs))

    def _run(self, job: Callable[[], T]) -> T:
        error: BrokenExecutor | None = None
        for _ in range(_RETRIES + 1):
            try:
                pool = self._idle.pop()
            except IndexError:
                pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_start)
            error = None
            try:
                return pool.submit(job).result()
            except BrokenExecutor as broken:
                error = broken
            finally:
                if error is None:
                    self._idle.append(pool)
            if self._is_ending.wait(_PAUSE):
                raise CancelledError
        raise WorkerError(
            f"Expected an answer of a worker; its process ended early {_RETRIES + 1} times. "
            "Fix: see the error above, if there is one; if memory is short, fewer --workers."
        ) from error

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more jobs; those before still run, unless cancelled. One that is lost raises `CancelledError`."""
        self._is_ending.set()
        self._threads.shutdown(wait, cancel_futures=cancel_futures)
        while self._idle:
            self._idle.pop().shutdown(wait)


class RayJobs(Executor):
    """Jobs on the nodes of a Ray cluster, each in an actor of its own that takes one core.

    A lost actor is made again by Ray, on any node as soon as it has a core free, and its job begins again; the others
    go on. A job that is lost too often raises `WorkerError`. No actor outlives its job, as it would hold the core that
    a job of a lost node waits for.

    Args:
        n_workers: Number of jobs that are submitted at a time; the cluster must have room for them at first.
        address: Address of the cluster, see `RayConnection`.

    Raises:
        MissingExtraError: If Ray is not installed.
        WorkerError: If there is no cluster at the address, or it is too small.
    """

    def __init__(self, n_workers: int, address: str) -> None:
        self._lock, self._is_open = threading.Lock(), True
        self._actors: dict[Future[Any], Any] = {}
        self._connection = RayConnection(address)
        try:
            check_room(n_workers, room(_DEMAND), _DEMAND, "workers", "--workers")
        except WorkerError:
            self._connection.close()
            raise

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a function in an actor.

        Raises:
            RuntimeError: If the executor was shut down; Ray would start a cluster of its own.
        """
        answer: Future[T] = Future()
        answer.set_running_or_notify_cancel()

        def note(done: Future[T]) -> None:
            if self._actors.pop(answer, None) is None:
                return  # ended by `shutdown`
            error = done.exception()
            if error is None:
                answer.set_result(done.result())
            else:
                answer.set_exception(original(error) or _loss(error))

        with self._lock:
            if not self._is_open:
                raise RuntimeError("Expected an open executor; it was shut down. Fix: make another one.")
            # Ray leaves an OMP_NUM_THREADS of the node as it is, and results depend on the number of threads.
            actor = launch_actor(Worker, _DEMAND, {"OMP_NUM_THREADS": "1"}, [module_path()], _RETRIES)
            self._actors[answer] = actor
            actor.run.remote(fn, args, kwargs).future().add_done_callback(note)
        return answer

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the actors; jobs that are not answered raise `CancelledError`."""
        import ray

        with self._lock:
            self._is_open, answers = False, list(self._actors)
        for answer in answers:
            if (actor := self._actors.pop(answer, None)) is not None:
                ray.kill(actor, no_restart=True)
                answer.set_exception(CancelledError())
        self._connection.close()


def _loss(error: BaseException) -> WorkerError:
    return WorkerError(
        f"Expected an answer of a worker; it was lost {_RETRIES + 1} times ({cause_of_loss(error)}). "
        "Fix: look for its cause there, often too little memory."
    )


def _start() -> None:
    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C reaches the whole group, and ends running jobs
    threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    """End the process with its parent: a killed parent does not notify its workers, and they would wait for ever."""
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)
