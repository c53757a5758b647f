"""Presets: the published numbers, overrides, refusals."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import ClassVar

import gymnasium as gym
import pytest
from stable_baselines3.common.vec_env import DummyVecEnv
from toy import LampEnv

import poad_sb3
from poad_sb3 import ARCHER, GRPO, NTPO, POAD, TWOSOME
from poad_sb3.cli.train_options import new_run, parse_options
from poad_sb3.common import hyperparameters
from poad_sb3.common.hyperparameters import (
    check_arguments,
    model_preset,
    preset,
    preset_arguments,
    with_model_preset,
)
from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm
from poad_sb3.errors import NoEffectWarning, PresetError
from poad_sb3.presets import ALGORITHMS, PRESETS, Preset
from poad_sb3.settings.arguments import known_arguments
from poad_sb3.settings.model import DEFAULT_LORA
from poad_sb3.vec_env.make_envs import make_envs

ROOT = Path(poad_sb3.__file__).parents[1]
ENV_ID = "Overcooked-TomatoSalad-v0"
SMALL = {"policy_kwargs": {"critic_arch": (16,)}}
EVERY = [(name, algorithm) for name, row in PRESETS.items() for algorithm in row.methods]

# critic rate, actor rate, epochs, batch size (of 4 x 32), gamma, entropy coefficient
PAPER = {
    ("overcooked", "POAD"): (1e-5, 5e-7, 5, 64, 0.99, 0.01),
    ("overcooked", "NTPO"): (1e-5, 5e-7, 5, 32, 0.99, 0.01),
    ("overcooked", "TWOSOME"): (1e-5, 5e-7, 1, 32, 0.99, 0.01),
    ("virtualhome", "POAD"): (5e-5, 1e-6, 5, 64, 0.95, 0.0001),
    ("virtualhome", "NTPO"): (5e-5, 1e-6, 5, 64, 0.95, 0.01),
    ("virtualhome", "TWOSOME"): (5e-5, 1e-6, 1, 32, 0.95, 0.01),
    ("datascicoding", "POAD"): (5e-5, 1e-6, 1, 32, 0.95, 0.01),
    ("datascicoding", "NTPO"): (5e-5, 1e-6, 1, 32, 0.95, 0.01),
}
COLUMNS = ("critic_learning_rate", "learning_rate", "n_epochs", "batch_size", "gamma", "ent_coef")


@pytest.mark.parametrize(("task", "algorithm"), PAPER)
def test_the_numbers_of_the_paper(task: str, algorithm: str) -> None:
    arguments = preset(f"paper/{task}", algorithm)
    assert tuple(arguments[name] for name in COLUMNS) == PAPER[task, algorithm]
    assert (PRESETS[f"paper/{task}"].n_envs, arguments["n_steps"]) == (4, 32)
    assert arguments["n_critic_epochs"] == arguments["n_epochs"]
    shared = ("gae_lambda", "clip_range", "vf_coef", "max_grad_norm", "target_kl")
    assert tuple(arguments[name] for name in shared) == (0.95, 0.2, 0.5, 0.5, 0.02)
    assert arguments.get("gae_lambda_token") == (None if algorithm == "TWOSOME" else 0.95)
    assert arguments.get("max_new_tokens") == (128 if task == "datascicoding" else None)
    lora = dict(arguments["policy_kwargs"]["lora"])
    assert lora.pop("target_modules") == ["q_proj", "v_proj"]
    assert DEFAULT_LORA.items() >= lora.items()


def test_presets_of_the_public_code_differ_as_known() -> None:
    code, paper = (preset(f"{source}/datascicoding", "POAD") for source in ("reference-code", "paper"))
    assert {name for name in code if code[name] != paper.get(name)} == {"n_steps", "batch_size", "temperature", "top_k"}
    assert (code["n_steps"], code["batch_size"], code["temperature"], code["top_k"]) == (8, 8, 0.5, 50)
    listed = preset("reference-code/virtualhome", "POAD")
    assert listed.pop("paper_mode") is True
    assert listed == preset("paper/virtualhome", "POAD")
    assert preset("reference-code/virtualhome", "TWOSOME") == preset("paper/virtualhome", "TWOSOME")


@pytest.mark.parametrize(("name", "algorithm"), EVERY)
def test_every_argument_of_every_preset_has_an_effect(name: str, algorithm: str) -> None:
    check_arguments(getattr(poad_sb3, algorithm), preset(name, algorithm))


@pytest.mark.parametrize("task", ["overcooked", "virtualhome"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_pocket_presets_are_the_defaults_written_down(task: str, algorithm: str) -> None:
    defaults = known_arguments(getattr(poad_sb3, algorithm))
    arguments = preset(f"pocket/{task}", algorithm)
    assert arguments.pop("policy_kwargs") == {"model": "pocket"}
    assert arguments == {name: defaults[name] for name in arguments}


def test_a_preset_is_a_copy() -> None:
    mine = preset("paper/virtualhome", "POAD")
    mine["policy_kwargs"]["lora"]["r"] = mine["gamma"] = 1
    assert preset("paper/virtualhome", "POAD")["policy_kwargs"]["lora"]["r"] == 8
    assert preset("paper/virtualhome", "POAD")["gamma"] == 0.95


# ---------------------------------------------------------------------- from_preset


@pytest.mark.parametrize("kind", [POAD, NTPO, TWOSOME])
def test_from_preset_passes_on_every_argument(kind: type[LLMOnPolicyAlgorithm]) -> None:
    model = kind.from_preset("paper/virtualhome", "VirtualHome-FoodPreparation-v0", seed=3, **SMALL)
    assert type(model) is kind
    assert model.n_envs == 4
    assert model.seed == 3
    for name, value in preset("paper/virtualhome", kind.__name__).items():
        if name != "policy_kwargs":
            assert getattr(model, name) == value, name
    assert model.policy_kwargs["critic_arch"] == (16,)
    assert model.policy_kwargs["lora"]["r"] == 8, "what is given is laid over the preset's"


def test_overrides_win_and_the_number_of_minibatches_stays() -> None:
    envs = DummyVecEnv([LampEnv] * 4)
    model = POAD.from_preset("paper/overcooked", envs, n_steps=4, learning_rate=1e-4, gamma=0.5, **SMALL)
    assert (model.n_steps, model.batch_size, model.learning_rate, model.gamma) == (4, 8, 1e-4, 0.5)
    model.learn(16)
    assert model.num_timesteps == 16


@pytest.mark.parametrize("n_envs", range(1, 12))
def test_no_minibatch_is_added_for_what_is_left_over(n_envs: int) -> None:
    name = "smollm2/overcooked"
    arguments = preset_arguments(POAD, name, n_envs, {})
    rollout = arguments["n_steps"] * n_envs
    assert -(-rollout // arguments["batch_size"]) == PRESETS[name].minibatches["POAD"]


REFUSED = [
    (POAD, "paper/virtualhom", {}, r"There is no preset 'paper/virtualhom'. Did you mean paper/virtualhome"),
    (ARCHER, "paper/overcooked", {}, r"is for POAD, NTPO, TWOSOME; got ARCHER"),
    (POAD, "paper/overcooked", {"policy_kwargs": {"modle": "x"}}, r"Expected policy_kwargs .* Did you mean model"),
    (POAD, "paper/overcooked", {"max_new_tokens": 9}, r"max_new_tokens has none: action_sampling is 'candidates'"),
    (TWOSOME, "paper/overcooked", {"gamma_token": 0.9}, r"gamma_token has none: the estimator is gae of actions"),
]


@pytest.mark.parametrize(("kind", "name", "overrides", "match"), REFUSED)
def test_unknown_and_unused_arguments_are_refused(kind, name, overrides, match) -> None:
    with pytest.raises(PresetError, match=match):
        kind.from_preset(name, ENV_ID, **overrides)


# ---------------------------------------------------------------------- beside the code


@pytest.mark.process
def test_presets_are_there_without_torch() -> None:
    code = "import sys, poad_sb3.presets, poad_sb3.cli.app, poad_sb3.cli.presets; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "False"


# ---------------------------------------------------------------------- text from a command line


@pytest.mark.parametrize(
    ("kind", "given", "match"),
    [
        (POAD, {"top_k": 5}, "top_k=5 has no effect: action_sampling is 'trie'"),
        (POAD, {"action_sampling": "think", "max_new_tokens": 5}, "has no effect: the environment lists its actions"),
        (GRPO, {"gae_lambda": 0.5}, "gae_lambda=0.5 has no effect: the estimator is"),
    ],
)
def test_an_argument_without_effect_is_warned_of(
    kind: type[LLMOnPolicyAlgorithm], given: dict[str, object], match: str
) -> None:
    with pytest.warns(NoEffectWarning, match=match):
        kind("LLMPolicy", LampEnv(), **SMALL, **given)


SMALL_PRESET = {
    "learning_rate": 5e-4,
    "n_steps": 6,
    "n_epochs": 3,
    "temperature": 8.0,
    "policy_kwargs": {"model": "tiny"},
}


def tiny_preset(**changes) -> Preset:
    arguments = {**SMALL_PRESET, **changes}
    return Preset("", "", n_envs=4, minibatches={"POAD": 2}, methods={"POAD": arguments}, default_for="tiny")


class SecondPOAD(POAD):
    defaults: ClassVar = {"n_epochs": 7}


class ByCandidates(POAD):
    defaults: ClassVar = {"action_sampling": "candidates"}


def test_the_preset_of_a_model_lies_beneath_the_given_arguments(monkeypatch) -> None:
    monkeypatch.setitem(PRESETS, "tiny/overcooked", tiny_preset())
    kwargs = {"model": "tiny", "prompt": "completion"}
    given = {"ent_coef": 0.5, "policy_kwargs": kwargs}
    for n_envs, expected_envs, n_steps in ((None, 4, 6), (1, 1, 24), (5, 5, 5)):
        arguments, preset_envs = with_model_preset(POAD, "tiny/overcooked", n_envs, given)
        batch_size = -(-n_steps * expected_envs // 2)
        assert (arguments, preset_envs) == (
            {**SMALL_PRESET, "n_steps": n_steps, "batch_size": batch_size, **given},
            expected_envs,
        )
    assert with_model_preset(SecondPOAD, "tiny/overcooked", None, given)[0]["n_epochs"] == 7
    assert with_model_preset(SecondPOAD, "tiny/overcooked", None, {**given, "n_epochs": 1})[0]["n_epochs"] == 1
    with pytest.raises(ValueError, match="Expected n_steps to be a positive integer; got '8'"):
        with_model_preset(POAD, "tiny/overcooked", None, {**given, "n_steps": "8"})
    named = preset_arguments(POAD, "tiny/overcooked", 2, {"policy_kwargs": {"model": "pocket"}})
    assert (named["n_steps"], named["batch_size"]) == (12, 12)


KITCHEN = "Overcooked-LettuceSalad-v0"
NO_PRESET = r"the general defaults, .* \(tiny has tiny/overcooked\)"


@pytest.mark.parametrize(
    ("kind", "env", "given", "remark"),
    [
        (POAD, KITCHEN, {}, "preset tiny/overcooked"),
        (SecondPOAD, make_envs(KITCHEN, {}, 2), {}, "preset tiny/overcooked"),
        (POAD, "VirtualHome-Cheese-v0", {}, NO_PRESET),
        (GRPO, KITCHEN, {}, NO_PRESET),
        (ByCandidates, KITCHEN, {}, NO_PRESET),
    ],
)
def test_the_preset_of_a_model_is_that_of_the_family(monkeypatch, kind, env, given, remark) -> None:
    monkeypatch.setitem(PRESETS, "tiny/overcooked", tiny_preset())
    name, shown = model_preset(kind, env, {"policy_kwargs": {"model": "tiny"}, **given})
    assert re.fullmatch(remark, shown)
    assert name == ("tiny/overcooked" if remark.startswith("preset") else None)


def test_the_preset_of_a_model_is_its_default_unless_another_is_named(monkeypatch, capsys) -> None:
    kwargs, env_id = {"model": "pocket-char"}, "VirtualHome-FoodPreparation-v0"
    arguments = {**preset("pocket/virtualhome", "POAD"), "n_steps": 4, "temperature": 3.0, "policy_kwargs": kwargs}
    del arguments["batch_size"]
    row = Preset("", "", n_envs=2, minibatches={"POAD": 2}, methods={"POAD": arguments}, default_for="pocket-char")
    monkeypatch.setitem(PRESETS, "pocket-char/virtualhome", row)
    model = POAD("LLMPolicy", env_id, verbose=1, ent_coef=0.5, policy_kwargs=kwargs)
    assert (model.n_envs, model.n_steps, model.batch_size, model.temperature, model.ent_coef) == (2, 4, 4, 3.0, 0.5)
    model.learn(8)
    shown = capsys.readouterr().out
    assert "Chosen for this environment: preset pocket-char/virtualhome, action_sampling='trie'" in shown
    named = POAD.from_preset("pocket/virtualhome", gym.make(env_id), policy_kwargs=kwargs)
    assert (named.n_envs, named.temperature) == (1, 1.0)
    config = new_run(parse_options(["policy_kwargs.model=pocket-char"], (), env_id=env_id, n_envs=4))
    assert (config.preset, config.n_envs, config.given["n_steps"]) == ("pocket-char/virtualhome", 4, 2)


@pytest.mark.parametrize(("sampling", "is_warned"), [("trie", True), ("think", False)])
def test_a_high_temperature_is_recommended_for_listed_actions_alone(monkeypatch, sampling, is_warned) -> None:
    monkeypatch.setattr(hyperparameters, "FOREIGN_MODEL", 0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        POAD("LLMPolicy", LampEnv(), action_sampling=sampling, **SMALL)
    assert any("Expected a temperature of 4 to 8" in str(warning.message) for warning in caught) == is_warned
