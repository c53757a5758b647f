"""Faults in mid-training: it stops with a clear error, bad data leave the weights alone, and the checkpoint resumes."""

from __future__ import annotations

import errno
import math
import os
import signal
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv
from toy import LampEnv

from lang_envs.core import Outcome
from poad_sb3 import NTPO, POAD, TWOSOME
from poad_sb3.common.callbacks import LatestCheckpointCallback
from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm

N, ENVS = 16, 2
ROLLOUT = N * ENVS
STEPS = 6 * ROLLOUT
FAULT = 4 * ROLLOUT + 10
"""The step of the fault: in the fifth rollout."""


NO_FORK = pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python warns of forks beside threads")


class FaultyLamps(LampEnv):
    """Lamps that do something once, when their `fault_at`-th move is made."""

    def __init__(self, fault: Callable[[], float] | None = None, fault_at: int = FAULT // ENVS) -> None:
        super().__init__()
        self.fault, self.moves_to_fault = fault, fault_at

    def _move(self, reward: float) -> Outcome:
        self.moves_to_fault -= 1
        return super()._move(reward)

    def step(self, action: Any) -> Any:
        """Take a step; a `LangEnv` refuses rewards that are no numbers, and environments of others do not."""
        before = self.moves_to_fault
        observation, reward, *rest = super().step(action)
        if self.moves_to_fault == 0 < before and self.fault is not None:
            reward = self.fault()
        return observation, reward, *rest


def envs(fault: Callable[[], float] | None = None) -> VecEnv:
    return DummyVecEnv([FaultyLamps, partial(FaultyLamps, fault)])


def agent(vector: VecEnv | None = None, kind: type[LLMOnPolicyAlgorithm] = POAD, **more: Any) -> LLMOnPolicyAlgorithm:
    more = {"n_steps": N, "batch_size": 8, "n_epochs": 2, "policy_kwargs": {"critic_arch": (16,)}, "seed": 1, **more}
    return kind("LLMPolicy", vector or envs(), **more)


def state(model: LLMOnPolicyAlgorithm) -> dict[str, bytes]:
    """Weights, statistics and optimiser states."""
    tensors = {name: tensor.numpy().tobytes() for name, tensor in model.policy.state_dict().items()}
    for name in ("policy.optimizer", "policy.critic_optimizer"):
        for key, state in model.get_parameters()[name]["state"].items():
            tensors |= {
                f"{name} {key} {part}": torch.as_tensor(value).numpy().tobytes() for part, value in state.items()
            }
    return tensors


def adapter(model: LLMOnPolicyAlgorithm) -> dict[str, bytes]:
    return {
        name: value for name, value in state(model).items() if "lora" in name or name.startswith("policy.optimizer")
    }


def every_rollout(folder: Path) -> LatestCheckpointCallback:
    return LatestCheckpointCallback(folder / "latest.zip", 1)


class Do(BaseCallback):
    """Something, at a step."""

    def __init__(self, step: int, what: Callable[[], None]) -> None:
        super().__init__()
        self.step, self.what = step, what

    def _on_step(self) -> bool:
        if self.num_timesteps == self.step:
            self.what()
        return True


class Note(BaseCallback):
    """States at the start and at the end of the last rollout."""

    at_start: dict[str, bytes]
    at_end: dict[str, bytes]

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        self.at_start = state(self.model)

    def _on_rollout_end(self) -> None:
        self.at_end = state(self.model)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, bytes]]:
    """States of a training without fault: of its checkpoint at each step, before `FAULT` (key -2), at its end (-1)."""
    folder, states = tmp_path_factory.mktemp("good"), {}

    class Read(BaseCallback):
        def _on_step(self) -> bool:
            return True

        def _on_rollout_start(self) -> None:
            if self.num_timesteps:
                states[self.num_timesteps] = state(POAD.load(folder / "latest.zip"))
            if self.num_timesteps == FAULT // ROLLOUT * ROLLOUT:
                states[-2] = state(self.model)

    states[-1] = state(agent().learn(STEPS, [every_rollout(folder), Read()]))
    return states


def assert_usable(folder: Path, good: dict[int, dict[str, bytes]], step: int = FAULT // ROLLOUT * ROLLOUT) -> None:
    """The checkpoint is the known-good one of its step, and from there the training ends as it would have."""
    assert [path.name for path in folder.iterdir()] == ["latest.zip"]
    resumed = POAD.load(folder / "latest.zip", envs())
    assert resumed.num_timesteps == step
    assert state(resumed) == good[step]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resumed.learn(STEPS - step, reset_num_timesteps=False)
    assert state(resumed) == good[-1]


# ---------------------------------------------------------------------- environments


@pytest.mark.process
@pytest.mark.parametrize("start", ["forkserver", pytest.param("fork", marks=NO_FORK)])
def test_a_killed_worker_leaves_weights_and_checkpoint(tmp_path: Path, start: str) -> None:
    workers = SubprocVecEnv([FaultyLamps] * ENVS, start_method=start)
    note = Note()
    try:
        model = agent(workers)
        kill = Do(FAULT, lambda: os.kill(workers.processes[1].pid, signal.SIGKILL))
        with pytest.raises(
            RuntimeError, match=r"Expected an answer of every environment; a worker .* Fix: .*checkpoint"
        ):
            model.learn(STEPS, [kill, note, every_rollout(tmp_path)])
    finally:
        for process in workers.processes:
            process.kill()
            process.join()
        workers.closed = True
    assert state(model) == note.at_start, "no weight has changed since the last update"
    resumed = POAD.load(tmp_path / "latest.zip", envs())
    assert state(resumed) == note.at_end
    resumed.learn(0, reset_num_timesteps=False)
    assert state(resumed) == note.at_start, "the update on the last whole rollout follows"


# ---------------------------------------------------------------------- models


@pytest.mark.parametrize(
    ("kind", "way", "target_kl"),
    [
        (POAD, {}, 0.02),
        pytest.param(NTPO, {"action_sampling": "free", "max_new_tokens": 3}, None, marks=pytest.mark.matrix),
        pytest.param(TWOSOME, {}, None, marks=pytest.mark.matrix),
    ],
)
def test_nan_logits_take_no_step(
    monkeypatch: pytest.MonkeyPatch, kind: type[POAD], way: dict[str, Any], target_kl: float | None
) -> None:
    model = agent(kind=kind, target_kl=target_kl, **way).learn(2 * ROLLOUT)
    before = adapter(model)
    hidden_states = model.policy.lm.hidden_states

    def poisoned(rows: Any, *, reference: bool = False) -> torch.Tensor:
        hidden = hidden_states(rows, reference=reference)
        return hidden * float("nan") if not reference and torch.is_grad_enabled() else hidden

    monkeypatch.setattr(model.policy.lm, "hidden_states", poisoned)
    warns = pytest.warns(RuntimeWarning, match="first ratio of the update")
    if target_kl is None:
        with pytest.raises(FloatingPointError, match=r"Expected a finite gradient of the policy; .* No step was taken"):
            model.learn(ROLLOUT, reset_num_timesteps=False)
    else:
        with warns:  # and the bound on the KL divergence ends the update
            model.learn(ROLLOUT, reset_num_timesteps=False)
    assert adapter(model) == before
    monkeypatch.undo()
    model.learn(ROLLOUT, reset_num_timesteps=False)
    assert adapter(model) != before
    assert all(np.isfinite(tensor.numpy()).all() for tensor in model.policy.state_dict().values())


def test_nonfinite_features_leave_the_statistics_of_the_critic(
    tmp_path: Path, good: dict[int, dict[str, bytes]]
) -> None:
    model = agent()
    trunk_features = model.policy.lm.trunk_features

    def poison() -> None:
        def poisoned(rows: Any) -> list[torch.Tensor]:
            first, *rest = trunk_features(rows)
            return [first * float("inf"), *rest]

        model.policy.lm.trunk_features = poisoned  # type: ignore[method-assign]

    with pytest.raises(FloatingPointError, match=r"Expected finite hidden states .* continue from a checkpoint"):
        model.learn(STEPS, [Do(FAULT, poison), every_rollout(tmp_path)])
    assert state(model) == good[-2], "the statistics of the critic's input are as they were"
    assert_usable(tmp_path, good)


@pytest.mark.parametrize(("name", "value"), [("learning_rate", math.nan), ("critic_learning_rate", -1e-3)])
def test_an_invalid_learning_rate_moves_nothing(name: str, value: float) -> None:
    model, note = agent(**{name: lambda progress: 1e-3 if progress > 0.6 else value}), Note()
    with pytest.raises(ValueError, match=f"Expected {name} to stay a number of at least 0; its schedule gives {value}"):
        model.learn(3 * ROLLOUT, note)
    assert model.num_timesteps == 2 * ROLLOUT
    assert state(model) == note.at_end


# ---------------------------------------------------------------------- disks


@pytest.mark.process
def test_a_full_disk_leaves_the_last_checkpoint(
    tmp_path: Path, good: dict[int, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = agent()

    def fill() -> None:
        def full(*_: Any) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr("os.fsync", full)

    with pytest.raises(OSError, match="No space left on device"):
        model.learn(STEPS, [Do(FAULT, fill), every_rollout(tmp_path)])
    assert model.num_timesteps == 5 * ROLLOUT
    monkeypatch.undo()
    assert_usable(tmp_path, good)
    model.learn(STEPS - model.num_timesteps, reset_num_timesteps=False)  # there is room again
    assert state(model) == good[-1], "the rollout that could not be saved was not lost either"
