"""The same on every device that is here: scores, and trainings in every number format and way to act."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy import adapter_gradient, hold_still, make_agent, randomise

from poad_sb3 import POAD
from poad_sb3.distributions.free import generate
from poad_sb3.errors import ModelError
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.language_model.packing import TokenRow
from poad_sb3.settings.sampling import SamplingSettings

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


@every_device
@pytest.mark.parametrize("name", ["llama2", "gpt2", "gemma2"])
def test_scores_do_not_depend_on_the_device(zoo_folder: Callable[[str], Path], device: str, name: str) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    lm = LanguageModel(str(zoo_folder(name)), prompt="completion")
    randomise(lm)
    prompts = [lm.prompt_ids(text) for text in ("The lamp is red. You", "Go.", "The lamp is green. You wait. You")]
    rows = [TokenRow(prompt, None, (len(prompt) - 1,)) for prompt in prompts]
    uniforms = np.random.default_rng(0).random((3, 5))
    with torch.no_grad():
        expected = lm.vocabulary_logits(lm.hidden_states(rows)).log_softmax(-1)
    sampling = SamplingSettings(max_new_tokens=5, temperature=0.7, top_k=5, top_p=0.9)
    written = generate(lm, prompts, sampling, uniforms)
    lm.to(device)
    with torch.no_grad():
        scores = lm.vocabulary_logits(lm.hidden_states(rows)).log_softmax(-1)
    torch.testing.assert_close(scores.cpu(), expected, rtol=0, atol=1e-5 if device == "cpu" else 1e-4)
    again = generate(lm, prompts, sampling, uniforms)
    differ = [sample.path.action != other.path.action for sample, other in zip(again, written, strict=True)]
    assert sum(differ) <= (0 if device == "cpu" else 1), "a number on the edge between two tokens falls on either side"


def first_update(model_folder: Path, device: str, way: str) -> tuple[object, object, list[torch.Tensor]]:
    """Return the kinds of passes, the actions of a rollout, and its credit and gradients."""
    kwargs = {"model": str(model_folder), "critic_arch": (8,)}
    model = make_agent(policy_kwargs=kwargs, device=device, n_epochs=1, n_critic_epochs=1, batch_size=16, **WAYS[way])
    hold_still(model, move_by=0.1)
    model.learn(16)
    lm, samples, critic = model.policy.lm, model.rollout_buffer.all_samples(), model.policy.critic
    assert critic is not None
    of_critic = torch.cat([parameter.grad.flatten() for parameter in critic.parameters() if parameter.grad is not None])
    numbers = [samples.old_log_prob, samples.advantages, samples.targets, adapter_gradient(model.policy), of_critic]
    kinds, actions = (lm.plain_passes, lm.packs_trees, lm.caches), [path.action for path in samples.paths]
    return kinds, actions, [tensor.cpu() for tensor in numbers]


@every_device
@pytest.mark.parametrize("way", WAYS)
def test_updates_equal_those_on_the_cpu(zoo_folder: Callable[[str], Path], device: str, way: str) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    *expected, ours = first_update(zoo_folder("qwen2"), "cpu", way)
    *on_device, theirs = first_update(zoo_folder("qwen2"), device, way)
    assert on_device == expected
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


@every_device
@pytest.mark.parametrize(
    ("dtype", "way"), [("bfloat16", "trie"), pytest.param("float32", "free, sharpened", marks=pytest.mark.matrix)]
)
def test_trains_and_moves_between_devices(
    zoo_folder: Callable[[str], Path], tmp_path: Path, device: str, dtype: str, way: str
) -> None:
    """And a checkpoint of one device goes on on another."""
    kwargs = {"model": str(zoo_folder("qwen2")), "critic_arch": (8,), "dtype": dtype, "gradient_checkpointing": True}
    model = make_agent(policy_kwargs=kwargs, device=device, learning_rate=1e-3, normalize_value=True, **WAYS[way])
    model.learn(32)
    assert model.policy.device.type == device
    logged = model.logger.name_to_value
    assert logged["train/first_ratio_error"] < (1e-4 if dtype == "float32" else 0.3)
    assert all(torch.isfinite(parameter).all() for parameter in model.policy.parameters())
    model.save(tmp_path / "saved.zip")
    for other in {"cpu", device}:
        rest = POAD.load(tmp_path / "saved.zip", make_agent(policy_kwargs=kwargs).env, device=other)
        rest.learn(16, reset_num_timesteps=False)
        assert all(torch.isfinite(parameter).all() for parameter in rest.policy.parameters())
