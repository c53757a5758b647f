"""`credit-truth`: jobs and report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.errors import StudyError
from benchmarks.studies.credit_truth.cases import Case, Measured, cases_of
from benchmarks.studies.credit_truth.measuring import TruthJob
from benchmarks.studies.credit_truth.predictions import PREDICTIONS, Check
from benchmarks.studies.credit_truth.sampling import CHUNK
from benchmarks.studies.credit_truth.tables import tables
from benchmarks.studies.engine.pieces import Pieces
from benchmarks.studies.engine.study import FINAL_SEEDS, Options, Report, Study

GAMMA = 0.95
_GAMMAS = (GAMMA, 0.9, 0.99, 1.0)
_ALONE = (GAMMA,)
_WORDS = tuple(f"multikey 1 {d} 2 4" for d in range(8))
_SINGLE = tuple(f"multikey {k} {d} {words} 1" for words in (2, 4) for k, d in ((1, 0), (1, 4), (2, 0), (2, 4), (4, 0)))
_FOUR_WORDS = tuple(f"multikey {k} {d} 4 4" for k, d in ((1, 0), (1, 4), (2, 0), (2, 4), (4, 0)))
_KEYS = tuple(f"key-token {n}" for n in (2, 8, 16, 32))


def _job(
    tasks: str | tuple[str, ...], policy: str, gammas: tuple[float, ...], chunks: int, title: str = ""
) -> TruthJob:
    listed = (tasks,) if isinstance(tasks, str) else tasks
    return TruthJob(title or listed[0].replace(" ", "-"), listed, "tabular", policy, gammas, chunks)


def _pocket(task: str, policy: str, chunks: int) -> TruthJob:
    return TruthJob(task.replace(" ", "-"), (task,), "pocket", policy, _ALONE, chunks)


FULL: tuple[TruthJob, ...] = (
    _job("entertainment", "ascended", _GAMMAS, 850),
    _job("tomato-salad", "ascended", _GAMMAS, 440),
    _job("multikey 2 2 2 4", "ascended", _GAMMAS, 1_900),
    _job("key-token 4", "ascended", _GAMMAS, 800),
    _job("food-preparation", "ascended", _GAMMAS, 200),
    _job("multikey 4 4 2 4", "ascended", _GAMMAS, 400),
    _job("worked-example", "start", (0.9, 1.0), 100),
    *(_job(task, "start", _ALONE, 30) for task in ("entertainment", "tomato-salad", "food-preparation")),
    _job("key-token 4", "start", _ALONE, 100),
    *(_job("multikey 2 2 2 4", policy, _ALONE, 100) for policy in ("start", "0.25", "0.75")),
    *(_job("multikey 4 4 2 4", policy, _ALONE, 0) for policy in ("start", "0.25", "0.75")),
    _job("multikey 1 4 4 4", "start", _ALONE, 20),
    *(_job(_WORDS, policy, _ALONE, 0, "lengths") for policy in ("start", "0.25", "0.75")),
    *(_job(_SINGLE, policy, _ALONE, 0, "one-decision") for policy in ("start", "0.75")),
    *(_job(_FOUR_WORDS, policy, _ALONE, 0, "four-words") for policy in ("start", "0.75")),
    _job(_KEYS, "ascended", _ALONE, 0, "key-token-lengths"),
    *(
        _pocket(task, policy, chunks)
        for task, chunks in (
            ("food-preparation", 40),
            ("key-token 4", 60),
            ("multikey 1 2 2 4", 60),
            ("tomato-salad", 0),
            ("entertainment", 0),
        )
        for policy in ("ascended", "start")
        if (task, policy) != ("tomato-salad", "ascended")  # the untrained model is beyond the target
    ),
)
"""Jobs of the whole study, the longest first."""


def _listed(options: Options) -> list[TruthJob]:
    chosen = options.chosen_tasks(dict.fromkeys(job.title for job in FULL))
    return [job for job in FULL if job.title in chosen]


def _jobs(options: Options, pieces: Pieces) -> Iterator[TruthJob]:
    if tuple(options.seeds) != FINAL_SEEDS:
        raise StudyError("Expected no seeds: the samples of this study have their own. Fix: leave out --seeds.")
    yield from _listed(options)


def _report(options: Options, pieces: Pieces) -> Report:
    cases: list[Case] = []
    missing, runs = [], []
    for job in _listed(options):
        piece = pieces.find(job)
        if piece is None:
            missing.append(str(job))
        else:
            cases += cases_of(job.parameters, job.policy, piece)
            runs.append(job.name)
    checked = [_checked(name, list(checks(cases))) for name, checks in PREDICTIONS.items()]
    content = {
        "gae_lambda": 0.95,
        "episodes_per_part": CHUNK,
        "columns": list(Measured._fields),
        "predictions": checked,
        "missing": missing,
        "runs": runs,
        "cases": [case.to_json() for case in cases],
    }
    if not cases:
        return Report(content, {})
    from benchmarks.studies.credit_truth.pictures import pictures

    return Report(content, pictures(cases))


def _checked(name: str, checks: Sequence[Check]) -> dict[str, Any]:
    failures = [
        {"case": check.case, "predicted": check.predicted, "measured": check.measured}
        for check in checks
        if not check.holds
    ]
    differences = [
        abs(check.predicted - check.measured)
        for check in checks
        if check.predicted is not None and check.measured is not None
    ]
    return {
        "name": name,
        "checked": len(checks),
        "held": len(checks) - len(failures),
        "largest_difference": float(f"{max(differences):.3g}") if differences else None,
        "failures": failures[:12],
    }


CREDIT_TRUTH = Study(
    "credit-truth",
    "mean and variance of every estimator of credit against the exact policy gradient",
    _jobs,
    _report,
    tables,
)
