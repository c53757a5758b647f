"""The same on every device that is here: scores, and trainings in every number format and way to act."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from toy import adapter_gradient, hold_still, make_agent

from poad_sb3 import POAD
from poad_sb3.errors import ModelError
from poad_sb3.language_model.language_model import LanguageModel

DEVICES = [
    "cpu",
    *(["cuda"] if torch.cuda.is_available() else []),
    *(["mps"] if torch.backends.mps.is_available() else []),
]
every_device = pytest.mark.parametrize("device", DEVICES)
WAYS: dict[str, dict[str, Any]] = {
    "trie": {},
    "candidates": {"action_sampling": "candidates"},
    "free": {"action_sampling": "free", "max_new_tokens": 6},
    "free, sharpened": {
        "action_sampling": "free", "max_new_tokens": 6, "temperature": 0.7, "top_k": 5, "top_p": 0.9, "stop": ["e"],
    },
}  # fmt: skip


def first_update(model_folder: Path, device: str, way: str) -> tuple[object, object, list[torch.Tensor]]:
    """Return the kinds of passes, the actions of a rollout, and its credit and gradients."""
    kwargs = {"model": str(model_folder), "critic_arch": (8,)}
    model = make_agent(policy_kwargs=kwargs, device=device, n_epochs=1, n_critic_epochs=1, batch_size=16, **WAYS[way])
    hold_still(model, move_by=0.1)
    model.learn(16)
    lm, samples, critic = model.policy.lm, model.rollout_buffer.all_samples(), model.policy.critic
    assert critic is not None
    of_critic = torch.cat([one.grad.flatten() for one in critic.parameters() if one.grad is not None])
    numbers = [samples.old_log_prob, samples.advantages, samples.returns, adapter_gradient(model.policy), of_critic]
    kinds, actions = (lm.plain_passes, lm.packs_trees, lm.caches), [path.action for path in samples.paths]
    return kinds, actions, [one.cpu() for one in numbers]


@every_device
@pytest.mark.parametrize("way", WAYS)
def test_updates_equal_those_on_the_cpu(zoo_folder: Callable[[str], Path], device: str, way: str) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    *here, ours = first_update(zoo_folder("qwen2"), "cpu", way)
    *there, theirs = first_update(zoo_folder("qwen2"), device, way)
    assert there == here
    assert min(one.norm() for one in ours) > 1e-4
    for one, other in zip(ours, theirs, strict=True):
        assert (one - other).norm() <= (0 if device == "cpu" else 1e-3) * one.norm()


def test_a_model_is_checked_on_the_device_that_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flash attention has no kernel for processors."""
    found: list[str] = []

    def look(base: Any, *_: object) -> None:
        found.append(base.device.type)
        raise ModelError("seen")

    monkeypatch.setattr("poad_sb3.language_model.language_model.check_model", look)
    for device in ("cpu", "meta"):
        with pytest.raises(ModelError, match="seen"):
            LanguageModel(device=device, critic_trunk="live")
    assert found == ["cpu", "meta"]


@pytest.mark.matrix_after(1)
@every_device
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("way", WAYS)
def test_checkpoints_move_between_devices(
    zoo_folder: Callable[[str], Path], tmp_path: Path, device: str, dtype: str, way: str
) -> None:
    """And a checkpoint of one device goes on on another."""
    kwargs = {"model": str(zoo_folder("qwen2")), "critic_arch": (8,), "dtype": dtype, "gradient_checkpointing": True}
    model = make_agent(policy_kwargs=kwargs, device=device, learning_rate=1e-3, normalize_value=True, **WAYS[way])
    model.learn(32)
    assert model.policy.device.type == device
    logged = model.logger.name_to_value
    assert logged["train/first_ratio_error"] < (1e-4 if dtype == "float32" else 0.3)
    assert all(torch.isfinite(one).all() for one in model.policy.parameters())
    model.save(tmp_path / "saved.zip")
    for other in {"cpu", device}:
        rest = POAD.load(tmp_path / "saved.zip", make_agent(policy_kwargs=kwargs).env, device=other)
        rest.learn(16, reset_num_timesteps=False)
        assert all(torch.isfinite(one).all() for one in rest.policy.parameters())
