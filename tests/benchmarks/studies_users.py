"""Jobs that take no time, results that are made up, and a study in a process of its own, for the tests of studies."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.studies.jobs import Evaluation, Job
from benchmarks.studies.pieces import Pieces
from benchmarks.studies.pool import work

LOG = "STUDIES_TEST_LOG"
MADE = {"command": "made up", "cpu": "none", "cores": 1, "python": "3", "versions": {"sand": "0.1"}}


def job(seed: int = 0, **changes: Any) -> Job:
    made = Job("POAD", "KeyToken-v0", 128, seed, {"learning_rate": 1e-3}, Evaluation(every=128, episodes=2))
    return made._replace(**changes)


def result(height: float = 0.5, final: float | None = None, **more: Any) -> dict[str, Any]:
    """A curve that is level but for its ends."""
    return {
        "steps": [0, 100, 200],
        "returns": [0.0, height, height if final is None else final],
        "success": [0.0, 0.5, 1.0],
        "actions": [5.0, 4.0, 3.0],
        "cpu_seconds": 2.0,
        "largest_first_ratio_error": 1e-6,
        **more,
    }


def run_logged(one: Job) -> dict[str, Any]:
    """Takes a moment, and says that it was done."""
    time.sleep(0.15)
    with Path(os.environ[LOG]).open("a") as log:
        log.write(f"{one.name}\n")
    return result(seed=one.seed)


def run_failing(one: Job) -> dict[str, Any]:
    if one.seed == 1:
        raise RuntimeError("no luck")
    return run_logged(one)


def run_killed(one: Job) -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def fill(pieces: Pieces, jobs: list[Job], make: Callable[[Job], dict[str, Any]]) -> None:
    for one in jobs:
        pieces.put(one, make(one), MADE)


if __name__ == "__main__":
    work(lambda: [job(seed) for seed in range(12)], Pieces(Path(sys.argv[1])), {}, n_workers=2, run=run_logged)
