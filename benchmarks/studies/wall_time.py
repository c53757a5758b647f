"""`wall-time`: how long the runs of `curves` took, by method and task. It has no runs of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.studies.curves import CURVES
from benchmarks.studies.findings import Finding, Findings
from benchmarks.studies.jobs import Job
from benchmarks.studies.pieces import Pieces
from benchmarks.studies.published import WALL_TIME, WALL_TIME_LABEL
from benchmarks.studies.study import Options, Report, Study

__all__ = ["WALL_TIME_STUDY"]

_HOW = (
    "Processor seconds of training on one thread, evaluations left out: the wall time of an idle core. "
    "Environment steps a second, likewise. The pocket model has 0.9 million parameters."
)


def _jobs(options: Options, pieces: Pieces) -> Iterator[Job]:
    """Nothing."""
    yield from ()


def _report(options: Options, pieces: Pieces) -> Report:
    findings = CURVES.findings(options, pieces)
    rows = [_row(one, name, finding) for one in findings for name, finding in one.methods.items()]
    missing = [f"{one.where}: {what}" for one in findings for what in one.missing]
    content = {
        "how": _HOW,
        "rows": rows,
        "missing": missing,
        "published_label": WALL_TIME_LABEL,
        "published": WALL_TIME,
    }
    lines = [
        f"{row['env']}, {row['policy']}, {row['method']}: {row['seconds']:.0f} s, {row['steps_per_second']:.0f} steps/s"
        for row in rows
    ]
    return Report(content, {}, [*lines, *(f"Missing: {one}" for one in missing)])


def _row(one: Findings, name: str, finding: Finding) -> dict[str, Any]:
    seconds = [piece["cpu_seconds"] for piece in finding.runs.values()]
    steps = next(iter(finding.runs.values()))["steps"][-1]
    return {
        "env": one.comparison.task.env_id,
        "policy": one.comparison.title,
        "method": name,
        "steps": steps,
        "seconds": round(float(np.mean(seconds)), 1),
        "seconds_of_seeds": seconds,
        "steps_per_second": round(steps / float(np.mean(seconds)), 1),
    }


WALL_TIME_STUDY = Study("wall-time", "time and environment steps a second of the runs of curves", _jobs, _report)
