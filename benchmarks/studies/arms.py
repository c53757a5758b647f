"""Comparisons: methods on a task, each with the learning rate that did best on the tuning seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.studies.errors import NotTunedError, StudyError
from benchmarks.studies.jobs import Evaluation, Job
from benchmarks.studies.pieces import Piece, Pieces
from poad_sb3.presets import preset

__all__ = ["FINAL_SEEDS", "RATES", "TUNING_SEEDS", "Arm", "Comparison", "Task", "area", "check_seeds"]

RATES = (5e-4, 1e-3, 2e-3)
"""Learning rates that every method is tried with."""
TUNING_SEEDS = (101, 102)
"""Seeds that rates are chosen on, and that nothing is reported of."""
FINAL_SEEDS = (0, 1, 2)
_PRESETS = {"Overcooked": "pocket/overcooked", "VirtualHome": "pocket/virtualhome"}
_OTHER = "pocket/virtualhome"


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

    def job(self, algorithm: str, seed: int, *, tests: bool = True, **changes: Any) -> Job:  # noqa: ANN401 - of it
        """A run with the arguments written down for the pocket model, but for some changes."""
        name = _PRESETS.get(self.env_id.partition("-")[0], _OTHER)
        arguments = {**preset(name, algorithm, n_envs=1), **changes}
        evaluation = self.evaluation if tests else self.evaluation._replace(tests=(), test_episodes=0)
        return Job(algorithm, self.env_id, self.steps, seed, arguments, evaluation)


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
    """Methods on a task with equal budgets for tuning.

    Attributes:
        title: What is compared.
        task: Where.
        arms: What.
    """

    title: str
    task: Task
    arms: tuple[Arm, ...]

    def tuning_jobs(self) -> list[Job]:
        """Every rate of every method on every tuning seed."""
        return [self._tuning(arm, rate, seed) for seed in TUNING_SEEDS for rate in RATES for arm in self.arms]

    def final_jobs(self, pieces: Pieces, seeds: Sequence[int]) -> list[Job]:
        """The reported runs.

        Raises:
            NotTunedError: If tuning is not complete.
            StudyError: If a seed was tuned on.
        """
        rates = self.chosen_rates(pieces)
        return [self.final_job(arm, rates[arm.name], seed) for seed in check_seeds(seeds) for arm in self.arms]

    def final_job(self, arm: Arm, rate: float, seed: int) -> Job:
        """A reported run."""
        return self.task.job(arm.algorithm, seed, **arm.arguments, learning_rate=rate)

    def jobs(self, pieces: Pieces, seeds: Sequence[int], *, final: bool = True) -> Iterator[Job]:
        """What there is to do as far as is known: once tuning is complete, the final runs too."""
        yield from self.tuning_jobs()
        if final and all(pieces.find(job) is not None for job in self.tuning_jobs()):
            yield from self.final_jobs(pieces, seeds)

    def tuning_areas(self, pieces: Pieces) -> dict[str, dict[float, list[float]]]:
        """Areas under the curves of the tuning runs, by method and rate; only those that have been made."""
        found: dict[str, dict[float, list[float]]] = {}
        for arm in self.arms:
            by_rate = {rate: [pieces.find(self._tuning(arm, rate, seed)) for seed in TUNING_SEEDS] for rate in RATES}
            found[arm.name] = {rate: [area(one) for one in row if one is not None] for rate, row in by_rate.items()}
        return found

    def chosen_rates(self, pieces: Pieces) -> dict[str, float]:
        """For every method the rate with the largest mean area on the tuning seeds; of equal ones the smaller.

        Raises:
            NotTunedError: Unless all methods were tried with all rates on all these seeds: an equal budget.
        """
        areas = self.tuning_areas(pieces)
        tried = sum(len(one) for rates in areas.values() for one in rates.values())
        wanted = len(self.arms) * len(RATES) * len(TUNING_SEEDS)
        if tried < wanted:
            raise NotTunedError(
                f"Expected every method of {self.title} on {(self.task.tuned_on or self.task).env_id} tried with all "
                f"rates {list(RATES)} on seeds {list(TUNING_SEEDS)}; got {tried} of {wanted} runs. "
                "Fix: python -m benchmarks study NAME tune."
            )
        mean = {name: {rate: float(np.mean(one)) for rate, one in rates.items()} for name, rates in areas.items()}
        return {name: max(RATES, key=rates.__getitem__) for name, rates in mean.items()}

    def _tuning(self, arm: Arm, rate: float, seed: int) -> Job:
        task = self.task.tuned_on or self.task
        return task.job(arm.algorithm, seed, tests=False, **arm.arguments, learning_rate=rate)


def area(piece: Piece) -> float:
    """Mean height of a learning curve: the area under it divided by its width (trapezoids)."""
    steps, returns = piece["steps"], piece["returns"]
    return float(np.trapezoid(returns, steps) / (steps[-1] - steps[0]))


def check_seeds(seeds: Sequence[int]) -> Sequence[int]:
    """The seeds themselves.

    Raises:
        StudyError: If they are none, repeated or negative, or rates are chosen on one of them.
    """
    if set(seeds) & set(TUNING_SEEDS) or not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise StudyError(
            f"Expected distinct seeds, 0 or more, none of those that rates are chosen on {list(TUNING_SEEDS)}; got "
            f"{list(seeds) or 'none'}. Fix: --seeds {','.join(map(str, FINAL_SEEDS))}."
        )
    return seeds
