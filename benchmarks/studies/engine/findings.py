"""Findings of learning curves: areas and final returns with intervals, orderings, and missing runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.reports.statistics import SETTLED, difference, holm, probability_of_improvement, rank_test
from benchmarks.runner.errors import NotTunedError
from benchmarks.studies.engine.pieces import Piece, Pieces
from benchmarks.studies.engine.tuning import Comparison, area
from lang_envs.report.statistics import Curve, Estimate, Floats, estimate, learning_curve

MEASURES = {"area": "area under the curve", "final": "final return"}
"""Methods are compared by the mean height of the learning curve, and by its last point."""


class Claim(NamedTuple):
    """A claim of the paper: the first method above the second, or at least level with it.

    Attributes:
        better: The first.
        worse: The second.
        strict: Whether level is not enough.
    """

    better: str
    worse: str
    strict: bool = True


class Finding(NamedTuple):
    """The final runs of one method: the learning rate chosen on the tuning seeds, and pieces by seed."""

    learning_rate: float
    runs: dict[int, Piece]

    def scores(self, measure: str) -> Floats:
        """By seed, `[n_seeds]`."""
        return np.array([area(one) if measure == "area" else one["returns"][-1] for one in self.runs.values()])

    @property
    def curve(self) -> Curve:
        """The learning curve over seeds."""
        return learning_curve(
            {seed: list(zip(one["steps"], one["returns"], strict=True)) for seed, one in self.runs.items()}
        )

    def to_json(self, rates: Sequence[float]) -> dict[str, Any]:
        """For the report."""
        curve, runs = self.curve, self.runs.values()
        return {
            "learning_rate": self.learning_rate,
            "at_edge_of_rates": self.learning_rate in (rates[0], rates[-1]),
            "seeds": list(self.runs),
            "untrained": round(float(np.mean([one["returns"][0] for one in runs])), 4),
            **{measure: rounded(estimate([self.scores(measure)]), 6) for measure in MEASURES},
            **{f"{measure}s": self.scores(measure).round(4).tolist() for measure in MEASURES},
            "final_success": round(float(np.mean([one["success"][-1] for one in runs])), 4),
            "largest_first_ratio_error": largest([one["largest_first_ratio_error"] for one in runs]),
            "cpu_seconds": round(float(np.mean([one["cpu_seconds"] for one in runs])), 1),
            "curve": {name: getattr(curve, name).round(4).tolist() for name in Curve._fields},
        }


class Findings(NamedTuple):
    """The pieces of a comparison.

    Attributes:
        comparison: Task, methods and tuning.
        methods: Of those that have final runs.
        missing: Jobs that have yet to be run.
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

    def order(self, measure: str) -> dict[str, Estimate]:
        """Estimates by method, best first."""
        values = {name: estimate([one.scores(measure)]) for name, one in self.methods.items()}
        return dict(sorted(values.items(), key=lambda pair: pair[1].value, reverse=True))

    def to_json(self, claims: Sequence[Claim]) -> dict[str, Any]:
        """Convert to JSON for the report: the first method against each other one, and the claims."""
        task, tuning = self.comparison.task, self.comparison.tuning
        first, *others = (arm.name for arm in self.comparison.arms)
        pairs = dict.fromkeys([*((first, other) for other in others), *((one.better, one.worse) for one in claims)])
        return {
            "title": self.comparison.title,
            "task": task.name,
            "env": task.env_id,
            "steps": task.steps,
            "evaluation": {"every": task.evaluation.every, "episodes": task.evaluation.episodes},
            "rates": list(tuning.rates),
            "tuning_seeds": list(tuning.seeds),
            "tuned_on": (task.tuned_on or task).name,
            "tuning": {
                name: {f"{rate:g}": [round(one, 4) for one in areas] for rate, areas in rates.items()}
                for name, rates in self.tuning.items()
            },
            "missing": self.missing,
            "methods": {name: one.to_json(sorted(self.tuning[name])) for name, one in self.methods.items()},
            "order": {measure: list(self.order(measure)) for measure in MEASURES},
            "improvement": [
                {
                    "first": pair[0],
                    "second": pair[1],
                    **{measure: self._improvement(pair, measure) for measure in MEASURES},
                }
                for pair in pairs
                if set(pair) <= self.methods.keys()
            ],
        }

    def _improvement(self, pair: tuple[str, str], measure: str) -> dict[str, float | None]:
        """Probability that a run of the first does better, and that equal methods differ by chance as much."""
        first, second = (self.methods[name].scores(measure) for name in pair)
        probability = rounded(probability_of_improvement([first], [second]), 6)
        return {**probability, "chance": float(f"{rank_test(first, second):.3g}")}


def primary(findings: Sequence[Findings], claims: Sequence[Claim], seeds: int) -> list[dict[str, Any]]:
    """Compare areas by the rules of docs/benchmarks/protocol.md: exact rank tests, corrected by Holm over all rows.

    Args:
        findings: Of the tasks.
        claims: Pairs of methods; each is compared on each task. The correction counts pairs without runs too.
        seeds: Seeds for a verdict; with fewer there is none.
    """
    rows, planned = [], len(findings) * len(claims)
    for one in findings:
        for claim in claims:
            if {claim.better, claim.worse} <= one.methods.keys():
                first, second = (one.methods[name].scores("area") for name in (claim.better, claim.worse))
                rows.append((one, claim, first, second, rank_test(first, second)))
    found = []
    for (one, claim, first, second, p), corrected in zip(rows, holm([row[-1] for row in rows], planned), strict=True):
        effect = difference(first, second)
        enough = min(len(first), len(second)) >= seeds
        settled = "supported" if effect.value > 0 else "contradicted"
        found.append(
            {
                "task": one.comparison.task.name,
                "first": claim.better,
                "second": claim.worse,
                "seeds": [len(first), len(second)],
                "difference": rounded(effect, 6),
                "probability": rounded(probability_of_improvement([first], [second]), 6),
                "p": float(f"{p:.3g}"),
                "corrected_p": float(f"{corrected:.3g}"),
                "verdict": "too few seeds" if not enough else settled if corrected < SETTLED else "not settled",
            }
        )
    return found


def rounded(one: Estimate, digits: int = 4) -> dict[str, float | None]:
    """Round for JSON: unknown values and NaN are None."""
    return {
        name: None if value is None or np.isnan(value) else round(float(value), digits)
        for name, value in one._asdict().items()
    }


def largest(errors: Sequence[float | None]) -> float | None:
    """Return the largest of the errors; None if one of them is no number."""
    known = [one for one in errors if one is not None]
    return max(known) if len(known) == len(errors) else None


def find(comparison: Comparison, pieces: Pieces, seeds: Sequence[int]) -> Findings:
    """Collect the pieces of a comparison."""
    tuning = comparison.tuning.scores(pieces)
    try:
        rates = comparison.tuning.chosen(pieces)
    except NotTunedError:
        done = sum(len(areas) for one in tuning.values() for areas in one.values())
        missing = [f"{len(comparison.tuning.jobs(pieces)) - done} tuning runs, and all final runs"]
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


def sentences(findings: Sequence[Findings], claims: Sequence[Claim]) -> dict[str, list[str]]:
    """Write findings in sentences: orderings unlike the paper's, orderings like it, all orderings, missing runs."""
    found: dict[str, list[str]] = {"differs": [], "agrees": [], "orderings": [], "missing": []}
    for one in findings:
        for claim in claims:
            for measure, name in MEASURES.items():
                scores = {method: finding.scores(measure) for method, finding in one.methods.items()}
                judge(f"{one.where}, {name}", claim, scores, found)
        if len(one.methods) > 1:
            for measure, name in MEASURES.items():
                parts = (
                    f"{method} {value.value:.3f}{_interval(value, 3)}" for method, value in one.order(measure).items()
                )
                found["orderings"].append(f"{one.where}, by {name}: {' > '.join(parts)}.")
        found["missing"] += [f"{one.where}: {what}." for what in one.missing]
    return found


def judge(where: str, claim: Claim, scores: Mapping[str, Floats], found: dict[str, list[str]]) -> None:
    """Add to `agrees` or `differs` whether a claim holds of the values as they are, and how far to trust it.

    Args:
        where: Beginning of the sentence.
        claim: To be judged, if both methods have scores.
        scores: By method, `[n_seeds]` each.
        found: Sentences.
    """
    if not {claim.better, claim.worse} <= scores.keys():
        return
    first, second = scores[claim.better], scores[claim.worse]
    better, worse = estimate([first]).value, estimate([second]).value
    holds = better > worse or (better == worse and not claim.strict)
    verdict = "above" if better > worse else "level with" if better == worse else "below"
    probability, chance = probability_of_improvement([first], [second]), rank_test(first, second)
    opposed = (better - worse) * (probability.value - 0.5) < 0
    apart = ", so that means and pairs of seeds disagree" if opposed else ""
    doubt = "" if chance < SETTLED else f", which {len(first)} and {len(second)} seeds do not settle (p {chance:.2f})"
    found["agrees" if holds else "differs"].append(
        f"{where}: {claim.better} ({better:.3f}) is {verdict} {claim.worse} ({worse:.3f}); "
        f"probability that it does better {probability.value:.2f}{_interval(probability, 2)}{apart}{doubt}."
    )


def _interval(one: Estimate, digits: int) -> str:
    return "" if one.low is None else f" [{one.low:.{digits}f}, {one.high:.{digits}f}]"


def lines(found: Mapping[str, Sequence[str]]) -> list[str]:
    """For the terminal; where the paper is contradicted stands first."""
    heads = {
        "differs": "In another order than in the paper:",
        "agrees": "In the paper's order:",
        "orderings": "Orderings:",
        "missing": "Missing:",
    }
    return [line for key, head in heads.items() if found.get(key) for line in (head, *(f"  {x}" for x in found[key]))]
