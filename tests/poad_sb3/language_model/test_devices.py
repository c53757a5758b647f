"""The same on every device that is here: scores, and trainings in every number format and way to act."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from toy import adapter_gradient, hold_still, make_agent

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
    of_critic = torch.cat([parameter.grad.flatten() for parameter in critic.parameters() if parameter.grad is not None])
    numbers = [samples.old_log_prob, samples.advantages, samples.returns, adapter_gradient(model.policy), of_critic]
    kinds, actions = (lm.plain_passes, lm.packs_trees, lm.caches), [path.action for path in samples.paths]
    return kinds, actions, [tensor.cpu() for tensor in numbers]


@every_device
@pytest.mark.parametrize("way", WAYS)
def test_updates_equal_those_on_the_cpu(zoo_folder: Callable[[str], Path], device: str, way: str) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    *expected, ours = first_update(zoo_folder("qwen2"), "cpu", way)
    *there, theirs = first_update(zoo_folder("qwen2"), device, way)
    assert there == expected
    assert min(tensor.norm() for tensor in ours) > 1e-4
    for tensor, other in zip(ours, theirs, strict=True):
        assert (tensor - other).norm() <= (0 if device == "cpu" else 1e-3) * tensor.norm()


def test_a_model_is_checked_on_the_device_that_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flash attention has no kernel for processors."""
    devices: list[str] = []

    def look(base: Any, *_: object) -> None:
        devices.append(base.device.type)
        raise ModelError("seen")

    monkeypatch.setattr("poad_sb3.language_model.language_model.check_model", look)
    for device in ("cpu", "meta"):
        with pytest.raises(ModelError, match="seen"):
            LanguageModel(device=device, critic_trunk="live")
    assert devices == ["cpu", "meta"]
