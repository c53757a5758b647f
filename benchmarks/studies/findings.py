"""What the runs of a comparison say: areas and final returns with intervals, orderings, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.runner.statistics import (
    Curve,
    Estimate,
    Floats,
    estimate,
    learning_curve,
    probability_of_improvement,
    rank_test,
)
from benchmarks.studies.arms import RATES, TUNING_SEEDS, Comparison, area
from benchmarks.studies.errors import NotTunedError
from benchmarks.studies.pieces import Piece, Pieces

__all__ = ["MEASURES", "SETTLED", "Claim", "Finding", "Findings", "compared", "find", "largest", "says", "told_lines"]

MEASURES = ("area", "final")
"""What methods are compared by: the mean height of the learning curve, and its last point."""
SETTLED = 0.05
"""A difference that equal methods show more rarely than this is more than chance."""


class Claim(NamedTuple):
    """What the paper has: the first method above the second, or at least level with it.

    Attributes:
        better: The first.
        worse: The second.
        strict: Whether level is not enough.
    """

    better: str
    worse: str
    strict: bool = True

    @property
    def methods(self) -> frozenset[str]:
        """Both."""
        return frozenset((self.better, self.worse))


class Finding(NamedTuple):
    """What the final runs of one method say.

    Attributes:
        learning_rate: Chosen on the tuning seeds.
        runs: Pieces by seed.
    """

    learning_rate: float
    runs: dict[int, Piece]

    def scores(self, measure: str) -> Floats:
        """By seed, `[n_seeds]`."""
        score = area if measure == "area" else (lambda piece: piece["returns"][-1])
        return np.array([score(piece) for piece in self.runs.values()])

    @property
    def curve(self) -> Curve:
        """The learning curve over seeds."""
        return learning_curve(
            {seed: list(zip(one["steps"], one["returns"], strict=True)) for seed, one in self.runs.items()}
        )

    def told(self) -> dict[str, Any]:
        """As JSON."""
        curve = self.curve
        return {
            "learning_rate": self.learning_rate,
            "at_edge_of_rates": self.learning_rate in (RATES[0], RATES[-1]),
            "seeds": list(self.runs),
            "untrained": round(float(np.mean([one["returns"][0] for one in self.runs.values()])), 4),
            **{measure: _told(estimate([self.scores(measure)])) for measure in MEASURES},
            **{f"{measure}s": self.scores(measure).round(4).tolist() for measure in MEASURES},
            "final_success": round(float(np.mean([one["success"][-1] for one in self.runs.values()])), 4),
            "largest_first_ratio_error": largest([one["largest_first_ratio_error"] for one in self.runs.values()]),
            "cpu_seconds": round(float(np.mean([one["cpu_seconds"] for one in self.runs.values()])), 1),
            "curve": {name: getattr(curve, name).round(4).tolist() for name in Curve._fields},
        }


class Findings(NamedTuple):
    """What the pieces say of a comparison.

    Attributes:
        comparison: Which.
        methods: Of those that have final runs.
        missing: What has yet to be run.
        tuning: Areas of the tuning runs.
    """

    comparison: Comparison
    methods: dict[str, Finding]
    missing: list[str]
    tuning: dict[str, dict[float, list[float]]]

    @property
    def where(self) -> str:
        """For sentences."""
        return f"{self.comparison.task.env_id}, {self.comparison.title}"

    def order(self, measure: str) -> list[str]:
        """Methods, best first."""
        values = {name: estimate([one.scores(measure)]).value for name, one in self.methods.items()}
        return sorted(values, key=values.__getitem__, reverse=True)

    def improvement(self, first: str, second: str, measure: str) -> Estimate:
        """Probability that a run of the first does better than one of the second."""
        scores = [[self.methods[name].scores(measure)] for name in (first, second)]
        return probability_of_improvement(*scores)

    def chance(self, first: str, second: str, measure: str) -> float:
        """How probable it is that equal methods differ by chance as much as these two do; see `rank_test`."""
        return rank_test(*(self.methods[name].scores(measure) for name in (first, second)))

    def told(self, claims: Sequence[Claim]) -> dict[str, Any]:
        """As JSON."""
        task = self.comparison.task
        return {
            "title": self.comparison.title,
            "task": task.name,
            "env": task.env_id,
            "steps": task.steps,
            "evaluation": {"every": task.evaluation.every, "episodes": task.evaluation.episodes},
            "rates": list(RATES),
            "tuning_seeds": list(TUNING_SEEDS),
            "tuned_on": (task.tuned_on or task).name,
            "tuning": {
                name: {f"{rate:g}": [round(one, 4) for one in areas] for rate, areas in rates.items()}
                for name, rates in self.tuning.items()
            },
            "missing": self.missing,
            "methods": {name: one.told() for name, one in self.methods.items()},
            "order": {measure: self.order(measure) for measure in MEASURES},
            "improvement": [
                {
                    "first": first,
                    "second": second,
                    **{
                        measure: {
                            **_told(self.improvement(first, second, measure)),
                            "chance": round(self.chance(first, second, measure), 4),
                        }
                        for measure in MEASURES
                    },
                }
                for first, second in _pairs(self, claims)
            ],
        }


def _told(one: Estimate) -> dict[str, float | None]:
    return {name: None if value is None else round(value, 6) for name, value in one._asdict().items()}


def _pairs(found: Findings, claims: Sequence[Claim]) -> Iterator[tuple[str, str]]:
    """The first method against each other, and what is claimed."""
    names = [arm.name for arm in found.comparison.arms]
    wanted = dict.fromkeys([*((names[0], name) for name in names[1:]), *((one.better, one.worse) for one in claims)])
    yield from ((first, second) for first, second in wanted if {first, second} <= found.methods.keys())


def largest(errors: Sequence[float | None]) -> float | None:
    """The largest of the errors; None if one of them is no number."""
    known = [one for one in errors if one is not None]
    return max(known) if len(known) == len(errors) else None


def find(comparison: Comparison, pieces: Pieces, seeds: Sequence[int]) -> Findings:
    """What there is of a comparison."""
    tuning = comparison.tuning_areas(pieces)
    try:
        rates = comparison.chosen_rates(pieces)
    except NotTunedError:
        done = sum(len(areas) for one in tuning.values() for areas in one.values())
        missing = [f"{len(comparison.tuning_jobs()) - done} tuning runs, and all final runs"]
        return Findings(comparison, {}, missing, tuning)
    methods, missing = {}, []
    for arm in comparison.arms:
        runs = {seed: pieces.find(comparison.final_job(arm, rates[arm.name], seed)) for seed in seeds}
        there = {seed: piece for seed, piece in runs.items() if piece is not None}
        if there:
            methods[arm.name] = Finding(rates[arm.name], there)
        if len(there) < len(runs):
            missing.append(f"{arm.name}, seeds {', '.join(str(seed) for seed in runs if seed not in there)}")
    return Findings(comparison, methods, missing if methods else ["all final runs"], tuning)


# ---------------------------------------------------------------------- in words


def says(findings: Sequence[Findings], claims: Sequence[Claim]) -> dict[str, list[str]]:
    """What was found, in sentences: where the ordering is not the paper's, where it is, all orderings, what is missing.

    Args:
        findings: Of all comparisons.
        claims: What the paper says.
    """
    told: dict[str, list[str]] = {"differs": [], "agrees": [], "orderings": [], "missing": []}
    for one in findings:
        for claim in claims:
            for measure in MEASURES if claim.methods <= one.methods.keys() else ():
                holds, sentence = _compared(one, claim, measure)
                told["agrees" if holds else "differs"].append(sentence)
        if len(one.methods) > 1:
            told["orderings"] += [f"{one.where}, by {_NAMES[name]}: {_ordered(one, name)}." for name in MEASURES]
        told["missing"] += [f"{one.where}: {what}." for what in one.missing]
    return told


_NAMES = {"area": "area under the curve", "final": "final return"}


def _compared(one: Findings, claim: Claim, measure: str) -> tuple[bool, str]:
    scores = {name: one.methods[name].scores(measure) for name in claim.methods}
    return compared(f"{one.where}, {_NAMES[measure]}", claim, scores)


def compared(where: str, claim: Claim, scores: Mapping[str, Floats]) -> tuple[bool, str]:
    """Whether a claim holds of the values as they are, and a sentence that says how far to trust it.

    Args:
        where: What is compared, for the sentence.
        claim: What should hold.
        scores: By method, `[n_seeds]` each.
    """
    first, second = (scores[name] for name in (claim.better, claim.worse))
    better, worse = estimate([first]).value, estimate([second]).value
    holds = better > worse or (better == worse and not claim.strict)
    verdict = "above" if better > worse else "level with" if better == worse else "below"
    probability, chance = probability_of_improvement([first], [second]), rank_test(first, second)
    interval = "" if probability.low is None else f" [{probability.low:.2f}, {probability.high:.2f}]"
    opposed = (better - worse) * (probability.value - 0.5) < 0
    apart = ", so that means and pairs of seeds disagree" if opposed else ""
    doubt = "" if chance < SETTLED else f", which {len(first)} and {len(second)} seeds do not settle (p {chance:.2f})"
    return holds, (
        f"{where}: {claim.better} ({better:.3f}) is {verdict} {claim.worse} ({worse:.3f}); "
        f"probability that it does better {probability.value:.2f}{interval}{apart}{doubt}."
    )


def _ordered(one: Findings, measure: str) -> str:
    parts = []
    for name in one.order(measure):
        value = estimate([one.methods[name].scores(measure)])
        interval = "" if value.low is None else f" [{value.low:.3f}, {value.high:.3f}]"
        parts.append(f"{name} {value.value:.3f}{interval}")
    return " > ".join(parts)


def told_lines(told: Mapping[str, Sequence[str]]) -> list[str]:
    """For the terminal; where the paper is contradicted stands first."""
    heads = {
        "differs": "In another order than in the paper:",
        "agrees": "In the paper's order:",
        "orderings": "Orderings:",
        "missing": "Missing:",
    }
    return [line for key, head in heads.items() if told.get(key) for line in (head, *(f"  {one}" for one in told[key]))]
