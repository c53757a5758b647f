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
BEYOND = ((1.25e-4, 2.5e-4), (4e-3, 8e-3))
"""Rates that follow below and above where the best of these lies at an edge; see docs/benchmarks/protocol.md."""


class Tuning(NamedTuple):
    """Learning rates that all methods are tried with, equally often.

    Attributes:
        where: For sentences.
        methods: By name.
        rates: To be tried, rising.
        seeds: Of the runs; they are not reported.
        job: The run of a method with a rate and a seed.
        score: Score of a run.
        beyond: Rates for a method whose best rate is the smallest, or the largest; None for no further ones.
    """

    where: str
    methods: Sequence[str]
    rates: Sequence[float]
    seeds: Sequence[int]
    job: Callable[[str, float, int], Job]
    score: Callable[[Piece], float]
    beyond: tuple[Sequence[float], Sequence[float]] | None = None

    def jobs(self, pieces: Pieces | None = None) -> list[Job]:
        """Every rate of every method on every seed; with pieces also those beyond an edge."""
        found = [self.job(method, rate, seed) for seed in self.seeds for rate in self.rates for method in self.methods]
        if pieces is None:
            return found
        for method in self.methods:
            found += [self.job(method, rate, seed) for seed in self.seeds for rate in self._further(method, pieces)]
        return found

    def _further(self, method: str, pieces: Pieces) -> Sequence[float]:
        """Rates beyond the edge that a method did best at; none before all its others are tried."""
        scores = self._scores(method, self.rates, pieces)
        if self.beyond is None or any(len(one) < len(self.seeds) for one in scores.values()):
            return ()
        best = _best(scores)
        return self.beyond[0] if best == self.rates[0] else self.beyond[1] if best == self.rates[-1] else ()

    def _scores(self, method: str, rates: Sequence[float], pieces: Pieces) -> dict[float, list[float]]:
        return {
            rate: [
                self.score(piece)
                for seed in self.seeds
                if (piece := pieces.find(self.job(method, rate, seed))) is not None
            ]
            for rate in rates
        }

    def scores(self, pieces: Pieces) -> dict[str, dict[float, list[float]]]:
        """Scores by method and rate; only of runs that have been made."""
        return {
            method: self._scores(method, sorted({*self.rates, *self._further(method, pieces)}), pieces)
            for method in self.methods
        }

    def chosen(self, pieces: Pieces) -> dict[str, float]:
        """For every method the rate with the largest mean score; of equal ones the smaller.

        Raises:
            NotTunedError: Unless all methods were tried with all rates on all seeds: an equal budget.
        """
        scores = self.scores(pieces)
        tried, n_jobs = sum(len(one) for rates in scores.values() for one in rates.values()), len(self.jobs(pieces))
        if tried < n_jobs:
            raise NotTunedError(
                f"Expected every method of {self.where} tried with all rates {list(self.rates)} on seeds "
                f"{list(self.seeds)}; got {tried} of {n_jobs} runs. Fix: python -m benchmarks study NAME tune."
            )
        return {name: _best(rates) for name, rates in scores.items()}


def _best(scores: Mapping[float, Sequence[float]]) -> float:
    """Return the rate with the largest mean score; of equal ones the smallest."""
    return max(sorted(scores), key=lambda rate: float(np.mean(scores[rate])))


class Task(NamedTuple):
    """A task and how long a run on it is.

    Attributes:
        name: On the command line.
        env_id: Its id.
        steps: Environment steps of a run.
        evaluation: Of the final runs; tuning runs are evaluated alike, without tests.
        tuned_on: Whose tuning runs its rates are chosen by, for every method; None for its own.
        env_kwargs: Arguments of `gym.make`.
        preset: Arguments of the methods; None for those of the family.
    """

    name: str
    env_id: str
    steps: int
    evaluation: Evaluation
    tuned_on: Task | None = None
    env_kwargs: Mapping[str, Any] = {}
    preset: str | None = None

    def job(self, algorithm: str, seed: int, **changes: Any) -> TrainingJob:
        """Return a run with the arguments written down for the pocket model, but for some changes."""
        family = "pocket/overcooked" if self.env_id.startswith("Overcooked") else "pocket/virtualhome"
        arguments = {**preset(self.preset or family, algorithm, n_envs=1), **changes}
        return TrainingJob(algorithm, self.env_id, self.steps, seed, arguments, self.evaluation, self.env_kwargs)


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
    """Methods (arms) on a task with equal budgets for tuning.

    Attributes:
        title: For sentences.
        task: The task.
        arms: The methods.
        beyond: See `Tuning`.
    """

    title: str
    task: Task
    arms: tuple[Arm, ...]
    beyond: tuple[Sequence[float], Sequence[float]] | None = None

    @property
    def tuning(self) -> Tuning:
        """Of its learning rates."""
        arms, task = {arm.name: arm for arm in self.arms}, self.task.tuned_on or self.task
        task = task._replace(evaluation=Evaluation(task.evaluation.every, task.evaluation.episodes))

        def job(name: str, rate: float, seed: int) -> TrainingJob:
            return task.job(arms[name].algorithm, seed, **arms[name].arguments, learning_rate=rate)

        return Tuning(f"{self.title} on {task.env_id}", list(arms), RATES, study.TUNING_SEEDS, job, area, self.beyond)

    def final_job(self, arm: Arm, rate: float, seed: int) -> TrainingJob:
        """Return a reported run."""
        return self.task.job(arm.algorithm, seed, **arm.arguments, learning_rate=rate)

    def jobs(self, options: study.Options, pieces: Pieces) -> Iterator[Job]:
        """Jobs as far as they are known: once tuning is complete, the final runs too."""
        seeds = options.checked_seeds()
        yield from self.tuning.jobs(pieces)
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
