"""`wall-time`: how long the runs of `curves` took, by method and task. It has no runs of its own."""

from __future__ import annotations

import numpy as np

from benchmarks.references.published import read
from benchmarks.studies.curves import CURVES
from benchmarks.studies.engine.pieces import Pieces
from benchmarks.studies.engine.study import Options, Report, Study

_HOW = (
    "Processor seconds of training on one thread, evaluations left out: the wall time of an idle core. "
    "Environment steps a second, likewise. The pocket model has 0.9 million parameters."
)


def _report(options: Options, pieces: Pieces) -> Report:
    findings = CURVES.findings(options, pieces)
    rows = []
    for one in findings:
        for name, finding in one.methods.items():
            seconds = [piece["cpu_seconds"] for piece in finding.runs.values()]
            steps = next(iter(finding.runs.values()))["steps"][-1]
            rows.append(
                {
                    "env": one.comparison.task.env_id,
                    "policy": one.comparison.title,
                    "method": name,
                    "steps": steps,
                    "seconds": round(float(np.mean(seconds)), 1),
                    "seconds_of_seeds": seconds,
                    "steps_per_second": round(steps / float(np.mean(seconds)), 1),
                }
            )
    missing = [f"{one.where}: {what}" for one in findings for what in one.missing]
    published = read("poad_paper")["wall_time"]
    content = {
        "how": _HOW,
        "rows": rows,
        "missing": missing,
        "published_label": published["label"],
        "published": published["times"],
    }
    lines = [
        f"{row['env']}, {row['policy']}, {row['method']}: {row['seconds']:.0f} s, {row['steps_per_second']:.0f} steps/s"
        for row in rows
    ]
    return Report(content, {}, [*lines, *(f"Missing: {one}" for one in missing)])


WALL_TIME_STUDY = Study(
    "wall-time", "time and environment steps a second of the runs of curves", lambda options, pieces: (), _report
)
