"""`real-model` and `values-inside-smollm2`: learning curves of SmolLM2-135M with its presets.

Bounds of `real-model` that were set before the runs: from the untrained model every seed reaches nine tenths of the
oracle's return on Tomato Salad within 8,000 steps, and a success of 0.9 on Food Preparation within 6,000; from
behaviour cloning both within 3,000. Nothing is claimed of Tomato Lettuce Salad and Entertainment.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from benchmarks.errors import StudyError
from benchmarks.reports.plots import PALETTE, style
from benchmarks.studies.engine.findings import rounded
from benchmarks.studies.engine.jobs import Cloning, Evaluation, PresetJob
from benchmarks.studies.engine.pictures import panels
from benchmarks.studies.engine.pieces import Piece, Pieces
from benchmarks.studies.engine.study import FINAL_SEEDS, Options, Report
from benchmarks.studies.engine.tables import interval_cell
from benchmarks.studies.engine.tuning import area
from benchmarks.studies.values_inside import (
    ACTION_LEVEL,
    DUELING_8,
    MARGINAL_8,
    STATE_8,
    TOKEN_1,
    TOKEN_8,
    VALUES_INSIDE,
)
from lang_bench.runner.results import SCORES
from lang_envs.report import Table
from lang_envs.report.statistics import estimate, mean
from poad_sb3.common.hyperparameters import preset
from poad_sb3.presets import PRESETS

SEEDS, LATER = FINAL_SEEDS[:5], FINAL_SEEDS[5:]
"""Seeds of the household, and of the kitchen: its preset was changed after a run with seed 300 (protocol)."""
SHARE = 0.9
"""Share of the oracle that has to be reached."""


class Curve(NamedTuple):
    """Trainings on one task that differ in their seed alone.

    Attributes:
        name: Name, for `--tasks`.
        env_id: Id of the task.
        preset: Name of the preset.
        steps: Environment steps of a training.
        every: Steps between two evaluations.
        measure: `"returns"` (discounted .99 a move) or `"success"`.
        within: Steps within which every seed has to reach `SHARE` of the oracle; None where nothing is claimed.
        seeds: Seeds of the trainings.
        cloning: Behaviour cloning before the first step; None from the untrained model.
        changes: Arguments that differ from those of the preset.
    """

    name: str
    env_id: str
    preset: str
    steps: int
    every: int
    measure: str
    within: int | None
    seeds: Sequence[int]
    cloning: Cloning | None = None
    changes: Mapping[str, Any] = {}

    def score(self, player: str) -> float:
        """Return the score of the `"oracle"` or of `"random"` play by the measure."""
        scores = _env_scores()[self.env_id][player]
        return float(scores["returns"]["0.99"] if self.measure == "returns" else scores["success"])

    def job(self, seed: int) -> PresetJob:
        """Return the training of a seed; the arguments are those of the preset, written out."""
        arguments = {**preset(self.preset, "POAD"), **self.changes}
        evaluation = Evaluation(self.every, episodes=50)
        n_envs = PRESETS[self.preset].n_envs
        return PresetJob(
            "POAD", self.env_id, self.steps, seed, arguments, evaluation, n_envs=n_envs, cloning=self.cloning
        )


def _cloning(env_id: str) -> Cloning:
    return Cloning((env_id,), (0.3,), episodes=50, epochs=3, batch_size=64)


TOMATO, FOOD = "Overcooked-TomatoSalad-v0", "VirtualHome-FoodPreparation-v0"
SALAD, ENTERTAINMENT = "Overcooked-TomatoLettuceSalad-v0", "VirtualHome-Entertainment-v0"
KITCHEN, HOME = "smollm2/overcooked", "smollm2/virtualhome"
CURVES = (
    Curve("tomato-salad", TOMATO, KITCHEN, 7_936, 1_024, "returns", 8_000, LATER),
    Curve("food-preparation", FOOD, HOME, 3_072, 512, "success", 6_000, SEEDS),
    Curve("tomato-salad-cloned", TOMATO, KITCHEN, 2_816, 512, "returns", 3_000, LATER, _cloning(TOMATO)),
    Curve("food-preparation-cloned", FOOD, HOME, 1_536, 512, "success", 3_000, SEEDS, _cloning(FOOD)),
    Curve("tomato-lettuce-salad", SALAD, KITCHEN, 25_088, 5_120, "returns", None, LATER[:3]),
    Curve("entertainment", ENTERTAINMENT, HOME, 25_088, 5_120, "success", None, SEEDS[:3]),
)


@cache
def _env_scores() -> dict[str, Any]:
    scores: dict[str, Any] = json.loads((SCORES / "env_scores.json").read_text(encoding="utf-8"))["scores"]
    return scores


def reached(curve: Curve, piece: Piece) -> int | None:
    """Return the steps at the first evaluation with `SHARE` of the oracle's score; None if there is none."""
    scores = zip(piece["steps"], piece[curve.measure], strict=True)
    return next((steps for steps, score in scores if score >= SHARE * curve.score("oracle")), None)


class CurvesOfPresets(NamedTuple):
    """A `Study` of trainings with presets, each task with seeds of its own.

    Attributes:
        name: Name on the command line.
        about: Question that the study answers.
        curves: Trainings; those with a bound are run first.
        seeds: All seeds; a user cannot choose others.
    """

    name: str
    about: str
    curves: Sequence[Curve]
    seeds: Sequence[int]

    def jobs(self, options: Options, pieces: Pieces) -> Iterator[PresetJob]:
        """Yield the trainings, seed by seed."""
        if set(options.seeds) != set(self.seeds):
            raise StudyError(f"Expected {self.name} with its own seeds; got others. Fix: no --seeds.")
        chosen = set(options.chosen_tasks(curve.name for curve in self.curves))
        with_bound, without = ([curve for curve in self.curves if bool(curve.within) is has] for has in (True, False))
        for curves in (with_bound, without):
            for number in range(max((len(curve.seeds) for curve in curves), default=0)):
                for curve in curves:
                    if curve.name in chosen and number < len(curve.seeds):
                        yield curve.job(curve.seeds[number])

    def report(self, options: Options, pieces: Pieces) -> Report:
        """Report the evaluations of existing runs, and the missing ones."""
        content: dict[str, Any] = {"share": SHARE, "tasks": {}, "missing": []}
        for curve in self.curves:
            runs = pieces.select({seed: curve.job(seed) for seed in curve.seeds})
            if len(runs) < len(curve.seeds):
                content["missing"].append(f"{curve.name}: {len(curve.seeds) - len(runs)} of {len(curve.seeds)} runs")
            areas = np.array([area(piece, curve.measure) for piece in runs.values()])
            content["tasks"][curve.name] = {
                "preset": curve.preset,
                "measure": curve.measure,
                "oracle": curve.score("oracle"),
                "random": curve.score("random"),
                "within": curve.within,
                "reached": {seed: reached(curve, piece) for seed, piece in runs.items()},
                "steps": next((piece["steps"] for piece in runs.values()), []),
                "area": rounded(estimate([areas], mean)) if runs else [],
                "scores": {seed: piece[curve.measure] for seed, piece in runs.items()},
                "success": {seed: piece["success"] for seed, piece in runs.items()},
                "cpu_seconds": {seed: piece["cpu_seconds"] for seed, piece in runs.items()},
            }
        has_runs = any(task["scores"] for task in content["tasks"].values())
        return Report(content, {"": curves_figure(content)} if has_runs else {})

    def tables(self, content: Mapping[str, Any]) -> Iterator[Table]:
        """Yield the table of the first evaluations with nine tenths of the oracle's score."""
        head = (
            "",
            "within the bound",
            "reached at",
            "mean area",
            "last score",
            "last success",
            "oracle",
            "random",
            "core-minutes a run",
        )
        rows = []
        for name, task in content["tasks"].items():
            if not task["scores"]:
                continue
            last, success = ([values[-1] for values in task[key].values()] for key in ("scores", "success"))
            steps, bound = list(task["reached"].values()), task["within"]
            n_within = sum(step is not None and bound is not None and step <= bound for step in steps)
            rows.append(
                (
                    name,
                    "no bound" if bound is None else f"{n_within} of {len(steps)} (by {bound:,})",
                    ", ".join("never" if step is None else f"{step:,}" for step in steps),
                    interval_cell(task["area"]),
                    f"{min(last):.2f} to {max(last):.2f}",
                    f"{min(success):.2f} to {max(success):.2f}",
                    f"{task['oracle']:.2f}",
                    f"{task['random']:.2f}",
                    f"{np.median(list(task['cpu_seconds'].values())) / 60:.0f}",
                )
            )
        remark = (
            "Environment steps at the first evaluation (50 sampled episodes) with 0.9 of the oracle's score, for each "
            "seed: the return, discounted .99 a move, in the kitchen, and success in the household. The area under the "
            "learning curve has a 95 % interval over seeds."
        )
        yield Table("SmolLM2 with its presets", head, rows, remark)


@style()
def curves_figure(content: Mapping[str, Any]) -> Figure:
    """Draw a panel for each task, with a line for each seed."""
    tasks = {name: task for name, task in content["tasks"].items() if task["scores"]}
    figure, grid = panels(len(tasks), 2, 4.4, 2.9, 0.6)
    for axes, (name, task) in zip(grid.flat, tasks.items(), strict=False):
        for scores in task["scores"].values():
            axes.plot(task["steps"], scores, color=PALETTE[0], alpha=0.6, linewidth=1.3)
        axes.plot(task["steps"], np.mean(list(task["scores"].values()), axis=0), color=PALETTE[0], linewidth=2.4)
        axes.axhline(task["oracle"], color="0.35", linestyle="--", linewidth=1.2, label="oracle")
        axes.axhline(task["random"], color="0.35", linestyle=":", linewidth=1.2, label="random play")
        label = "success" if task["measure"] == "success" else "return, discounted .99 a move"
        axes.set(title=f"{name}, seeds: {len(task['scores'])}", xlabel="environment steps (actions)", ylabel=label)
    grid.flat[0].legend(loc="lower right")
    return figure


REAL_MODEL = CurvesOfPresets(
    "real-model",
    "SmolLM2-135M with its presets on the embodied tasks, untrained and from behaviour cloning",
    CURVES,
    FINAL_SEEDS,
)
CRITICS = CurvesOfPresets(
    "values-inside-smollm2",
    "critics of `values-inside` with SmolLM2-135M on Tomato Salad, from the untrained model",
    [
        Curve(arm.name, TOMATO, KITCHEN, 7_936, 1_024, "returns", None, VALUES_INSIDE.seeds[:5], changes=arm.arguments)
        for arm in (TOKEN_1, TOKEN_8, DUELING_8, MARGINAL_8, STATE_8, ACTION_LEVEL)
    ],
    VALUES_INSIDE.seeds[:5],
)
"""All have the preset's rates. Five seeds: the report has intervals, and no verdict."""
