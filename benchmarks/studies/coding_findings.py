"""What the runs of `datasci` say, at equal numbers of evaluations: reward, share and AUC of what runs, best code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.runner.statistics import LEVEL, Estimate
from benchmarks.studies.coding import CONTROLS, FIRST_ROLLOUT, LEARNERS, ending
from benchmarks.studies.findings import largest
from benchmarks.studies.pieces import Piece

__all__ = [
    "CLAIMS",
    "MEASURES",
    "WANTED_SHARE",
    "TableFindings",
    "Verdict",
    "areas_of",
    "best_so_far",
    "interval_of",
    "measured",
    "paid",
    "verdicts",
]

Floats = NDArray[np.float64]
FAILED = -1.0
"""Reward of code that does not run, as published."""
WANTED_SHARE = 0.9
_RESAMPLES, _SEED = 1_000, 0
CLAIMS = ("reward rises", f"share above {WANTED_SHARE}", "AUC rises", "best-of-N beaten")


class Verdict(StrEnum):
    """What the runs say of a claim. Of one seed it holds of that seed: its interval is that of attempts."""

    YES = "yes"
    NO = "no"
    UNSETTLED = "not settled"
    UNKNOWN = "unknown"


def areas_of(areas: Sequence[float | None]) -> Floats:
    """As numbers, NaN where the code did not run."""
    return np.array([np.nan if one is None else one for one in areas], dtype=np.float64)


def paid(areas: Sequence[float | None]) -> Floats:
    """Rewards of attempts, `[n]`."""
    return np.nan_to_num(areas_of(areas), nan=FAILED)


class Totals(NamedTuple):
    """Sums over attempts, arrays of any one shape.

    Attributes:
        attempts: How many.
        ran: How many of them ran.
        area: Sum of the AUCs of those.
    """

    attempts: Floats
    ran: Floats
    area: Floats


Measure = Callable[[Totals], Floats]


def _reward(of: Totals) -> Floats:
    return (of.area + FAILED * (of.attempts - of.ran)) / of.attempts


def _share(of: Totals) -> Floats:
    return of.ran / of.attempts


def _area(of: Totals) -> Floats:
    with np.errstate(invalid="ignore"):  # 0 / 0 is NaN: of nothing there is no mean
        return of.area / of.ran


MEASURES: Mapping[str, Measure] = {"reward": _reward, "share": _share, "area": _area}
"""What attempts are measured by; `area` is of running code alone, NaN where there is none."""


def measured(measure: Measure, runs: Sequence[Floats]) -> float:
    """A measure of all attempts of some runs together, from AUCs `[n]` of each; NaN for code that did not run."""
    every = np.concatenate(runs)
    totals = (np.array(len(every)), (~np.isnan(every)).sum(), np.nansum(every))
    return float(measure(Totals(*(np.asarray(one, dtype=np.float64) for one in totals))))


def interval_of(measure: Measure, runs: Sequence[Floats], other: Sequence[Floats] | None = None) -> Estimate:
    """A measure of all attempts together, or how much more it is than that of others.

    The interval is by bootstrap: seeds are drawn, and of each its attempts. Where there is one seed, it is the attempts
    that vary, and the interval says nothing of other seeds.

    Args:
        measure: Of `MEASURES`.
        runs: AUCs of attempts by seed, `[n]` each.
        other: Likewise, to be taken off.

    Returns:
        The value may be NaN, where nothing ran; there are no ends then.
    """
    rng = np.random.default_rng(_SEED)
    value = measured(measure, runs) - (0.0 if other is None else measured(measure, other))
    drawn = measure(_resampled(runs, rng))
    if other is not None:
        drawn = drawn - measure(_resampled(other, rng))
    known = drawn[~np.isnan(drawn)]
    if not len(known) or np.isnan(value):
        return Estimate(value, None, None)
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(known, (tail, 1 - tail))
    return Estimate(value, float(low), float(high))


def _resampled(runs: Sequence[Floats], rng: np.random.Generator) -> Totals:
    """Totals of as many seeds as there are, and attempts of them, drawn with replacement; `[_RESAMPLES]` each."""
    totals = np.zeros((3, _RESAMPLES))
    for _ in runs:
        chosen = rng.integers(len(runs), size=_RESAMPLES)
        for number, run in enumerate(runs):
            rows = np.flatnonzero(chosen == number)
            drawn = run[rng.integers(len(run), size=(len(rows), len(run)))]
            totals[:, rows] += (np.full(len(rows), len(run)), (~np.isnan(drawn)).sum(axis=1), np.nansum(drawn, axis=1))
    return Totals(*totals)


def best_so_far(areas: Sequence[float | None]) -> Floats:
    """The best AUC after each attempt, `[n]`; NaN before any code has run."""
    found: Floats = np.fmax.accumulate(areas_of(areas))
    return found


class TableFindings(NamedTuple):
    """What the pieces say of a table.

    Attributes:
        table: Its name.
        preprocessing: "published" where its figures may stand beside published ones.
        runs: Pieces by method and seed.
    """

    table: str
    preprocessing: str
    runs: Mapping[str, Mapping[int, Piece]]

    def ends(self, method: str) -> list[Floats]:
        """AUCs at the end, by seed: of a control all attempts, since nothing changes in it."""
        whole = method in CONTROLS
        return [areas_of(one["areas"] if whole else ending(one["areas"])) for one in self.runs[method].values()]

    def rise(self, method: str, measure: str) -> Estimate | None:
        """How much more at the end than the untrained coder; None where one of them was not run."""
        if not self.runs[method] or not self.runs["untrained"]:
            return None
        return interval_of(MEASURES[measure], self.ends(method), self.ends("untrained"))

    def bests(self, method: str, where: str) -> dict[int, float]:
        """AUC of the best code by seed, as it was `"paid"` for or on `"fresh"` halves; of seeds that have any."""
        found = {}
        for seed, one in self.runs[method].items():
            best = one["best"] or {}
            value = best.get("area") if where == "paid" else (best.get("fresh") or {}).get("mean")
            if value is not None:
                found[seed] = float(value)
        return found

    def found_at(self, method: str) -> list[int]:
        """At which attempt the best code of each run was, from 1; of runs that have any."""
        return [one["best"]["attempt"] + 1 for one in self.runs[method].values() if one["best"]]

    def beats(self, method: str, control: str, where: str) -> tuple[int, int] | None:
        """In how many of the common seeds the best code is better than the control's, and of how many; None of none.

        A run without any code that runs there has lost, against whatever else.
        """
        ours, theirs = self.bests(method, where), self.bests(control, where)
        common = self.runs[method].keys() & self.runs[control].keys()
        won = sum(ours.get(seed, -np.inf) > theirs.get(seed, -np.inf) for seed in common)
        return (won, len(common)) if common else None

    def claims(self, method: str) -> dict[str, Verdict]:
        """What is claimed of a learner, by `CLAIMS`."""
        share = interval_of(_share, self.ends(method)) if self.runs[method] else None
        best = self.beats(method, "untrained", "fresh")
        found = (
            _judged(self.rise(method, "reward"), 0.0),
            _judged(share, WANTED_SHARE),
            _judged(self.rise(method, "area"), 0.0),
            Verdict.UNKNOWN if best is None else _counted(*best),
        )
        return dict(zip(CLAIMS, found, strict=True))

    def told(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "preprocessing": self.preprocessing,
            "methods": {method: self._told(method) for method, runs in self.runs.items() if runs},
        }

    def _told(self, method: str) -> dict[str, Any]:
        runs = self.runs[method]
        told: dict[str, Any] = {
            "seeds": list(runs),
            "end": {name: _rounded(interval_of(measure, self.ends(method))) for name, measure in MEASURES.items()},
            "best": {
                where: [round(one, 4) for one in self.bests(method, where).values()] for where in ("paid", "fresh")
            },
            "found_at": self.found_at(method),
            "distinct": [one["distinct"] for one in runs.values()],
            "seconds": [one["seconds"] for one in runs.values()],
        }
        if method not in LEARNERS:
            return told
        rises = {name: self.rise(method, name) for name in MEASURES}
        told["more_than_untrained"] = {name: None if one is None else _rounded(one) for name, one in rises.items()}
        told["best_against"] = {
            control: {where: self.beats(method, control, where) for where in ("paid", "fresh")} for control in CONTROLS
        }
        told["claims"] = self.claims(method)
        told["largest_first_ratio_error"] = largest([one["largest_first_ratio_error"] for one in runs.values()])
        return told


def _judged(one: Estimate | None, wanted: float) -> Verdict:
    """Whether a value is above what is wanted: its whole interval, or none of it."""
    if one is None:
        return Verdict.UNKNOWN
    if one.low is None or one.high is None:
        return Verdict.NO  # nothing ran
    if one.low > wanted:
        return Verdict.YES
    return Verdict.NO if one.value <= wanted else Verdict.UNSETTLED


def _counted(won: int, of: int) -> Verdict:
    """All seeds, or none: anything between is no answer."""
    return {of: Verdict.YES, 0: Verdict.NO}.get(won, Verdict.UNSETTLED)


def _rounded(one: Estimate) -> dict[str, float | None]:
    return {
        name: None if value is None or np.isnan(value) else round(float(value), 4)
        for name, value in one._asdict().items()
    }


def verdicts(found: Sequence[TableFindings]) -> list[str]:
    """Plain sentences about every claim, those that do not hold first."""
    lines: list[tuple[bool, str]] = []
    for method in LEARNERS:
        by_table = {one.table: one.claims(method) for one in found}
        for claim in CLAIMS:
            told = {
                said: [
                    f"{one.table} ({_seeds(one, method, claim)})" for one in found if by_table[one.table][claim] is said
                ]
                for said in Verdict
                if said is not Verdict.UNKNOWN
            }
            if any(told.values()):
                parts = "; ".join(f"{said} on {', '.join(names)}" for said, names in told.items() if names)
                lines.append((not told[Verdict.NO] and not told[Verdict.UNSETTLED], f"{method}, {claim}: {parts}."))
        firsts = [{said[claim] for claim in CLAIMS[:3]} for said in by_table.values()]
        known = [said for said in firsts if Verdict.UNKNOWN not in said or said & {Verdict.NO, Verdict.UNSETTLED}]
        whole = sum(said == {Verdict.YES} for said in known)
        if known:
            lines.append((whole >= 3, f"{method}, the first three together: on {whole} of {len(known)} tables."))
        lines += [(False, line) for line in _early(found, method)]
    return [told for _, told in sorted(lines, key=lambda one: one[0])]


def _seeds(one: TableFindings, method: str, claim: str) -> str:
    """How many seeds a claim is judged by, of the learner and of what it is compared with."""
    ours, theirs = set(one.runs[method]), set(one.runs["untrained"])
    if claim == CLAIMS[-1]:
        ours = theirs = ours & theirs
    said = f"{len(ours)} seed{'' if len(ours) == 1 else 's'}"
    compared = claim != CLAIMS[1] and len(ours) != len(theirs)
    return f"{said} against {len(theirs)}" if compared else said


def _early(found: Sequence[TableFindings], method: str) -> list[str]:
    """What is to be known of the best code before it is called learned."""
    every = [number for one in found for number in one.found_at(method)]
    early = sum(number <= FIRST_ROLLOUT for number in every)
    return [f"{method}, best code: written before the first update in {early} of {len(every)} runs."] if early else []
