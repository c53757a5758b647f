"""Comparisons: methods on a task, each with the learning rate that did best on the tuning seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.errors import NotTunedError
from benchmarks.studies.engine import study
from benchmarks.studies.engine.jobs import Cloning, Evaluation, Job, TaskJob, TrainingJob, WarmStartJob
from benchmarks.studies.engine.pieces import Piece, Pieces
from poad_sb3.common.hyperparameters import preset

RATES = (5e-4, 1e-3, 2e-3)
"""Learning rates that every method is tried with on the embodied tasks."""
BEYOND = ((1.25e-4, 2.5e-4), (4e-3, 8e-3))
"""Rates that follow below and above where the best of these lies at an edge; see docs/benchmarks/protocol.md."""

LEARNED_SHARE = 0.8
"""Share of the seeds of a baseline that have to learn before another method can be called better."""
FURTHER: tuple[Mapping[str, Any], ...] = (
    {"ent_coef": 0.0},
    {"ent_coef": 0.05},
    {"n_steps": 512, "batch_size": 256},
    {"target_kl": None},
    {"n_epochs": 1},
    {"gamma": 0.99},
)
"""Settings beside its best rate that a baseline is tried with if too few of its seeds learn; the same for all."""


class Tuning(NamedTuple):
    """Learning rates that all methods are tried with, equally often.

    Attributes:
        where: Name of the comparison in error messages.
        methods: Names of the methods.
        rates: Learning rates to try, in rising order.
        seeds: Seeds of the tuning runs; they are not reported.
        job: Function from a method, a rate and a seed to the job.
        score: Function from the result of a run to its score.
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
        """Return every rate of every method on every seed; with pieces also those beyond an edge."""
        jobs = [self.job(method, rate, seed) for seed in self.seeds for rate in self.rates for method in self.methods]
        if pieces is None:
            return jobs
        for method in self.methods:
            jobs += [self.job(method, rate, seed) for seed in self.seeds for rate in self._further(method, pieces)]
        return jobs

    def _further(self, method: str, pieces: Pieces) -> Sequence[float]:
        """Return the rates beyond the edge where a method did best; none before all its planned rates are tried."""
        scores = self._scores(method, self.rates, pieces)
        if self.beyond is None or any(len(areas) < len(self.seeds) for areas in scores.values()):
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
        """Return the scores of existing runs by method and rate."""
        return {
            method: self._scores(method, sorted({*self.rates, *self._further(method, pieces)}), pieces)
            for method in self.methods
        }

    def chosen(self, pieces: Pieces) -> dict[str, float]:
        """Return the rate with the largest mean score for every method; of equal ones the smaller.

        Raises:
            NotTunedError: Unless all methods were tried with all rates on all seeds: an equal budget.
        """
        scores = self.scores(pieces)
        tried, n_jobs = sum(len(areas) for rates in scores.values() for areas in rates.values()), len(self.jobs(pieces))
        if tried < n_jobs:
            raise NotTunedError(
                f"Expected every method of {self.where} tried with all rates {list(self.rates)} on seeds "
                f"{list(self.seeds)}; got {tried} of {n_jobs} runs. Fix: python -m benchmarks study NAME."
            )
        return {name: _best(rates) for name, rates in scores.items()}


def _best(scores: Mapping[float, Sequence[float]]) -> float:
    """Return the rate with the largest mean score; of equal ones the smallest."""
    return max(sorted(scores), key=lambda rate: float(np.mean(scores[rate])))


class Task(NamedTuple):
    """A task and how long a run on it is.

    Attributes:
        name: Name on the command line.
        env_id: Id of the environment.
        steps: Environment steps of a run.
        evaluation: Evaluations of the final runs; tuning runs are evaluated alike, without tests.
        tuned_on: Task whose tuning runs choose the rates of every method; None for this one.
        env_kwargs: Arguments of `gym.make`.
        arguments: Arguments of all methods that differ from the preset's.
        cloning: Behaviour cloning before the training; None for none.
        rate: Learning rate of all methods; None to tune it.
    """

    name: str
    env_id: str
    steps: int
    evaluation: Evaluation
    tuned_on: Task | None = None
    env_kwargs: Mapping[str, Any] = {}
    arguments: Mapping[str, Any] = {}
    cloning: Cloning | None = None
    rate: float | None = None

    def job(self, algorithm: str, seed: int, **changes: Any) -> TrainingJob:
        """Return a run with the arguments written down for the pocket model, but for some changes."""
        family = "pocket/overcooked" if self.env_id.startswith("Overcooked") else "pocket/virtualhome"
        arguments = {**preset(family, algorithm, n_envs=1), **self.arguments, **changes}
        arguments_of_job = (algorithm, self.env_id, self.steps, seed, arguments, self.evaluation, self.env_kwargs)
        return (
            TrainingJob(*arguments_of_job)
            if self.cloning is None
            else WarmStartJob(*arguments_of_job, cloning=self.cloning)
        )

    @property
    def facts(self) -> TaskJob:
        """Job for choices per action of the untrained model, and returns of random and optimal play."""
        model = self.arguments.get("policy_kwargs", {}).get("model", "pocket")
        sampling = self.arguments.get("action_sampling", "trie")
        episodes = self.evaluation.episodes
        return TaskJob(self.env_id, self.env_kwargs, model, sampling, evaluation_episodes=episodes)


Arguments = Mapping[str, Any]


class Arm(NamedTuple):
    """A method, as a study names it.

    Attributes:
        name: Name in tables.
        algorithm: Name of a class of `poad_sb3`.
        arguments: Arguments that differ from the preset's; no learning rate.
        rate_of: Name of the method whose learning rate it takes; None to be tuned itself.
        kind: Function from the fields of a `TrainingJob` to a job of the method; None for that of the task.
    """

    name: str
    algorithm: str
    arguments: Mapping[str, Any]
    rate_of: str | None = None
    kind: Callable[..., TrainingJob] | None = None

    def job(self, task: Task, seed: int, arguments: Arguments) -> TrainingJob:
        """Return a run of the method on a task, with further arguments."""
        job = task.job(self.algorithm, seed, **{**self.arguments, **arguments})
        return job if self.kind is None else self.kind(**vars(job))


class Comparison(NamedTuple):
    """Methods (arms) on a task with equal budgets for tuning.

    Attributes:
        title: Title in sentences.
        task: Task of the comparison.
        arms: Methods to compare.
        beyond: Rates beyond the edges, see `Tuning`.
        baselines: Names of the methods that have to learn before another one is called better: see `learned`.
        seeds: Seeds of the reported runs, for judging whether a baseline learns.
    """

    title: str
    task: Task
    arms: tuple[Arm, ...]
    beyond: tuple[Sequence[float], Sequence[float]] | None = None
    baselines: frozenset[str] = frozenset()
    seeds: Sequence[int] = study.FINAL_SEEDS

    @property
    def tuning(self) -> Tuning:
        """Tuning of the learning rates."""
        arms = {arm.name: arm for arm in self.arms if arm.rate_of is None and self.task.rate is None}
        rates = RATES if arms else ()

        def job(name: str, rate: float, seed: int) -> TrainingJob:
            return self._tuning_job(arms[name], {"learning_rate": rate}, seed, self.task.tuned_on or self.task)

        where = f"{self.title} on {self.task.env_id}"
        return Tuning(where, list(arms), rates, study.TUNING_SEEDS, job, area, self.beyond)

    def _rates(self, pieces: Pieces) -> dict[str, float]:
        if self.task.rate is not None:
            return dict.fromkeys((arm.name for arm in self.arms), self.task.rate)
        rates = self.tuning.chosen(pieces)
        return {arm.name: rates[arm.rate_of or arm.name] for arm in self.arms}

    def _tuning_job(self, arm: Arm, arguments: Arguments, seed: int, task: Task) -> TrainingJob:
        task = task._replace(evaluation=task.evaluation.without_tests)
        return arm.job(task, seed, arguments)

    def final_jobs(self, arm: Arm, arguments: Arguments, seeds: Sequence[int]) -> list[TrainingJob]:
        """Return the reported runs of a method."""
        return [arm.job(self.task, seed, arguments) for seed in seeds]

    def learned(self, runs: Sequence[Piece], pieces: Pieces) -> float | None:
        """Return the share of runs whose last return is above half of the way from random to optimal play.

        A baseline of which fewer than `LEARNED_SHARE` do is never called worse; see docs/benchmarks/protocol.md.
        """
        facts = pieces.find(self.task.facts)
        if facts is None or not runs:
            return None
        return float(np.mean([run["returns"][-1] > (facts["random"] + facts["oracle"]) / 2 for run in runs]))

    def further(self, arm: Arm, rate: float, pieces: Pieces) -> list[Arguments]:
        """Return settings that a baseline is tried with, its own first, if all its runs are there and few learned.

        A setting that the method itself is about stays as it is.
        """
        runs = [pieces.find(job) for job in self.final_jobs(arm, {"learning_rate": rate}, self.seeds)]
        share = self.learned([run for run in runs if run is not None], pieces)
        if arm.name not in self.baselines or None in runs or share is None or share >= LEARNED_SHARE:
            return []
        fixed = {**self.task.arguments, **arm.arguments}
        return [{"learning_rate": rate, **more} for more in ({}, *FURTHER) if not more.keys() & fixed.keys()]

    def further_left(self, arm: Arm, pieces: Pieces) -> int:
        """Return how many runs of further settings are left to do."""
        tried = self.further(arm, self._rates(pieces)[arm.name], pieces)
        return sum(pieces.find(job) is None for settings in tried for job in self._tuning_jobs(arm, settings))

    def chosen(self, pieces: Pieces) -> dict[str, Arguments]:
        """Return the arguments of each method's reported runs, by the mean area on the tuning seeds.

        Raises:
            NotTunedError: Unless all methods were tried with all rates on all tuning seeds.
        """
        rates = self._rates(pieces)
        chosen: dict[str, Arguments] = {}
        for arm in self.arms:
            chosen[arm.name] = {"learning_rate": rates[arm.name]}
            tried = self.further(arm, rates[arm.name], pieces)
            runs = [[pieces.find(job) for job in self._tuning_jobs(arm, settings)] for settings in tried]
            scores = [[area(piece) for piece in row if piece is not None] for row in runs]
            if tried and all(len(row) == len(study.TUNING_SEEDS) for row in scores):
                chosen[arm.name] = tried[int(np.argmax(np.mean(scores, axis=1)))]
        return chosen

    def _tuning_jobs(self, arm: Arm, arguments: Arguments) -> list[TrainingJob]:
        return [self._tuning_job(arm, arguments, seed, self.task) for seed in study.TUNING_SEEDS]

    def jobs(self, options: study.Options, pieces: Pieces) -> Iterator[Job]:
        """Yield the jobs known so far: once tuning is complete, the final runs too."""
        seeds = options.checked_seeds()
        yield self.task.facts
        yield from self.tuning.jobs(pieces)
        try:
            rates = self._rates(pieces)
        except NotTunedError:
            return
        for seed in seeds:
            for arm in self.arms:
                yield from self.final_jobs(arm, {"learning_rate": rates[arm.name]}, [seed])
        chosen = self.chosen(pieces)
        for arm in self.arms:
            for arguments in self.further(arm, rates[arm.name], pieces):
                yield from self._tuning_jobs(arm, arguments)
            yield from self.final_jobs(arm, chosen[arm.name], seeds)


def area(piece: Piece, measured: str = "returns") -> float:
    """Return the mean height of a learning curve: the area under it divided by its width (trapezoids).

    The last digits are rounded off: equal areas differ there, and ranks would count that.

    Args:
        piece: Result of a run.
        measured: Field of the evaluations.
    """
    steps = piece["steps"]
    return round(float(np.trapezoid(piece[measured], steps) / (steps[-1] - steps[0])), 9)
