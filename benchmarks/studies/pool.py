"""Jobs over cores: whatever is not there yet is done, by processes of their own, while there is time."""

from __future__ import annotations

import signal
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.runner.players import end_with_parent
from benchmarks.studies.errors import JobFailedError
from benchmarks.studies.jobs import Work
from benchmarks.studies.pieces import Piece, Pieces

__all__ = ["Done", "work"]

Listed = Callable[[], Iterable[Work]]
"""The jobs as far as they are known, the most urgent first; asked again whenever one is done: some hang on others."""

Run = Callable[[Work], Piece]


class Done(NamedTuple):
    """What came of it.

    Attributes:
        n_done: Jobs that were done now.
        in_time: Whether none was left for another time.
    """

    n_done: int
    in_time: bool


def work(
    listed: Listed,
    pieces: Pieces,
    measured: Mapping[str, Any],
    *,
    n_workers: int = 1,
    seconds: float | None = None,
    watch: Callable[[Work, JobFailedError | None], None] = lambda job, failure: None,
    run: Run | None = None,
) -> Done:
    """Do what has no piece yet.

    Args:
        listed: What there is to do.
        pieces: Where pieces are, and are put.
        measured: Command, hardware, versions, for the pieces.
        n_workers: Jobs at a time.
        seconds: After which no other job is begun; those that are under way are finished. None for no limit.
        watch: Told of every job that is done, and at once of one that failed: others may go on for hours.
        run: Does a job, and can be imported by its name; `Work.run` if None.

    Raises:
        JobFailedError: The first of the errors that jobs have raised, when all that do not fail are done.
        StudyError: If no piece can be written.
    """
    pieces.require_room()
    end = None if seconds is None else time.monotonic() + seconds
    running: dict[Future[None], Work] = {}
    failed: dict[str, JobFailedError] = {}
    n_done = 0
    with ProcessPoolExecutor(n_workers, mp_context=get_context("spawn"), initializer=_start) as pool:
        while True:
            todo = _left(listed(), pieces, {job.name for job in running.values()} | failed.keys())
            in_time = end is None or time.monotonic() < end
            for job in todo[: n_workers - len(running)] if in_time else ():
                running[pool.submit(_do, run, job, pieces.folder, dict(measured))] = job
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                job = running.pop(future)
                try:
                    _result(future, job)
                except JobFailedError as error:
                    if isinstance(error.__cause__, BrokenProcessPool):  # nothing can be begun in it any more
                        raise
                    failed[job.name] = error
                    watch(job, error)
                    continue
                n_done += 1
                watch(job, None)
    if failed:
        raise next(iter(failed.values()))
    return Done(n_done, not todo)


def _left(jobs: Iterable[Work], pieces: Pieces, others: Collection[str]) -> list[Work]:
    """Jobs without pieces, each once, but for some."""
    by_name = {job.name: job for job in jobs}
    return [job for name, job in by_name.items() if name not in others and pieces.find(job) is None]


def _result(future: Future[None], job: Work) -> None:
    try:
        future.result()
    except BrokenProcessPool as error:
        raise JobFailedError(
            f"Expected {job} to be done; a process that trained was killed, it may have been this one. "
            "Fix: if memory is short, fewer --workers. What was done is kept, and the same command goes on."
        ) from error


def _start() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C reaches the whole group, and ends what is under way
    threading.Thread(target=end_with_parent, daemon=True).start()


def _do(run: Run | None, job: Work, folder: Path, measured: dict[str, Any]) -> None:
    """In a worker, which writes the piece itself: nothing of it can be lost on the way."""
    try:
        Pieces(folder).put(job, job.run() if run is None else run(job), measured)
    except Exception as error:
        whole = "".join(traceback.format_exception(error))
        raise JobFailedError(
            f"Expected {job} to be done; got {type(error).__name__}: {str(error).rstrip('.')}. "
            "Fix: what is said there. The pieces before it are kept, and the same command goes on.",
            whole,
        ) from None
