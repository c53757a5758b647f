"""Jobs: runs that are fully described by their settings."""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, ClassVar

from benchmarks.references.datasci_baselines import preprocessing_of
from lang_envs.datasets.generated import NAME as GENERATED
from poad_sb3.language_model import smollm2
from poad_sb3.pocket import SHIPPED_MODELS

_FORMAT = 1
CODER = "pocket-coder"
N_ENVS = 16
"""Number of environments side by side in runs on code. The preset has 4; decoding 16 together costs little more."""
N_STEPS = 8
FIRST_ROLLOUT = N_STEPS * N_ENVS
"""Number of attempts before the first update, all of the untrained model."""
CONTROLS = ("untrained", "RandomCoder")
"""Methods without learning: the model as it ships, whose best code is that of best-of-N, and the grammar."""
FRESH_SPLITS = tuple(range(5, 25))
"""Random states of the halves for scoring the best code again, unused for rewards."""


class Job(ABC):
    """Work that is done once: a frozen dataclass of settings, and `module:function` that does it."""

    runner: ClassVar[str]

    @property
    @abstractmethod
    def label(self) -> str:
        """Beginning of the name of the job's piece."""

    @property
    def kind(self) -> str:
        """Jobs that cost alike: all seeds, by default."""
        return self.label.rpartition("_")[0]

    @property
    @abstractmethod
    def surroundings(self) -> dict[str, Any]:
        """Everything else that the result depends on; the base model by its checksum."""

    def run(self) -> Mapping[str, Any]:
        """Run the job; the result is the content of its piece."""
        module, _, function = self.runner.partition(":")
        result: Mapping[str, Any] = getattr(import_module(module), function)(self)
        return result

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that the result depends on, as read back from JSON."""
        content = {"format": _FORMAT, **asdict(self), **self.surroundings}  # type: ignore[call-overload]
        read_back: dict[str, Any] = json.loads(json.dumps(content, sort_keys=True))
        return read_back

    @property
    def name(self) -> str:
        """Name of the job's piece: legible, and different for other settings."""
        digest = hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode()).hexdigest()[:16]
        return f"{self.label}_{digest}".lower()


@cache
def checksum(model: str) -> str:
    """Return a model with the digest of its weights; a model that is trained again makes other pieces."""
    if model == smollm2.NAME:
        return f"{model} {smollm2.GGUF_SHA256[:16]}"
    weights = SHIPPED_MODELS[model] / "model.safetensors"
    return f"{model} {hashlib.sha256(weights.read_bytes()).hexdigest()[:16]}"


def short_name(env_id: str) -> str:
    """Return an id without module and version."""
    return re.sub(r"-v\d+$", "", env_id.rpartition(":")[2])


@dataclass(frozen=True)
class Evaluation:
    """Measurements during a training run and after it. Policies sample, as in training.

    Attributes:
        every: Environment steps between two evaluations; there is one before the first step and one after the last.
        episodes: Episodes of each evaluation.
        tests: Ids of the tasks that are played after training.
        test_episodes: Episodes of each test.
        rollout: Whether one episode with values of all tokens is recorded after training.
        script: Actions of that episode; the model's own if empty.
    """

    every: int
    episodes: int
    tests: tuple[str, ...] = ()
    test_episodes: int = 0
    rollout: bool = False
    script: tuple[str, ...] = ()

    @property
    def without_tests(self) -> Evaluation:
        """Evaluation that is the same during training, with no tests or episode after it."""
        return Evaluation(self.every, self.episodes)


@dataclass(frozen=True)
class Cloning:
    """Behaviour cloning of a noisy oracle, before a training; see `poad_sb3.bc`.

    Attributes:
        env_ids: Ids of the tasks that episodes are played on.
        noise: Share of random actions on each of them.
        episodes: Episodes of each task.
        epochs: Passes over the episodes, of the policy and then of the critic.
        batch_size: Actions in a minibatch.
        learning_rate: Learning rate of the adapter.
        critic_learning_rate: Learning rate of the critic.
        seed: Seed of the episodes and the minibatches.
    """

    env_ids: tuple[str, ...]
    noise: tuple[float, ...]
    episodes: int = 50
    epochs: int = 6
    batch_size: int = 256
    learning_rate: float = 2e-3
    critic_learning_rate: float = 1e-3
    seed: int = 0


@dataclass(frozen=True)
class TrainingJob(Job):
    """One training run with an embedded model; see `training.run_training`.

    Attributes:
        algorithm: Name of a class of `poad_sb3`.
        env_id: Id of the task.
        steps: Environment steps; with 0 the untrained model is evaluated.
        seed: Seed of everything random in training.
        arguments: Arguments of the algorithm; written out, so that a changed default does not change the job.
        evaluation: Evaluations during the training and after it.
        env_kwargs: Arguments of `gym.make`.
    """

    runner = "benchmarks.studies.engine.training:run_training"
    n_envs: ClassVar[int] = 1
    cloning: ClassVar[Cloning | None] = None
    algorithm: str
    env_id: str
    steps: int
    seed: int
    arguments: Mapping[str, Any]
    evaluation: Evaluation
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def surroundings(self) -> dict[str, Any]:
        return {"model": checksum(self.arguments.get("policy_kwargs", {}).get("model", "pocket"))}

    @property
    def label(self) -> str:
        return f"{short_name(self.env_id)}_{self.algorithm}_{self.steps}_{self.seed}"

    @property
    def kind(self) -> str:
        model = self.arguments.get("policy_kwargs", {}).get("model", "")
        return "_".join(filter(None, (super().kind, self.arguments.get("action_sampling"), model)))

    def __str__(self) -> str:
        rate = self.arguments.get("learning_rate")
        return f"{self.algorithm} on {self.env_id}, {self.steps:,} steps, learning rate {rate}, seed {self.seed}"


@dataclass(frozen=True)
class WarmStartJob(TrainingJob):
    """A training that begins from behaviour cloning.

    Attributes:
        cloning: Behaviour cloning of the same policy, before the first step.
    """

    cloning: Cloning = field(kw_only=True)  # type: ignore[misc]  # a constant of the other jobs

    @property
    def label(self) -> str:
        return f"warm_{super().label}"

    def __str__(self) -> str:
        return f"{super().__str__()}, from behaviour cloning"


@dataclass(frozen=True)
class PresetJob(TrainingJob):
    """A training with the arguments of a preset, on as many environments as it is for; see `training.run_preset`.

    Attributes:
        n_envs: Number of environments that step together.
        cloning: Behaviour cloning of the policy before the first step; None for none.
    """

    runner = "benchmarks.studies.engine.training:run_preset"
    n_envs: int = field(kw_only=True)  # type: ignore[misc]  # a constant of the other jobs
    cloning: Cloning | None = field(kw_only=True)  # type: ignore[misc]

    @property
    def label(self) -> str:
        return f"{'cloned' if self.cloning else 'preset'}_{super().label}"


@dataclass(frozen=True)
class TaskJob(Job):
    """Facts about a task that no training changes; see `task_facts.run_task`.

    Attributes:
        env_id: Id of the task.
        env_kwargs: Arguments of `gym.make`.
        model: Untrained model that plays.
        action_sampling: Action distribution of its policy.
        episodes: Number of its episodes.
        evaluation_episodes: Number of episodes of an evaluation.
    """

    runner = "benchmarks.studies.engine.task_facts:run_task"
    env_id: str
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    model: str = "pocket"
    action_sampling: str = "trie"
    episodes: int = 20
    evaluation_episodes: int = 50

    @property
    def surroundings(self) -> dict[str, Any]:
        return {"checksum": checksum(self.model)}

    @property
    def label(self) -> str:
        return f"{short_name(self.env_id)}_task"

    def __str__(self) -> str:
        return f"{self.model} untrained on {self.env_id}"


@dataclass(frozen=True)
class CodingJob(Job):
    """A number of attempts at a table, by a method that learns or by one that does not; see `coding.run_coding`.

    Attributes:
        method: Name of a class of `poad_sb3`, or one of `CONTROLS`.
        table: Key of `DATASETS`.
        attempts: Number of evaluated bodies. One that was evaluated before counts, though it costs no time.
        seed: Seed of everything random.
        arguments: Arguments of the algorithm that matter; of the untrained model its sampling settings; none of the
            grammar.
        fresh_splits: Random states of the halves for scoring the best code again; if empty, it is not.
    """

    runner = "benchmarks.studies.engine.coding:run_coding"
    method: str
    table: str
    attempts: int
    seed: int
    arguments: Mapping[str, Any] = field(default_factory=dict)
    fresh_splits: tuple[int, ...] = FRESH_SPLITS

    @property
    def env_id(self) -> str:
        """Id of the task."""
        return f"DataSciCoding-{self.table}-v0"

    @property
    def env_kwargs(self) -> dict[str, Any]:
        """Arguments of `gym.make`: the published preprocessing, where it can be reproduced."""
        return {} if self.table == GENERATED else {"preprocessing": preprocessing_of(self.table)}

    @property
    def surroundings(self) -> dict[str, Any]:
        model = None if self.method == "RandomCoder" else checksum(CODER)
        return {"env_kwargs": self.env_kwargs, "model": model, "n_envs": N_ENVS}

    @property
    def label(self) -> str:
        return f"coding_{self.table}_{self.method}_{self.attempts}_{self.seed}"

    def __str__(self) -> str:
        rate = f", learning rate {self.arguments['learning_rate']}" if "learning_rate" in self.arguments else ""
        return f"{self.method} on {self.table}, {self.attempts:,} attempts{rate}, seed {self.seed}"
