"""Run the missing jobs in processes, or on a Ray cluster, until the time limit."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, NamedTuple

from benchmarks.errors import JobFailedError
from benchmarks.studies.engine.jobs import Job
from benchmarks.studies.engine.pieces import COST, Piece, Pieces
from lang_bench.runner.machine import describe_machine
from poad_sb3.distributed.job_executor import job_executor


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
    ray: str | None = None,
    seconds: float | None = None,
    watch: Callable[[Job, JobFailedError | None], None] = lambda job, failure: None,
) -> Done:
    """Run the jobs that have no piece yet.

    Args:
        listed: Function that returns the jobs known so far, the most urgent first; called again whenever a job is done,
            since some depend on earlier results.
        pieces: Folder of pieces, to read and to write.
        measured: Command and commit, recorded with the pieces.
        n_workers: Number of jobs that run at a time.
        ray: Address of a Ray cluster that they run on; None for processes of this machine. See `job_executor`.
        seconds: Time limit in seconds: no job is begun after it, running ones are finished. None for no limit.
        watch: Called with every job that is done, and at once with one that failed, as the rest may run for hours.

    Raises:
        JobFailedError: First of the errors that jobs have raised, when all other jobs are done.
        StudyError: If no piece can be written.
        WorkerError: If there is no such cluster, or it is too small.
    """
    pieces.require_room()
    end = None if seconds is None else time.monotonic() + seconds
    running: dict[Future[tuple[Piece, dict[str, Any]]], Job] = {}
    failed: dict[str, JobFailedError] = {}
    n_done = 0
    with job_executor(n_workers, ray) as executor:
        while True:
            jobs = {job.name: job for job in listed()}
            excluded = {job.name for job in running.values()} | failed.keys()
            todo = [job for name, job in jobs.items() if name not in excluded and pieces.find(job) is None]
            in_time = end is None or time.monotonic() < end
            for job in todo[: n_workers - len(running)] if in_time else ():
                running[executor.submit(_do, job)] = job
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                job = running.pop(future)
                try:
                    result, surroundings = future.result()
                    pieces.put(job, result, {**surroundings, **measured})
                except Exception as error:  # of the job, of a worker that was lost too often, or of the disk
                    failed[job.name] = error if isinstance(error, JobFailedError) else _failure(job, error)
                n_done += job.name not in failed
                watch(job, failed.get(job.name))
    if failed:
        raise next(iter(failed.values()))
    return Done(n_done, not todo)


def _do(job: Job) -> tuple[Piece, dict[str, Any]]:
    """Run a job in a worker; return its result, and the machine and the time that it took."""
    worked = time.process_time()
    try:
        result = job.run()
    except Exception as error:
        raise _failure(job, error) from None
    return result, {**describe_machine(), COST: round(time.process_time() - worked, 1)}


def _failure(job: Job, error: Exception) -> JobFailedError:
    cause, _, fix = str(error).rstrip(".").partition(" Fix: ")
    return JobFailedError(
        f"Expected {job} to be done; got {type(error).__name__}: {cause.rstrip('.')}. "
        f"Fix: {fix or 'correct the cause'}. The pieces before it are kept, and the same command resumes.",
        "".join(traceback.format_exception(error)),
    )
