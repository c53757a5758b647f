"""Every method learns on every id whose action space it supports."""

from __future__ import annotations

import io
import math
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3.common import vec_env
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.evaluation import evaluate_policy
from toy import OpenLampEnv
from walk import IDS

import poad_sb3
from lang_envs import ENV_ROWS, FOREIGN_ROWS, EnvRow
from lang_envs.wrappers import AdmissibleObservation
from poad_sb3 import BADQ, GLAM, POAD, TWOSOME, ObservationError, UnsupportedEnvError
from poad_sb3.presets import ALGORITHMS

CANDIDATES = ("TWOSOME", "GLAM")
LISTED = tuple(getattr(poad_sb3, name) for name in ALGORITHMS)
OPEN = tuple(kind for kind in LISTED if kind.__name__ not in CANDIDATES)


def supported(row: EnvRow) -> tuple[Any, ...]:
    return OPEN if row.id.startswith("DataSciCoding-") else LISTED


def learn(row: EnvRow, method: Any) -> None:
    """Update, save, load and predict, without an argument about the kind of environment."""
    n_steps = 2 if supported(row) == OPEN else 4
    whole = not method("LLMPolicy", None, _init_setup_model=False).credit.has_critic
    limit, groups = ({"max_episode_steps": 3}, {"group_size": 2}) if whole else ({}, {})  # whole episodes
    env = gym.make(row.id, **row.trial, **limit)
    model = method("LLMPolicy", env, seed=0, n_steps=n_steps, **groups).learn(2 * n_steps)
    logged = model.logger.name_to_value
    assert model.num_timesteps >= 2 * n_steps if whole else model.num_timesteps == 2 * n_steps
    assert logged["train/n_updates"] >= (1 if whole else 2) * model.n_epochs  # a rollout of episodes may be longer
    assert logged.get("train/first_ratio_error", 0.0) < 1e-4  # none where no action was a choice
    assert all(math.isfinite(value) for name, value in logged.items() if name != "train/explained_variance")
    file = io.BytesIO()
    model.save(file)
    loaded = method.load(file)
    for agent in (model, loaded):
        agent.policy.seed(1)
    observation, _ = env.reset(seed=1)
    action, _ = model.predict(observation)
    assert env.action_space.contains(action)
    assert (loaded.predict(observation)[0] == action).all()


@pytest.mark.parametrize("method", [TWOSOME, GLAM, BADQ])
def test_a_method_that_cannot_act_names_one_that_can(method: Any) -> None:
    with pytest.raises(UnsupportedEnvError, match=rf"admissible actions for {method.__name__}.*Fix: POAD, NTPO"):
        method("LLMPolicy", "DataSciCoding-balance-scale-v0")


def test_a_way_to_act_that_the_environment_does_not_have() -> None:
    with pytest.raises(UnsupportedEnvError, match=r"Expected action_sampling='free'.*got 'trie'. Fix: leave it out"):
        POAD("LLMPolicy", "DataSciCoding-balance-scale-v0", action_sampling="trie")


def test_the_choice_is_logged_once_and_kept_in_the_checkpoint(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    model = POAD("LLMPolicy", "DataSciCoding-balance-scale-v0", n_steps=1, verbose=1)
    model.learn(1)
    model.learn(1)
    assert capsys.readouterr().out.count("action_sampling='free', model='pocket-coder'") == 1
    model.save(tmp_path / "model.zip")
    loaded = POAD.load(tmp_path / "model.zip")
    assert (loaded.action_sampling, loaded.policy_kwargs["model"]) == ("free", "pocket-coder")


def test_an_environment_of_text_is_written_to_by_the_pocket_model(monkeypatch: pytest.MonkeyPatch) -> None:
    thinker = POAD(
        "LLMPolicy", OpenLampEnv(), action_sampling="think", max_thought_tokens=3, max_new_tokens=4, n_steps=4
    )
    thinker.learn(8)
    assert thinker.logger.name_to_value["train/first_ratio_error"] < 1e-4
    assert thinker.logger.name_to_value["rollout/too_long_share"] == 0
    model = POAD("LLMPolicy", OpenLampEnv(), n_steps=2, max_new_tokens=4).learn(2)
    assert (model.action_sampling, model.policy.lm.source.name) == ("free", "pocket")
    observation, _ = AdmissibleObservation(OpenLampEnv()).reset(seed=0)
    assert model.action_space.contains(model.predict(observation)[0])
    monkeypatch.setitem(OpenLampEnv.metadata, "actions", "sung")
    with pytest.raises(UnsupportedEnvError, match=r"one of .*'listed', 'text', 'code'.*got 'sung'"):
        POAD("LLMPolicy", OpenLampEnv())


@pytest.mark.one_table
@pytest.mark.parametrize(("number", "env_id"), list(enumerate(IDS)), ids=IDS)
def test_one_method_on_every_id(number: int, env_id: str) -> None:
    row = ENV_ROWS[number]
    methods = supported(row)
    learn(row, methods[number % len(methods)])


FOREIGN = {row.id: row for row in FOREIGN_ROWS}


@pytest.mark.parametrize(
    "env_id",
    [
        "BabyAIText-GoToRedBall-v0",
        *(
            pytest.param(f"{name}-v0", marks=pytest.mark.matrix)
            for name in ("TextWorld-Simple", "TextArena-FrozenLake")
        ),
    ],
)
def test_a_training_on_a_task_of_another_package_resumes_exactly(env_id: str) -> None:
    pytest.importorskip(FOREIGN[env_id].extra)
    straight, file = POAD("LLMPolicy", env_id, n_steps=8, seed=0).learn(8), io.BytesIO()
    straight.save(file)
    resumed = POAD.load(file, env_id)
    for model in (straight, resumed):
        model.learn(16, reset_num_timesteps=False)
    weights = [model.policy.state_dict() for model in (straight, resumed)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert resumed.num_timesteps == 24


@pytest.mark.slow
@pytest.mark.parametrize("row", ENV_ROWS, ids=lambda row: row.id)
def test_every_method_on_every_id(row: EnvRow) -> None:
    for method in supported(row):
        learn(row, method)


@pytest.mark.parametrize(
    ("env_id", "kind"),
    [
        ("KeyToken-v0", "environment"),
        pytest.param("DataSciCoding-balance-scale-v0", "DummyVecEnv", marks=pytest.mark.matrix),
        pytest.param("KeyToken-v0", "SubprocVecEnv", marks=pytest.mark.matrix),
    ],
)
def test_sb3_evaluates_on_the_bare_environment(env_id: str, kind: str, tmp_path: Path) -> None:
    make: Any = partial(gym.make, f"lang_envs:{env_id}")
    env = make() if kind == "environment" else getattr(vec_env, kind)([make] * 2)
    model = POAD("LLMPolicy", make(), n_steps=2)
    if kind != "SubprocVecEnv":  # SB3 warns where the training has a vector of another class
        model.learn(2, EvalCallback(env, eval_freq=1, n_eval_episodes=1, log_path=str(tmp_path), warn=False, verbose=0))
        assert np.load(tmp_path / "evaluations.npz")["results"].shape == (2, 1)
    mean, _ = evaluate_policy(model, env, n_eval_episodes=2, deterministic=False, warn=False)
    assert math.isfinite(mean)
    env.close()


def test_a_policy_takes_what_its_obs_to_tensor_returned() -> None:
    env = gym.make("KeyToken-v0")
    observation, _ = env.reset(seed=0)
    policy = POAD("LLMPolicy", env, n_steps=2).policy
    questions, is_batch = policy.obs_to_tensor(observation)
    assert not is_batch
    assert policy.predict_values(questions) == policy.predict_values(observation)
    assert policy(questions)[0].shape == (1, *env.action_space.shape)


@pytest.mark.parametrize(
    ("wrong", "match"), [("pocket", "policy_kwargs to be a dict"), ({"lora": 4}, "lora to be a dict")]
)
def test_policy_arguments_of_a_wrong_type_are_named(wrong: Any, match: str) -> None:
    with pytest.raises(TypeError, match=f"Expected {match}.* Fix: "):
        POAD("LLMPolicy", "KeyToken-v0", policy_kwargs=wrong)


def test_shared_memory_drops_the_list_and_the_error_says_what_to_do() -> None:
    envs = gym.make_vec("KeyToken-v0", num_envs=2, vectorization_mode="async")
    texts, infos = envs.reset(seed=0)
    envs.close()
    model = POAD("LLMPolicy", "KeyToken-v0", n_steps=2)
    with pytest.raises(
        ObservationError, match=r"carries its admissible actions; got tuple\. Fix: .*admissible_actions=info"
    ):
        model.predict(texts)
    actions, _ = model.predict(texts, admissible_actions=list(infos["admissible_actions"]))
    assert actions.shape == (2, model.action_space.shape[0])
