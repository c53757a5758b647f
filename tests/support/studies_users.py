"""Jobs that take no time, results that are made up, and a study in a process of its own, for the tests of studies."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.studies.engine.jobs import Evaluation, TaskJob, TrainingJob
from benchmarks.studies.engine.pieces import Pieces
from benchmarks.studies.engine.pool import work
from benchmarks.studies.engine.study import Options

LOG = "STUDIES_TEST_LOG"
MADE = {"command": "made up", "cpu": "none", "cores": 1, "python": "3", "versions": {"sand": "0.1"}}


FACTS = {"choices_per_action": 1.07, "tokens_per_action": 5.2, "random": 0.0, "oracle": 0.52}
SCORE = {"discounted_return": 0.5, "success": 0.5, "steps": 9.0, "episodes": 100}


def job(seed: int = 0, kind: type[TrainingJob] = TrainingJob, **changes: Any) -> TrainingJob:
    made = kind("POAD", "KeyToken-v0", 128, seed, {"learning_rate": 1e-3}, Evaluation(every=128, episodes=2))
    return replace(made, **changes)


def result(height: float = 0.5, final: float | None = None, **more: Any) -> dict[str, Any]:
    """A curve that is level but for its ends."""
    return {
        "steps": [0, 100, 200],
        "returns": [0.0, height, height if final is None else final],
        "success": [0.0, 0.5, 1.0],
        "actions": [5.0, 4.0, 3.0],
        "cpu_seconds": 2.0,
        "largest_first_ratio_error": 1e-6,
        "key": 0.2,
        "distractor": 0.1,
        **more,
    }


class LoggedJob(TrainingJob):
    """Takes a moment, and says that it was done."""

    def run(self) -> dict[str, Any]:
        time.sleep(0.15)
        with Path(os.environ[LOG]).open("a") as log:
            log.write(f"{self.name}\n")
        return result(seed=self.seed)


class FailingJob(LoggedJob):
    def run(self) -> dict[str, Any]:
        if self.seed == 1:
            raise RuntimeError("no luck")
        return super().run()


class KilledJob(TrainingJob):
    def run(self) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGKILL)
        return {}


class HeldJob(LoggedJob):
    """Says that it begins, and waits until it may end."""

    def run(self) -> dict[str, Any]:
        import torch

        done = super().run()
        while not Path(f"{os.environ[LOG]}.go").exists():
            time.sleep(0.1)
        return {**done, "threads": torch.get_num_threads()}


def fill(pieces: Pieces, jobs: list[TrainingJob], make: Callable[[TrainingJob], dict[str, Any]]) -> None:
    for one in jobs:
        pieces.put(one, make(one), MADE)


def fill_study(
    study: Any,
    options: Options,
    pieces: Pieces,
    make: Callable[[Any], dict[str, Any]],
    keep: Callable[[Any], bool] = lambda job: True,
) -> list[Any]:
    """Make up every piece as soon as its job is known, those of tasks too, and return the jobs."""

    def whole(job: Any) -> dict[str, Any]:
        if isinstance(job, TaskJob):
            return dict(FACTS)
        tests = dict.fromkeys(job.evaluation.tests, SCORE) if isinstance(job, TrainingJob) else {}
        return {"tests": tests, **make(job)}

    jobs: dict[str, Any] = {}
    while new := [
        job for job in study.jobs(options, pieces) if job.name not in jobs and (isinstance(job, TaskJob) or keep(job))
    ]:
        jobs |= {job.name: job for job in new}
        fill(pieces, new, whole)
    return list(jobs.values())


if __name__ == "__main__":
    work(lambda: [job(seed, LoggedJob) for seed in range(12)], Pieces(Path(sys.argv[1])), {}, n_workers=2)
