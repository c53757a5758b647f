"""Findings of runs on code, at equal numbers of evaluations: reward, share and AUC of code that runs, best code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.studies.engine.findings import rounded
from benchmarks.studies.engine.jobs import CONTROLS
from benchmarks.studies.engine.pieces import Piece, identifier
from benchmarks.studies.engine.tables import interval_cell
from lang_envs.datasets.generated import NAME as GENERATED
from lang_envs.report import Table
from lang_envs.report.statistics import Estimate, Floats, percentile_interval

FAILED = -1.0
"""Reward of code that does not run, as published."""
_RESAMPLES, _SEED = 1_000, 0


def ending(areas: Sequence[Any]) -> Sequence[Any]:
    """Return the last eighth of the attempts, at least one: the end of a run."""
    return areas[-max(1, len(areas) // 8) :]


def areas_of(areas: Sequence[float | None]) -> Floats:
    """Return AUCs as numbers, NaN where the code did not run."""
    return np.array([np.nan if area is None else area for area in areas], dtype=np.float64)


def rewards_of(areas: Sequence[float | None]) -> Floats:
    """Return the rewards of attempts, `[n]`."""
    return np.nan_to_num(areas_of(areas), nan=FAILED)


Measure = Callable[[Floats, Floats, Floats], Floats]
"""Function of the number of attempts, of those that ran, and of the sum of their AUCs; arrays of any one shape."""


def _area(attempts: Floats, ran: Floats, area: Floats) -> Floats:
    with np.errstate(invalid="ignore"):  # 0 / 0 is NaN: an empty mean
        return area / ran


MEASURES: Mapping[str, Measure] = {
    "reward": lambda attempts, ran, area: (area + FAILED * (attempts - ran)) / attempts,
    "share": lambda attempts, ran, area: ran / attempts,
    "area": _area,
}
"""Measures of attempts; `area` counts running code alone, and is NaN where there is none."""


def measured(measure: Measure, runs: Sequence[Floats]) -> float:
    """Average a measure over all attempts of some runs, given AUCs `[n]` of each (NaN for code that did not run)."""
    every = np.concatenate(runs)
    totals = (len(every), (~np.isnan(every)).sum(), np.nansum(every))
    return float(measure(*(np.asarray(total, dtype=np.float64) for total in totals)))


def interval_of(measure: Measure, runs: Sequence[Floats]) -> Estimate:
    """Return a measure of all attempts together.

    The interval is by bootstrap: seeds are drawn, and of each its attempts. With one seed, only the attempts vary, and
    the interval does not cover other seeds.

    Args:
        measure: Measure, one of the values of `MEASURES`.
        runs: AUCs of attempts by seed, `[n]` each.

    Returns:
        Estimate of the measure. Its value may be NaN, if no code ran; it has no interval then.
    """
    value = measured(measure, runs)
    drawn = measure(*_resampled(runs, np.random.default_rng(_SEED)))
    defined = drawn[~np.isnan(drawn)]
    if not len(defined) or np.isnan(value):
        return Estimate(value, None, None)
    return percentile_interval(value, defined)


def _resampled(runs: Sequence[Floats], rng: np.random.Generator) -> Floats:
    """Draw as many seeds as there are and attempts of them, with replacement; return totals `[3, _RESAMPLES]`."""
    totals = np.zeros((3, _RESAMPLES))
    for _ in runs:
        chosen = rng.integers(len(runs), size=_RESAMPLES)
        for number, run in enumerate(runs):
            rows = np.flatnonzero(chosen == number)
            drawn = run[rng.integers(len(run), size=(len(rows), len(run)))]
            totals[:, rows] += (np.full(len(rows), len(run)), (~np.isnan(drawn)).sum(axis=1), np.nansum(drawn, axis=1))
    return totals


class TableFindings(NamedTuple):
    """The pieces of a table.

    Attributes:
        table: Name of the table.
        preprocessing: Preprocessing of its rows.
        runs: Pieces by method and seed.
        names: Names of the pieces, for repeating a run.
    """

    table: str
    preprocessing: str
    runs: Mapping[str, Mapping[int, Piece]]
    names: Mapping[str, Mapping[int, str]] = {}

    def final_rewards(self, method: str) -> Floats:
        """Return the mean rewards of the last eighth of the attempts by seed, `[n_seeds]`."""
        return np.array([rewards_of(ending(run["areas"])).mean() for run in self.runs[method].values()])

    def lengths(self, method: str) -> Floats:
        """Return mean lengths of programs in the last eighth of the attempts by seed, in characters, `[n_seeds]`."""
        return np.array([np.mean(ending(run["lengths"])) for run in self.runs[method].values()])

    def ends(self, method: str) -> list[Floats]:
        """Return the AUCs at the end, by seed; all attempts of a control, since it does not change."""
        whole = method in CONTROLS
        return [areas_of(run["areas"] if whole else ending(run["areas"])) for run in self.runs[method].values()]

    def bests(self, method: str, of: str) -> list[float]:
        """Return the AUC of the best code by seed, as `"paid"` or on `"fresh"` halves, for seeds that have any."""
        if self.table == GENERATED:  # another table in every episode: no code is the best one
            return []
        best = [run["best"] for run in self.runs[method].values() if run["best"]]
        scores = [code["area"] if of == "paid" else (code["fresh"] or {}).get("mean") for code in best]
        return [float(score) for score in scores if score is not None]

    def to_json(self) -> dict[str, Any]:
        """Return the entry of the report."""
        methods = {
            method: {
                "runs": {str(seed): name for seed, name in self.names.get(method, {}).items()},
                "seeds": list(runs),
                "end": {name: rounded(interval_of(measure, self.ends(method))) for name, measure in MEASURES.items()},
                "best": {of: [round(score, 4) for score in self.bests(method, of)] for of in ("paid", "fresh")},
                "length": round(float(self.lengths(method).mean()), 1),
            }
            for method, runs in self.runs.items()
            if runs
        }
        return {"preprocessing": self.preprocessing, "methods": methods}


def coding_tables(content: Mapping[str, Any]) -> Iterator[Table]:
    """Yield a table for each table of data on which code was written, from the JSON file of a study."""
    measures = {"reward": "reward", "share": "share that runs", "area": "AUC of what runs"}
    head = ("", "seeds", *measures.values(), "characters", "best, as paid", "best, fresh halves")
    for name, table in content["tables"].items():
        rows = []
        for method, summary in table["methods"].items():
            best = (", ".join(f"{value:.4f}" for value in summary["best"][of]) or "none" for of in ("paid", "fresh"))
            ends = (interval_cell(summary["end"][measure]) for measure in measures)
            rows.append((method, str(len(summary["seeds"])), *ends, f"{summary['length']:.0f}", *best))
        remark = f"{table['preprocessing']} preprocessing. Id: {identifier(content['study'], name)}."
        yield Table(name, head, rows, remark)
