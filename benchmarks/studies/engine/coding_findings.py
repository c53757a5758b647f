"""Findings of runs on code, at equal numbers of evaluations: reward, share and AUC of code that runs, best code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.studies.engine.findings import largest, rounded
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


def interval_of(measure: Measure, runs: Sequence[Floats], other: Sequence[Floats] | None = None) -> Estimate:
    """Return a measure of all attempts together, or its excess over that of other runs.

    The interval is by bootstrap: seeds are drawn, and of each its attempts. With one seed, only the attempts vary, and
    the interval does not cover other seeds.

    Args:
        measure: Measure, one of the values of `MEASURES`.
        runs: AUCs of attempts by seed, `[n]` each.
        other: AUCs of other attempts by seed, whose measure is subtracted.

    Returns:
        Estimate of the measure, or of the difference. Its value may be NaN, if no code ran; it has no interval then.
    """
    rng = np.random.default_rng(_SEED)
    value = measured(measure, runs) - (0.0 if other is None else measured(measure, other))
    drawn = measure(*_resampled(runs, rng))
    if other is not None:
        drawn = drawn - measure(*_resampled(other, rng))
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
        preprocessing: "published" where its figures may stand beside published ones.
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

    def rise(self, method: str, measure: str) -> Estimate | None:
        """Return the increase over the untrained model at the end; None where one of them was not run."""
        if not self.runs[method] or not self.runs[CONTROLS[0]]:
            return None
        return interval_of(MEASURES[measure], self.ends(method), self.ends(CONTROLS[0]))

    def bests(self, method: str, where: str) -> dict[int, float]:
        """Return the AUC of the best code by seed, as `"paid"` or on `"fresh"` halves, for seeds that have any."""
        best_of: dict[int, float] = {}
        if self.table == GENERATED:  # another table in every episode: no code is the best one
            return best_of
        for seed, run in self.runs[method].items():
            best = run["best"] or {}
            value = best.get("area") if where == "paid" else (best.get("fresh") or {}).get("mean")
            if value is not None:
                best_of[seed] = float(value)
        return best_of

    def found_at(self, method: str) -> list[int]:
        """Attempt number of the best code of each run, from 1; of runs that have any."""
        return [run["best"]["attempt"] + 1 for run in self.runs[method].values() if run["best"]]

    def beats(self, method: str, control: str, where: str) -> tuple[int, int] | None:
        """Return the number of common seeds whose best code beats the control's, and of all common seeds.

        None if there are no common seeds, or no scores on fresh halves where these are wanted.

        A run without any code that runs there has lost, against any other.
        """
        bests_of_method, bests_of_control = self.bests(method, where), self.bests(control, where)
        common = self.runs[method].keys() & self.runs[control].keys()
        bests = [run["best"] for name in (method, control) for run in self.runs[name].values() if run["best"]]
        if where == "fresh" and not any(best.get("fresh") for best in bests):
            return None  # scores of different tables are no best code
        won = sum(bests_of_method.get(seed, -np.inf) > bests_of_control.get(seed, -np.inf) for seed in common)
        return (won, len(common)) if common else None

    def to_json(self) -> dict[str, Any]:
        """Return the entry of the report."""
        methods = {method: self._method(method) for method, runs in self.runs.items() if runs}
        return {"preprocessing": self.preprocessing, "methods": methods}

    def _method(self, method: str) -> dict[str, Any]:
        runs, places = self.runs[method], ("paid", "fresh")
        content: dict[str, Any] = {
            "runs": {str(seed): name for seed, name in self.names.get(method, {}).items()},
            "seeds": list(runs),
            "end": {name: rounded(interval_of(measure, self.ends(method))) for name, measure in MEASURES.items()},
            "best": {where: [round(score, 4) for score in self.bests(method, where).values()] for where in places},
            "found_at": self.found_at(method),
            "distinct": [run["distinct"] for run in runs.values()],
            "seconds": [run["seconds"] for run in runs.values()],
            "length": round(float(self.lengths(method).mean()), 1),
        }
        if method in CONTROLS:
            return content
        rises = {name: self.rise(method, name) for name in MEASURES}
        content["more_than_untrained"] = {name: None if rise is None else rounded(rise) for name, rise in rises.items()}
        content["best_against"] = {
            control: {where: self.beats(method, control, where) for where in places}
            for control in CONTROLS
            if control in self.runs
        }
        content["largest_first_ratio_error"] = largest([run["largest_first_ratio_error"] for run in runs.values()])
        return content


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
        if cited := ", ".join(f"{method} {value:.4f}" for method, value in table["published"].items()):
            remark += f" Published on the same arrays, each by its own protocol: {cited}."
        yield Table(name, head, rows, remark)
