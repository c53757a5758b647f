"""Jobs: training runs that are fully described by their settings."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple, Protocol

from poad_sb3.pocket import POCKET_FOLDER

__all__ = ["Evaluation", "Job", "Work"]

_FORMAT = 1
_NOTHING: Mapping[str, Any] = {}


class Work(Protocol):
    """What is done once: any tuple of settings that has these."""

    @property
    def settings(self) -> dict[str, Any]:
        """All that the result depends on, as JSON reads it back."""

    @property
    def name(self) -> str:
        """Of its piece: another for other settings."""

    def run(self) -> Mapping[str, Any]:
        """Do it; the result is the content of its piece."""

    def outcome(self, result: Mapping[str, Any]) -> str:
        """A result in a few words, for who watches."""


class Evaluation(NamedTuple):
    """What is measured during a training run and after it. Policies sample, as in training.

    Attributes:
        every: Environment steps between two evaluations; there is one before the first step and one after the last.
        episodes: Of each.
        tests: Ids of the tasks that are played after training.
        test_episodes: Of each.
        rollout: Whether one episode with values of all tokens is recorded after training.
        script: The actions of that episode, where they are not the model's own.
    """

    every: int
    episodes: int
    tests: tuple[str, ...] = ()
    test_episodes: int = 0
    rollout: bool = False
    script: tuple[str, ...] = ()


class Job(NamedTuple):
    """One training run with the pocket model.

    Attributes:
        algorithm: A class of `poad_sb3`.
        env_id: The task.
        steps: Environment steps; with 0 the untrained model is evaluated.
        seed: Of everything random in training.
        arguments: Of the algorithm; written out, so that a default that changes does not change what a job is.
        evaluation: What is measured.
        env_kwargs: Arguments of `gym.make`.
    """

    algorithm: str
    env_id: str
    steps: int
    seed: int
    arguments: Mapping[str, Any]
    evaluation: Evaluation
    env_kwargs: Mapping[str, Any] = _NOTHING

    @property
    def settings(self) -> dict[str, Any]:
        """All that the result depends on, as JSON reads it back; the base model by its checksum."""
        told = {"format": _FORMAT, **self._asdict(), "evaluation": self.evaluation._asdict(), "model": _model()}
        read_back: dict[str, Any] = json.loads(json.dumps(told, sort_keys=True))
        return read_back

    @property
    def name(self) -> str:
        """Of its piece: legible, and another for other settings."""
        digest = hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode()).hexdigest()[:16]
        task = re.sub(r"-v\d+$", "", self.env_id.rpartition(":")[2])
        return f"{task}_{self.algorithm}_{self.steps}_{self.seed}_{digest}".lower()

    def run(self) -> dict[str, Any]:
        """Do it; see `running.run_job`."""
        from benchmarks.studies.running import run_job

        return run_job(self)

    def outcome(self, result: Mapping[str, Any]) -> str:
        """The last return."""
        return str(result["returns"][-1])

    def __str__(self) -> str:
        rate = self.arguments.get("learning_rate")
        return f"{self.algorithm} on {self.env_id}, {self.steps:,} steps, learning rate {rate}, seed {self.seed}"


@cache
def _model() -> str:
    """The embedded model; one that is trained anew makes other pieces."""
    return f"pocket {hashlib.sha256((POCKET_FOLDER / 'model.safetensors').read_bytes()).hexdigest()[:16]}"
