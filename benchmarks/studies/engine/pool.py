"""Run the missing jobs in a process pool until the time limit."""

from __future__ import annotations

import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.errors import JobFailedError
from benchmarks.studies.engine.jobs import Job
from benchmarks.studies.engine.pieces import COST, Pieces
from lang_bench.runner.players import end_with_parent


class Done(NamedTuple):
    """How many jobs were done now, and whether none was left for another time."""

    n_done: int
    in_time: bool


def work(
    listed: Callable[[], Iterable[Job]],
    pieces: Pieces,
    measured: Mapping[str, Any],
    *,
    n_workers: int = 1,
    seconds: float | None = None,
    watch: Callable[[Job, JobFailedError | None], None] = lambda job, failure: None,
) -> Done:
    """Run the jobs that have no piece yet.

    Args:
        listed: Function that returns the jobs known so far, the most urgent first; called again whenever a job is done,
            since some depend on earlier results.
        pieces: Folder of pieces, to read and to write.
        measured: Command, hardware and versions, recorded with the pieces.
        n_workers: Number of jobs that run at a time.
        seconds: Time limit in seconds: no job is begun after it, running ones are finished. None for no limit.
        watch: Called with every job that is done, and at once with one that failed, as the rest may run for hours.

    Raises:
        JobFailedError: First of the errors that jobs have raised, when all other jobs are done.
        StudyError: If no piece can be written.
    """
    pieces.require_room()
    end = None if seconds is None else time.monotonic() + seconds
    running: dict[Future[None], Job] = {}
    failed: dict[str, JobFailedError] = {}
    n_done = 0
    with ProcessPoolExecutor(n_workers, mp_context=get_context("spawn"), initializer=_start) as pool:
        while True:
            jobs = {job.name: job for job in listed()}
            excluded = {job.name for job in running.values()} | failed.keys()
            todo = [job for name, job in jobs.items() if name not in excluded and pieces.find(job) is None]
            in_time = end is None or time.monotonic() < end
            for job in todo[: n_workers - len(running)] if in_time else ():
                running[pool.submit(_do, job, pieces.folder, dict(measured))] = job
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                job = running.pop(future)
                try:
                    future.result()
                except BrokenProcessPool as error:  # the pool is unusable
                    raise JobFailedError(
                        f"Expected {job} to be done; a process that trained was killed, it may have been this one. "
                        "Fix: if memory is short, fewer --workers. What was done is kept, and the same command resumes."
                    ) from error
                except JobFailedError as error:
                    failed[job.name] = error
                n_done += job.name not in failed
                watch(job, failed.get(job.name))
    if failed:
        raise next(iter(failed.values()))
    return Done(n_done, not todo)


def _start() -> None:
    import torch

    torch.set_num_threads(1)  # as in the description of the machine
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C reaches the whole group, and ends running jobs
    threading.Thread(target=end_with_parent, daemon=True).start()


def _do(job: Job, folder: Path, measured: dict[str, Any]) -> None:
    """Run a job in a worker; the worker writes the piece itself, so that none is lost in transit."""
    worked = time.process_time()
    try:
        result = job.run()
        Pieces(folder).put(job, result, {**measured, COST: round(time.process_time() - worked, 1)})
    except Exception as error:
        raise JobFailedError(
            f"Expected {job} to be done; got {type(error).__name__}: {str(error).rstrip('.')}. "
            "Fix: correct the cause. The pieces before it are kept, and the same command resumes.",
            "".join(traceback.format_exception(error)),
        ) from None
