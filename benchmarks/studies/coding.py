"""Runs of the `datasci` study: a number of attempts at a table, by a method that learns or by one that does not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from benchmarks.datasci_baselines import preprocessing_of
from poad_sb3.pocket import SHIPPED_MODELS
from poad_sb3.presets import preset

__all__ = [
    "CONTROLS",
    "FIRST_ROLLOUT",
    "FRESH_SPLITS",
    "LEARNERS",
    "MODEL",
    "N_ENVS",
    "CodingJob",
    "coding_job",
    "ending",
]

_FORMAT = 1
MODEL = "pocket-coder"
N_ENVS = 16
"""Environments side by side. The preset has 4; decoding costs the same for all that decode together."""
_N_STEPS, _MINIBATCHES = 8, 8
FIRST_ROLLOUT = _N_STEPS * N_ENVS
"""Attempts before the first update: what is found in them, nothing was learned for."""
LEARNERS = ("POAD", "NTPO")
CONTROLS = ("untrained", "RandomCoder")
"""Those that learn nothing: the same model as it ships, whose best code is that of best-of-N; and the grammar."""
FRESH_SPLITS = tuple(range(5, 25))
"""Random states of halves that no reward was paid for."""
_SAMPLING = ("action_sampling", "max_new_tokens")
_NOTHING: Mapping[str, Any] = {}


class CodingJob(NamedTuple):
    """One run.

    Attributes:
        method: One of `LEARNERS` or `CONTROLS`.
        table: Key of `DATASETS`.
        attempts: How many bodies are evaluated. One that was evaluated before counts, though it costs no time.
        seed: Of everything random.
        arguments: Of the algorithm, all that matter; of the untrained model what it is sampled by; none of the grammar.
        fresh_splits: Random states of the halves on which the best code is scored again; none leaves that out.
    """

    method: str
    table: str
    attempts: int
    seed: int
    arguments: Mapping[str, Any] = _NOTHING
    fresh_splits: tuple[int, ...] = FRESH_SPLITS

    @property
    def env_id(self) -> str:
        """The task."""
        return f"DataSciCoding-{self.table}-v0"

    @property
    def env_kwargs(self) -> dict[str, Any]:
        """Arguments of `gym.make`: as published, where that can be done."""
        return {"preprocessing": preprocessing_of(self.table)}

    @property
    def settings(self) -> dict[str, Any]:
        """All that the result depends on, as JSON reads it back; the model by its checksum."""
        model = None if self.method == "RandomCoder" else _checksum()
        told = {"format": _FORMAT, **self._asdict(), "env_kwargs": self.env_kwargs, "model": model, "n_envs": N_ENVS}
        read_back: dict[str, Any] = json.loads(json.dumps(told, sort_keys=True))
        return read_back

    @property
    def name(self) -> str:
        """Of its piece: legible, and another for other settings."""
        digest = hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode()).hexdigest()[:16]
        return f"coding_{self.table}_{self.method}_{self.attempts}_{self.seed}_{digest}".lower()

    def run(self) -> dict[str, Any]:
        """Do it; see `coding_runs.run_coding_job`."""
        from benchmarks.studies.coding_runs import run_coding_job

        return run_coding_job(self)

    def outcome(self, result: Mapping[str, Any]) -> str:
        """The last eighth of the attempts, and the best."""
        areas = ending(result["areas"])
        ran = [one for one in areas if one is not None]
        mean = f"{sum(ran) / len(ran):.4f}" if ran else "-"
        best = "-" if result["best"] is None else f"{result['best']['area']:.4f}"
        return f"at the end {len(ran) / len(areas):.0%} run, AUC {mean}; best {best}; {result['seconds']} s"

    def __str__(self) -> str:
        rate = f", learning rate {self.arguments['learning_rate']}" if self.method in LEARNERS else ""
        return f"{self.method} on {self.table}, {self.attempts:,} attempts{rate}, seed {self.seed}"


def ending(areas: Sequence[float | None]) -> Sequence[float | None]:
    """The last eighth of the attempts, at least one: what a run has come to."""
    return areas[-max(1, len(areas) // 8) :]


def coding_job(method: str, table: str, attempts: int, seed: int, *, rate: float | str | None = None) -> CodingJob:
    """A run with the preset of the pocket coder.

    Args:
        method: One of `LEARNERS` or `CONTROLS`.
        table: Key of `DATASETS`.
        attempts: See `CodingJob`.
        seed: Of everything random.
        rate: Learning rate, of a learner; see `poad_sb3.schedules`.
    """
    if method == "RandomCoder":
        return CodingJob(method, table, attempts, seed)
    if method == "untrained":
        sampled = preset("pocket/datascicoding", LEARNERS[0])
        return CodingJob(method, table, attempts, seed, {name: sampled[name] for name in _SAMPLING})
    rollout = {"n_steps": _N_STEPS, "batch_size": _N_STEPS * N_ENVS // _MINIBATCHES}  # as large as the preset's
    arguments = {**preset("pocket/datascicoding", method), **rollout, "learning_rate": rate}
    return CodingJob(method, table, attempts, seed, arguments)


@cache
def _checksum() -> str:
    """The shipped weights; a model that is trained anew makes other pieces."""
    weights = SHIPPED_MODELS[MODEL] / "model.safetensors"
    return f"{MODEL} {hashlib.sha256(weights.read_bytes()).hexdigest()[:16]}"
