"""Earlier steps and fields of `info`, from the environment to the prompt, and through checkpoints."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecMonitor
from toy import LampEnv, make_agent
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from lang_envs import InfoError
from lang_envs.wrappers import AdmissibleObservation
from poad_sb3 import ARCHER, BADQ, POAD, ObservationError, UnsupportedEnvError
from poad_sb3.pocket import POCKET_FOLDER
from poad_sb3.prompts import PastStep, Question
from poad_sb3.prompts.templates import ContextSpec
from poad_sb3.vec_env.text_observations import VecAdmissibleObservation, parse_observation, wrap_language_env

SMALL = {"critic_arch": (8,)}
SHOWS = {**SMALL, "prompt": {"kind": "completion", "history": 2}}


def question(observation: Any) -> Question:
    (parsed,), _ = parse_observation(observation)
    return parsed


def played(env: gym.Env[Any, Any], n: int, seed: int = 0) -> list[tuple[Question, str]]:
    """Questions of some steps, each with the action that followed."""
    observation, info = env.reset(seed=seed)
    steps = []
    for number in range(n):
        action = info["admissible_actions"][number % len(info["admissible_actions"])]
        steps.append((question(observation), action))
        observation, _, terminated, truncated, info = env.step(env.action_space.encode(action))
        if terminated or truncated:
            steps.append((question(observation), "(over)"))
            observation, info = env.reset()
    return steps


def test_the_latest_steps_are_packed_and_an_episode_starts_without() -> None:
    steps = played(AdmissibleObservation(LampEnv(moves=4), history=2), 9)
    past: list[PastStep] = []
    for question_of_step, action in steps:
        assert question_of_step.context is not None
        assert list(question_of_step.context.history) == past[-2:]
        past = [] if action == "(over)" else [*past, PastStep(question_of_step.text, action)]
    assert sum(action == "(over)" for _, action in steps) == 2


@pytest.mark.parametrize("make", [DummyVecEnv, partial(SubprocVecEnv, start_method="fork")])
def test_a_vector_packs_what_each_of_its_environments_would(make: Any) -> None:
    def rolled(vector: Any) -> list[Any]:
        vector.seed(3)
        observation, all_seen = vector.reset(), []
        for _ in range(9):
            questions = parse_observation(observation)[0]
            actions = np.stack([vector.action_space.encode((parsed.actions or ())[0]) for parsed in questions])
            observation, _, dones, infos = vector.step(actions)
            ends = [question(info["terminal_observation"]) for done, info in zip(dones, infos, strict=True) if done]
            all_seen.append((questions, ends))
        vector.close()
        return all_seen

    inner = [partial(AdmissibleObservation, LampEnv(moves=n), history=2) for n in (2, 4)]
    outer = [partial(LampEnv, moves=n) for n in (2, 4)]
    wrapped = wrap_language_env(make(outer), ContextSpec(history=2))
    assert isinstance(wrapped, VecAdmissibleObservation)
    ours, theirs = rolled(wrapped), rolled(make(inner))
    assert ours == theirs
    assert any(ends for _, ends in ours)


def test_fields_of_info_are_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    env = AdmissibleObservation(gym.make("DataSciCoding-balance-scale-v0"), fields=("prefix", "suffix"))
    observation, info = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    parsed = question(observation)
    assert parsed.context is not None
    assert dict(parsed.context.fields) == {"prefix": info["prefix"], "suffix": info["suffix"]}
    env.close()
    with pytest.raises(InfoError, match=r"^Expected info\['prefix'\] to be a str.*Fix: leave it out of fields"):
        AdmissibleObservation(LampEnv(), fields=("prefix",)).reset()


@pytest.mark.parametrize("packed", ["{", '{"history": [["a"]], "fields": {}}'])
def test_a_damaged_context_is_refused(packed: str) -> None:
    with pytest.raises(ObservationError, match="Expected context as JSON of history and fields"):
        parse_observation({"text": "a", "admissible_actions": "null", "context": packed})
    with pytest.raises(ObservationError, match="Expected text, admissible_actions and context to be str"):
        parse_observation({"text": "a", "admissible_actions": "null", "context": 3})


# ------------------------------------------------------------------ in training


def test_values_are_of_the_prompts_that_are_acted_on() -> None:
    """Where the context is tight, the room that an action needs decides how much history is shown."""
    kwargs = {**SMALL, "prompt": {"kind": "completion", "history": 40}, "model": random_coder}
    model = POAD("LLMPolicy", LampEnv(moves=60), n_steps=45, seed=0, action_sampling="free", max_new_tokens=3900,
                 policy_kwargs=kwargs, _init_setup_model=False)  # fmt: skip
    model._setup_model()
    policy, limit = model.policy, model.policy.lm.max_length
    env = AdmissibleObservation(LampEnv(moves=60), history=40)
    observation, _ = env.reset(seed=0)
    for _ in range(30):
        observation, *_ = env.step(env.action_space.encode("wait"))  # type: ignore[attr-defined]
    with pytest.warns(UserWarning, match="does not fit"):
        (prompt,) = policy.prompts(observation)
    assert len(prompt) <= limit - 3900
    assert prompt == policy.distribution.prompt(question(observation))


def last_prompt(model: POAD) -> str:
    path = model.rollout_buffer.steps[-1][0].path
    return str(model.policy.lm.tokenizer.decode(path.prompt))


@pytest.mark.parametrize("env", ["env", "vector", "wrapped"])
def test_the_prompt_shows_the_history_in_training(env: str) -> None:
    environment: Any = {
        "env": lambda: LampEnv(moves=5),
        "vector": lambda: VecMonitor(DummyVecEnv([partial(LampEnv, moves=5)] * 2)),
        "wrapped": lambda: AdmissibleObservation(LampEnv(moves=5), history=2),
    }[env]()
    model = POAD("LLMPolicy", environment, n_steps=14, seed=0, policy_kwargs=SHOWS).learn(14)
    text = last_prompt(model)  # the fourth step of an episode of five
    assert [f"You have {left} moves left." in text for left in (4, 3, 2, 1)] == [True, True, True, False]
    assert text.count("\n") == 2


def test_an_environment_without_history_is_refused() -> None:
    with pytest.raises(UnsupportedEnvError, match="Expected an environment that brings what the prompt shows"):
        POAD("LLMPolicy", AdmissibleObservation(LampEnv()), policy_kwargs=SHOWS)
    model = POAD("LLMPolicy", LampEnv(), n_steps=8, policy_kwargs=SHOWS)
    with pytest.raises(ObservationError, match=r"Expected the latest steps beside the observation: the prompt shows 2"):
        model.predict("The lamp is red.", admissible_actions=["wait", "press it"])


@pytest.mark.matrix
@pytest.mark.parametrize(("n_envs", "stop_at"), [(1, 26), (2, 24)])
def test_training_resumes_exactly_in_mid_episode(tmp_path: Path, n_envs: int, stop_at: int) -> None:
    """The history so far belongs to the checkpoint."""
    kwargs = {"n_envs": n_envs, "env": {"moves": 5}, "policy_kwargs": SHOWS, "n_steps": 8 if n_envs == 1 else 4}
    whole = make_agent(**kwargs).learn(48)
    half = make_agent(**kwargs).learn(stop_at)
    half.save(tmp_path / "half.zip")
    assert half.num_timesteps < 48
    lamps = LampEnv(moves=5) if n_envs == 1 else DummyVecEnv([partial(LampEnv, moves=5)] * 2)
    rest = POAD.load(tmp_path / "half.zip", lamps)
    rest.learn(48 - rest.num_timesteps, reset_num_timesteps=False)
    assert last_prompt(rest) == last_prompt(whole)
    for mine, theirs in zip(whole.policy.parameters(), rest.policy.parameters(), strict=True):
        assert np.array_equal(mine.detach().numpy(), theirs.detach().numpy())


def test_badq_sees_the_history() -> None:
    model = BADQ("LLMPolicy", LampEnv(moves=4), seed=0, learning_starts=8, policy_kwargs=SHOWS).learn(24)
    shown = [past for past in model.replay_buffer.latest_questions(20) if past.context and past.context.history]
    assert shown


# ------------------------------------------------------------------ an open action space, end to end


def random_coder() -> tuple[Any, Any]:
    """A tiny untrained model, with room for a page of text."""
    tokenizer = AutoTokenizer.from_pretrained(POCKET_FOLDER)
    config = LlamaConfig(vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=2,
                         num_attention_heads=2, max_position_embeddings=4096)  # fmt: skip
    torch.manual_seed(0)
    return LlamaForCausalLM(config), tokenizer


@pytest.mark.parametrize(
    ("kind", "prompt"),
    [
        (POAD, "completion"),
        pytest.param(ARCHER, {"kind": "fim", "tokens": ["<s>", "<pad>", "</s>"]}, marks=pytest.mark.matrix),
    ],
)
def test_free_code_trains_and_resumes(tmp_path: Path, kind: type[POAD], prompt: Any) -> None:
    """Plumbing, not skill: a model without any Python writes code, sees its score, learns, and resumes."""
    coding = partial(make_vec_env, "DataSciCoding-balance-scale-v0", 2, env_kwargs={"max_attempts": 2})
    settings = {"action_sampling": "free", "max_new_tokens": 12, "temperature": 0.7, "top_k": 50, "stop": ["\n\n"]}
    policy = {**SMALL, "prompt": prompt, "model": random_coder}
    make = partial(kind, "LLMPolicy", n_steps=2, batch_size=4, seed=0, policy_kwargs=policy, **settings)  # type: ignore[arg-type]
    whole = make(env=coding()).learn(8)
    assert whole.logger.name_to_value["train/first_ratio_error"] < 1e-4
    assert [episode["l"] for episode in whole.ep_info_buffer or ()] == [2] * 4
    assert whole.policy.lm.prompter.template.kind == (prompt if isinstance(prompt, str) else "fim")
    half = make(env=coding()).learn(4)
    half.save(tmp_path / "half.zip")
    rest = kind.load(tmp_path / "half.zip", coding()).learn(4, reset_num_timesteps=False)
    for mine, theirs in zip(whole.policy.parameters(), rest.policy.parameters(), strict=True):
        assert torch.equal(mine, theirs)
