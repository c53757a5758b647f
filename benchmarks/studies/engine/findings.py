"""Findings of learning curves: areas and last returns with intervals, planned comparisons, and missing runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from benchmarks.errors import NotTunedError
from benchmarks.studies.engine.pieces import Piece, Pieces
from benchmarks.studies.engine.tuning import LEARNED_SHARE, Arguments, Comparison, area
from lang_bench.reports.rank_tests import SETTLED, difference, holm, rank_test
from lang_envs.report.statistics import Curve, Estimate, Floats, estimate, learning_curve, mean

AREAS = "difference of mean areas"
"""Measure of the effect of most rows."""
EFFECTS = {"area": AREAS, "success": f"{AREAS} of success", "final": "difference of mean last returns"}
"""Measures of effects by that of a run, see `Finding.scores`."""
MEASURES = {"area": "area under the curve", "final": "last return"}
"""Measures by name: methods are compared by the mean height of the learning curve; its last point is shown too."""
NEAR_OPTIMUM = 0.95
"""Share of the optimal return whose first evaluation is reported."""


class Prediction(StrEnum):
    """The predicted sign of a difference."""

    HIGHER = "higher"
    LOWER = "lower"
    NOT_SETTLED = "not settled"


class Verdict(StrEnum):
    """The answer to a planned comparison: the first method above the second."""

    SUPPORTED = "supported"
    CONTRADICTED = "contradicted"
    NOT_SETTLED = "not settled"
    NOT_LEARNED = "baseline did not learn"
    TOO_FEW = "too few seeds"
    UNTRIED = "settings untried"
    AT_FLOOR = "at the floor"
    MISSING = "not run yet"


class Planned(NamedTuple):
    """A primary comparison of docs/benchmarks/protocol.md: the areas of two methods on some tasks.

    Attributes:
        first: Method that is claimed to be better.
        second: Method it is compared with, the baseline.
        prediction: Prediction written before the run.
        tasks: Names of tasks; all tasks of the study if empty.
        claim: Claim of the paper that is tested; empty for one of our own.
        gated: Whether there is no verdict if the baseline does not learn; False where its failure is claimed.
        measure: Measure of a run, see `Finding.scores`.
    """

    first: str
    second: str
    prediction: Prediction
    tasks: tuple[str, ...] = ()
    claim: str = ""
    gated: bool = True
    measure: str = "area"


class Trend(NamedTuple):
    """A primary comparison of several settings: the rank correlation (Spearman) of a number and the area.

    Attributes:
        title: Title in tables.
        levels: Number of each method.
        prediction: Predicted sign of the correlation.
        tasks: Names of tasks, as in `Planned`.
        claim: Claim of the paper, as in `Planned`.
    """

    title: str
    levels: Mapping[str, float]
    prediction: Prediction
    tasks: tuple[str, ...] = ()
    claim: str = ""


class Finding(NamedTuple):
    """The final runs of one method.

    Attributes:
        arguments: Chosen arguments: the learning rate, and further settings of a baseline that did not learn.
        runs: Pieces by seed.
        names: Names of the pieces by seed, for repeating a run.
        learned: Share of the seeds that learned; None while the returns of random and optimal play, or the runs of
            further settings of a baseline, are missing.
    """

    arguments: Arguments
    runs: dict[int, Piece]
    names: dict[int, str]
    learned: float | None

    def scores(self, measure: str) -> Floats:
        """Return scores by seed, `[n_seeds]`: "area", "final" (last return) or "success" (area of the success rate)."""
        if measure == "final":
            return np.array([run["returns"][-1] for run in self.runs.values()])
        measured = "success" if measure == "success" else "returns"
        return np.array([area(run, measured) for run in self.runs.values()])

    @property
    def curve(self) -> Curve:
        """Learning curve over seeds."""
        return learning_curve(
            {seed: list(zip(run["steps"], run["returns"], strict=True)) for seed, run in self.runs.items()}
        )

    def steps_to(self, wanted: float) -> list[int | None]:
        """Return environment steps at the first evaluation that reaches a mean return, by seed; None if none does."""
        return [
            next((step for step, value in zip(run["steps"], run["returns"], strict=True) if value >= wanted), None)
            for run in self.runs.values()
        ]

    def to_json(self, rates: Sequence[float], facts: Piece | None) -> dict[str, Any]:
        """Return the entry of the report."""
        curve, runs = self.curve, self.runs.values()
        rate = self.arguments["learning_rate"]
        return {
            "learning_rate": rate,
            "further": {name: value for name, value in self.arguments.items() if name != "learning_rate"},
            "at_edge_of_rates": rate in (*rates[:1], *rates[-1:]),
            "runs": {str(seed): name for seed, name in self.names.items()},
            "seeds": list(self.runs),
            **{measure: rounded(estimate([self.scores(measure)]), 6) for measure in MEASURES},
            **{f"{measure}s": self.scores(measure).round(6).tolist() for measure in MEASURES},
            "final_success": round(float(np.mean([run["success"][-1] for run in runs])), 4),
            "learned": self.learned,
            "steps_to_optimum": None if facts is None else self.steps_to(NEAR_OPTIMUM * facts["oracle"]),
            "cpu_seconds": round(float(np.mean([run["cpu_seconds"] for run in runs])), 1),
            "curve": {name: getattr(curve, name).round(4).tolist() for name in Curve._fields},
        }


class Findings(NamedTuple):
    """The pieces of a comparison.

    Attributes:
        comparison: Task, methods and tuning.
        methods: Findings of the methods that have final runs.
        missing: Jobs that are not done yet.
        tuning: Areas of the tuning runs.
        facts: Choices per action, returns of random and optimal play; None if they are not measured yet.
    """

    comparison: Comparison
    methods: dict[str, Finding]
    missing: list[str]
    tuning: dict[str, dict[float, list[float]]]
    facts: Piece | None

    @property
    def choices(self) -> float | None:
        """Choices per action of the untrained policy."""
        return None if self.facts is None else float(self.facts["choices_per_action"])

    def order(self, measure: str) -> dict[str, Estimate]:
        """Return estimates by method, best first."""
        values = {name: estimate([finding.scores(measure)]) for name, finding in self.methods.items()}
        return dict(sorted(values.items(), key=lambda pair: pair[1].value, reverse=True))

    def to_json(self) -> dict[str, Any]:
        """Return the entry of the report."""
        task, tuning = self.comparison.task, self.comparison.tuning
        return {
            "title": self.comparison.title,
            "task": task.name,
            "env": task.env_id,
            "env_kwargs": dict(task.env_kwargs),
            "facts": None if self.facts is None else dict(self.facts),
            "steps": task.steps,
            "evaluation": {"every": task.evaluation.every, "episodes": task.evaluation.episodes},
            "rates": list(tuning.rates),
            "tuning_seeds": list(tuning.seeds),
            "tuned_on": (task.tuned_on or task).name,
            "tuning": {
                name: {f"{rate:g}": [round(value, 4) for value in areas] for rate, areas in rates.items()}
                for name, rates in self.tuning.items()
            },
            "missing": self.missing,
            "methods": {
                name: finding.to_json(sorted(self._tried(name)), self.facts) for name, finding in self.methods.items()
            },
            "order": {measure: list(self.order(measure)) for measure in MEASURES},
        }

    def _tried(self, name: str) -> Mapping[float, Sequence[float]]:
        arm = next(candidate for candidate in self.comparison.arms if candidate.name == name)
        return self.tuning.get(arm.rate_of or name, {})


class Row(NamedTuple):
    """A planned comparison on one task, and its test where there are runs.

    Attributes:
        claim: Claim of the paper, as in `Planned`.
        task: Name of the task.
        comparison: Comparison in words.
        prediction: Prediction written before the run.
        effect_is: Name of the measure of the effect.
        choices_per_action: Choices per action of the task; None if unknown.
        seeds: Number of runs of each method.
        effect: Difference or correlation.
        p: P-value of the test, not corrected.
        gated: Whether the baseline has to learn.
        learned: Share of the baseline's seeds that learned; None if that is unknown yet.
        at_floor: Whether both methods fail, so that a difference is uninformative.
    """

    claim: str
    task: str
    comparison: str
    prediction: Prediction
    effect_is: str
    choices_per_action: float | None = None
    seeds: tuple[int, ...] = ()
    effect: Estimate | None = None
    p: float | None = None
    gated: bool = False
    learned: float | None = None
    at_floor: bool = False

    def tested(self, first: Floats, second: Floats) -> Row:
        """Return the row with the exact rank test of two groups of scores, `[n_seeds]` each."""
        return self._replace(
            seeds=(len(first), len(second)),
            effect=difference(first, second),
            p=rank_test(first, second),
        )

    def tested_in_pairs(self, first: Floats, second: Floats) -> Row:
        """Return the row with the exact signed-rank test (Wilcoxon) of two scores of each run, `[n_seeds]` each."""
        return self._replace(
            seeds=(len(first),),
            effect=estimate([first - second], mean),
            p=float(stats.wilcoxon(first, second, method="exact").pvalue) if len(first) > 1 else 1.0,
        )

    def to_json(self, corrected: float | None, n_seeds: int) -> dict[str, Any]:
        """Return the entry of the report, with the p-value corrected for the number of rows; `n_seeds` are planned."""
        record = self._asdict()
        del record["at_floor"]  # contained in the verdict
        return {
            **record,
            "seeds": list(self.seeds),
            "effect": None if self.effect is None else rounded(self.effect, 6),
            "p": None if self.p is None else float(f"{self.p:.6g}"),
            "corrected_p": None if corrected is None else float(f"{corrected:.6g}"),
            "verdict": self.verdict(corrected, n_seeds),
        }

    def verdict(self, corrected: float | None, n_seeds: int) -> Verdict:
        """Judge the row by docs/benchmarks/protocol.md, once its planned seeds are all there."""
        if corrected is None or self.effect is None:
            return Verdict.MISSING
        if min(self.seeds) < n_seeds:
            return Verdict.TOO_FEW
        if self.at_floor:
            return Verdict.AT_FLOOR
        if self.gated and self.learned is None:  # few seeds of the baseline learned, and further settings are left
            return Verdict.UNTRIED
        if self.gated and self.learned is not None and self.learned < LEARNED_SHARE:
            return Verdict.NOT_LEARNED
        if corrected >= SETTLED:
            return Verdict.NOT_SETTLED
        return Verdict.SUPPORTED if self.effect.value > 0 else Verdict.CONTRADICTED


def judged(rows: Sequence[Row], n_seeds: int) -> list[dict[str, Any]]:
    """Return the rows of a study with verdicts.

    Args:
        rows: Rows of the planned seeds alone. P-values are corrected by Holm over all rows, also those without runs.
        n_seeds: Number of the planned seeds; a row with fewer has no verdict. Its p-value is not final: it counts as if
            it came out larger than the rest, and is itself multiplied by the number of rows.
    """
    corrected = iter(holm([row.p for row in rows if row.p is not None and min(row.seeds) >= n_seeds], len(rows)))
    records = []
    for row in rows:
        p = row.p
        if p is not None:
            p = next(corrected) if min(row.seeds) >= n_seeds else min(1.0, p * len(rows))
        records.append(row.to_json(p, n_seeds))
    return records


def planned_rows(findings: Sequence[Findings], planned: Sequence[Planned | Trend]) -> Iterator[Row]:
    """Yield the planned comparisons of areas, tested where there are runs.

    Args:
        findings: Findings of the tasks.
        planned: Planned comparisons; see docs/benchmarks/protocol.md.
    """
    for plan in planned:
        for finding in findings:
            if not plan.tasks or finding.comparison.task.name in plan.tasks:
                yield _compared(plan, finding) if isinstance(plan, Planned) else _correlated(plan, finding)


def _compared(plan: Planned, findings: Findings) -> Row:
    pair = f"{plan.first} against {plan.second}"
    effect_is = EFFECTS[plan.measure]
    row = Row(plan.claim, findings.comparison.task.name, pair, plan.prediction, effect_is, findings.choices)
    if not {plan.first, plan.second} <= findings.methods.keys():
        return row
    first, second = (findings.methods[name] for name in (plan.first, plan.second))
    tested = row.tested(first.scores(plan.measure), second.scores(plan.measure))
    return tested._replace(gated=plan.gated, learned=second.learned)


def _correlated(plan: Trend, findings: Findings) -> Row:
    row = Row(
        plan.claim, findings.comparison.task.name, plan.title, plan.prediction, "rank correlation", findings.choices
    )
    if not plan.levels.keys() <= findings.methods.keys():
        return row
    further = [{**findings.methods[name].arguments, "learning_rate": None} for name in plan.levels]
    if any(other != further[0] for other in further):  # a baseline that did not learn has other settings than the rest
        return row
    areas = [findings.methods[name].scores("area") for name in plan.levels]
    if not np.ptp(np.concatenate(areas)):  # the correlation of a constant is not defined
        return row
    levels = np.repeat(list(plan.levels.values()), [len(scores) for scores in areas])
    correlation = stats.spearmanr(levels, np.concatenate(areas))
    effect = Estimate(float(correlation.statistic), None, None)
    return row._replace(seeds=tuple(map(len, areas)), effect=effect, p=float(correlation.pvalue))


def as_predicted(row: Mapping[str, Any]) -> bool | None:
    """Return whether a row came out as predicted; None without a verdict."""
    signs = {
        Verdict.SUPPORTED: Prediction.HIGHER,
        Verdict.CONTRADICTED: Prediction.LOWER,
        Verdict.NOT_SETTLED: Prediction.NOT_SETTLED,
    }
    sign = signs.get(row["verdict"])
    return None if sign is None else sign == row["prediction"]


def rounded(quantity: Estimate, digits: int = 4) -> dict[str, float | None]:
    """Round for JSON: unknown values and NaN are None."""
    return {
        name: None if value is None or np.isnan(value) else round(float(value), digits)
        for name, value in quantity._asdict().items()
    }


def find(comparison: Comparison, pieces: Pieces, seeds: Sequence[int]) -> Findings:
    """Collect the pieces of a comparison."""
    tuning, facts = comparison.tuning.scores(pieces), pieces.find(comparison.task.facts)
    try:
        chosen = comparison.chosen(pieces)
    except NotTunedError:
        done = sum(len(areas) for rates in tuning.values() for areas in rates.values())
        missing = [f"{len(comparison.tuning.jobs(pieces)) - done} tuning runs, and all final runs"]
        return Findings(comparison, {}, missing, tuning, facts)
    methods, missing = {}, []
    for arm in comparison.arms:
        jobs = dict(zip(seeds, comparison.final_jobs(arm, chosen[arm.name], seeds), strict=True))
        runs = pieces.select(jobs)
        if runs:
            names = {seed: jobs[seed].name for seed in runs}
            left = comparison.further_left(arm, pieces)
            learned = None if left else comparison.learned(list(runs.values()), pieces)
            methods[arm.name] = Finding(chosen[arm.name], runs, names, learned)
            if left:
                missing.append(f"{arm.name}, {left} runs of further settings")
        if len(runs) < len(seeds):
            missing.append(f"{arm.name}, seeds {', '.join(str(seed) for seed in seeds if seed not in runs)}")
    return Findings(comparison, methods, missing if methods else ["all final runs"], tuning, facts)
