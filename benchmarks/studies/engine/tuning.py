"""Comparisons: methods on a task, each with the learning rate that did best on the tuning seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.runner.errors import NotTunedError
from benchmarks.studies.engine import study
from benchmarks.studies.engine.jobs import Evaluation, Job, TrainingJob
from benchmarks.studies.engine.pieces import Piece, Pieces
from poad_sb3.common.hyperparameters import preset

RATES = (5e-4, 1e-3, 2e-3)
"""Learning rates that every method is tried with on the embodied tasks."""


class Tuning(NamedTuple):
    """Learning rates that all methods are tried with, equally often.

    Attributes:
        where: For sentences.
        methods: By name.
        rates: To be tried, rising.
        seeds: Of the runs; they are not reported.
        job: The run of a method with a rate and a seed.
        score: Score of a run.
    """

    where: str
    methods: Sequence[str]
    rates: Sequence[float]
    seeds: Sequence[int]
    job: Callable[[str, float, int], Job]
    score: Callable[[Piece], float]

    def jobs(self) -> list[Job]:
        """Every rate of every method on every seed."""
        return [self.job(method, rate, seed) for seed in self.seeds for rate in self.rates for method in self.methods]

    def scores(self, pieces: Pieces) -> dict[str, dict[float, list[float]]]:
        """Scores by method and rate; only of runs that have been made."""
        return {
            method: {
                rate: [
                    self.score(piece)
                    for seed in self.seeds
                    if (piece := pieces.find(self.job(method, rate, seed))) is not None
                ]
                for rate in self.rates
            }
            for method in self.methods
        }

    def chosen(self, pieces: Pieces) -> dict[str, float]:
        """For every method the rate with the largest mean score; of equal ones the smaller.

        Raises:
            NotTunedError: Unless all methods were tried with all rates on all seeds: an equal budget.
        """
        scores = self.scores(pieces)
        tried = sum(len(one) for rates in scores.values() for one in rates.values())
        if tried < len(self.jobs()):
            raise NotTunedError(
                f"Expected every method of {self.where} tried with all rates {list(self.rates)} on seeds "
                f"{list(self.seeds)}; got {tried} of {len(self.jobs())} runs. "
                "Fix: python -m benchmarks study NAME tune."
            )
        means = {name: {rate: float(np.mean(one)) for rate, one in rates.items()} for name, rates in scores.items()}
        return {name: max(self.rates, key=rates.__getitem__) for name, rates in means.items()}


class Task(NamedTuple):
    """A task and how long a run on it is.

    Attributes:
        name: On the command line.
        env_id: Its id.
        steps: Environment steps of a run.
        evaluation: Of the final runs; tuning runs are evaluated alike, without tests.
        tuned_on: Whose tuning runs its rates are chosen by, for every method; None for its own.
    """

    name: str
    env_id: str
    steps: int
    evaluation: Evaluation
    tuned_on: Task | None = None

    def job(self, algorithm: str, seed: int, **changes: Any) -> TrainingJob:
        """Return a run with the arguments written down for the pocket model, but for some changes."""
        name = "pocket/overcooked" if self.env_id.startswith("Overcooked") else "pocket/virtualhome"
        arguments = {**preset(name, algorithm, n_envs=1), **changes}
        return TrainingJob(algorithm, self.env_id, self.steps, seed, arguments, self.evaluation)


class Arm(NamedTuple):
    """A method, as a study names it.

    Attributes:
        name: In tables.
        algorithm: A class of `poad_sb3`.
        arguments: Of it, where they are not those of the preset; no learning rate.
    """

    name: str
    algorithm: str
    arguments: Mapping[str, Any]


class Comparison(NamedTuple):
    """Methods (arms) on a task with equal budgets for tuning."""

    title: str
    task: Task
    arms: tuple[Arm, ...]

    @property
    def tuning(self) -> Tuning:
        """Of its learning rates."""
        arms, task = {arm.name: arm for arm in self.arms}, self.task.tuned_on or self.task
        task = task._replace(evaluation=Evaluation(task.evaluation.every, task.evaluation.episodes))

        def job(name: str, rate: float, seed: int) -> TrainingJob:
            return task.job(arms[name].algorithm, seed, **arms[name].arguments, learning_rate=rate)

        return Tuning(f"{self.title} on {task.env_id}", list(arms), RATES, study.TUNING_SEEDS, job, area)

    def final_job(self, arm: Arm, rate: float, seed: int) -> TrainingJob:
        """Return a reported run."""
        return self.task.job(arm.algorithm, seed, **arm.arguments, learning_rate=rate)

    def jobs(self, options: study.Options, pieces: Pieces) -> Iterator[Job]:
        """Jobs as far as they are known: once tuning is complete, the final runs too."""
        seeds = options.checked_seeds()
        yield from self.tuning.jobs()
        try:
            rates = self.tuning.chosen(pieces)
        except NotTunedError:
            return
        if not options.tuning_only:
            yield from (self.final_job(arm, rates[arm.name], seed) for seed in seeds for arm in self.arms)


def area(piece: Piece) -> float:
    """Mean height of a learning curve: the area under it divided by its width (trapezoids)."""
    steps, returns = piece["steps"], piece["returns"]
    return float(np.trapezoid(returns, steps) / (steps[-1] - steps[0]))
