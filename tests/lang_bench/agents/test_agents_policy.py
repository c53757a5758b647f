"""Trained, fresh and zero-shot language models as agents."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from playing import play, texts

from lang_bench.agents import AgentError, make_agent
from lang_bench.agents.policy import PolicyAgent
from lang_bench.runner.episodes import Step, make_text_env, play_episode
from lang_bench.runner.plan import Job
from lang_bench.runner.records import step_records
from lang_envs import TokenSequence
from lang_envs.report.results import check_step
from poad_sb3 import BADQ, NTPO, POAD, TWOSOME, CheckpointError
from poad_sb3.distributions.base import Leaves, TokenPath
from poad_sb3.pocket import POCKET_FOLDER
from poad_sb3.prompts import Question

torch.set_num_threads(1)
SALAD, CODING = "Overcooked-TomatoSalad-v0", "DataSciCoding-iris-v0"
SPACE = TokenSequence(max_length=96)
TRAINED = {"POAD": POAD, "NTPO": NTPO, "TWOSOME": TWOSOME}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A checkpoint of each method after one short rollout."""
    folder = tmp_path_factory.mktemp("checkpoints")
    made = {}
    for name, kind in TRAINED.items():
        model = kind("LLMPolicy", SALAD, n_steps=32, batch_size=32, n_epochs=1, seed=0, device="cpu")
        model.learn(32).save(folder / name)
        made[name] = folder / f"{name}.zip"
    BADQ("BADQPolicy", SALAD, seed=0, device="cpu").save(folder / "BADQ")
    return {**made, "BADQ": folder / "BADQ.zip"}


@pytest.mark.parametrize(
    "name", ["POAD", *(pytest.param(name, marks=pytest.mark.matrix) for name in ("NTPO", "TWOSOME"))]
)
def test_a_checkpoint_acts_as_the_model_predicts_and_knows_its_credit(name: str, checkpoints: dict[str, Path]) -> None:
    agent = make_agent(f"checkpoint:{checkpoints[name]}", device="cpu", deterministic=True)
    model = TRAINED[name].load(checkpoints[name], device="cpu")
    for step in play(SALAD, agent, most=4):
        text, credit = step.decision.text, step.decision.credit
        tokens, _ = model.predict(step.observation, deterministic=True, admissible_actions=step.actions)
        assert SPACE.decode(tokens) == text
        assert credit is not None
        assert "".join(credit.tokens[:-1]).strip() == text
        assert len(credit.tokens) == len(credit.log_probs) == len(credit.values) > 2
        probability = model.policy.action_probabilities(step.observation, step.actions)[text]
        assert np.exp(sum(credit.log_probs)) == pytest.approx(probability, rel=1e-4)
        observed = {"text": step.observation, "admissible_actions": json.dumps(step.actions)}
        assert credit.values[0] == pytest.approx(float(model.policy.predict_values(observed)[0]), abs=1e-5)
        assert (len(set(credit.values)) == 1) == (name == "TWOSOME")  # it values whole actions


def test_recorded_steps_have_the_credit_of_further_critics(tmp_path: Path) -> None:
    made = {}
    for critic in ("token", "dueling", "marginal"):
        model = POAD("LLMPolicy", "MultiKey-v0", critic=critic, n_steps=32, n_epochs=1, seed=0, device="cpu").learn(32)
        made[critic] = model
        model.save(tmp_path / critic)
    others = [str(tmp_path / f"{critic}.zip") for critic in ("dueling", "marginal", "token")]
    agent = make_agent(f"checkpoint:{tmp_path / 'token'}.zip", device="cpu", critics=",".join(others))
    steps: list[Step] = []
    play_episode(make_text_env("MultiKey-v0", {}), agent, 0, 1.0, steps.append)
    records = step_records(Job("MultiKey-v0", 0, 0), steps)
    check_step(json.loads(json.dumps(records[0])))
    assert "critic_values" not in records[0]
    for record in records:
        assert list(record["credits"]) == others
        assert record["credits"][others[2]] == pytest.approx(record["advantages"]["POAD"])
    policy, actions, text = made["token"].policy, tuple(steps[0].admissible_actions), steps[0].decision.text
    chances = policy.action_probabilities(steps[0].observation, actions)
    leaves = Leaves(tuple(map(policy.lm.action_ids, actions)), tuple(chances.values()))
    prompt = policy.distribution.prompt(Question(steps[0].observation, actions))
    path = TokenPath(prompt, policy.lm.action_ids(text), ())
    for critic in ("dueling", "marginal"):
        expected = made[critic].policy.token_values([path._replace(leaves=leaves)]).values[0]
        assert steps[0].fields["critic_values"][str(tmp_path / f"{critic}.zip")] == pytest.approx(expected, abs=1e-5)


def test_a_critic_of_another_model_is_refused(checkpoints: dict[str, Path]) -> None:
    with pytest.raises(AgentError, match=r"Expected critics of trainings on the same base .*BADQ\.zip has none"):
        make_agent(f"checkpoint:{checkpoints['POAD']}", device="cpu", critics=str(checkpoints["BADQ"]))


def test_the_thought_is_the_note_and_a_critic_of_listed_actions_does_not_judge_it(tmp_path: Path) -> None:
    small = {"n_steps": 8, "seed": 0, "device": "cpu"}
    POAD("LLMPolicy", "MultiKey-v0", action_sampling="think", max_thought_tokens=2, **small).save(tmp_path / "think")
    POAD("LLMPolicy", "MultiKey-v0", critic="marginal", **small).save(tmp_path / "marginal")
    with pytest.raises(AgentError, match=r"Expected critics of paths with thoughts; that of .*marginal\.zip averages"):
        make_agent(f"checkpoint:{tmp_path / 'think'}.zip", device="cpu", critics=str(tmp_path / "marginal.zip"))
    for name, settings in ((f"checkpoint:{tmp_path / 'think'}.zip", {}), ("hf:pocket", {"action_sampling": "think"})):
        steps = play("MultiKey-v0", make_agent(name, device="cpu", **settings), seed=0)
        assert all(step.decision.note.endswith("</think>") for step in steps)
        assert all("think" not in step.decision.text for step in steps)
    agent = make_agent("hf:pocket", device="cpu", action_sampling="think", max_thought_tokens=3, max_new_tokens=5)
    agent.begin(make_text_env("MultiKey-v0", {}), 0)
    decision = agent.act("Say a word.", {"admissible_actions": None})
    assert decision.note.endswith("</think>")
    assert "think" not in decision.text


def test_samples_follow_from_the_seed_whatever_was_played_before(checkpoints: dict[str, Path]) -> None:
    agent = make_agent(f"checkpoint:{checkpoints['POAD']}", device="cpu")
    first, second = (texts(play(SALAD, agent, seed=seed)) for seed in (0, 1))
    assert first != second
    assert texts(play(SALAD, make_agent(f"checkpoint:{checkpoints['POAD']}", device="cpu"), seed=1)) == second
    assert texts(play(SALAD, agent, seed=0)) == first


def test_settings_identify_a_checkpoint(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    settings = make_agent(f"checkpoint:{checkpoints['NTPO']}", device="cpu").settings
    assert settings.items() >= {"algorithm": "NTPO", "steps": 32, "model": "pocket", "deterministic": False}.items()
    run = tmp_path / "run"
    run.mkdir()
    shutil.copy(checkpoints["NTPO"], run / "latest.zip")
    shutil.copytree(POCKET_FOLDER, tmp_path / "elsewhere")
    moved = make_agent(f"checkpoint:{run}", device="cpu", model=str(tmp_path / "elsewhere"))
    assert moved.settings["sha256"] == settings["sha256"]
    assert moved.settings["model"] == str(tmp_path / "elsewhere")


def test_an_agent_of_the_zoo_plays_without_values() -> None:
    agent = make_agent("zoo:Overcooked-TomatoSalad-v0/pocket/POAD", deterministic=True, device="cpu")
    assert agent.settings["row"] == "Overcooked-TomatoSalad-v0/pocket/POAD"
    steps = play(SALAD, agent)
    assert texts(steps)[-1] == "serve the dish"
    assert {step.decision.credit.values for step in steps} == {()}
    with pytest.raises(CheckpointError, match="Expected one agent; several are"):
        make_agent("zoo:Overcooked-TomatoSalad-v0")


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="There is no checkpoint"):
        make_agent(f"checkpoint:{tmp_path / 'none.zip'}")
    (tmp_path / "bad.zip").write_bytes(b"PK")
    with pytest.raises(CheckpointError, match="truncated or corrupt"):
        make_agent(f"checkpoint:{tmp_path / 'bad.zip'}")
    with pytest.raises(AgentError, match="Expected checkpoint:PATH"):
        make_agent("checkpoint")


def test_earlier_steps_reach_a_prompt_that_shows_them() -> None:
    agent = make_agent("hf:pocket", device="cpu", action_sampling="trie", prompt={"kind": "completion", "history": 2})
    steps = play(SALAD, agent, most=3)
    read = [step.decision.usage.prompt_tokens for step in steps]
    assert read[0] < read[1] < read[2]
    again = play(SALAD, agent, most=1)
    assert again[0].decision.usage.prompt_tokens == read[0]


# ---------------------------------------------------------------------- zero-shot


def best(model: Any, text: str, actions: list[str], divisor: Any) -> str:
    """By brute force: the action of the largest log-probability, divided by its length."""

    def score(action: str) -> float:
        prompt, ids = model.prompt_ids(text), model.action_ids(action)
        row = torch.tensor([[*prompt, *ids]])
        log_probs = model.base(row).logits.log_softmax(-1)[0]
        places = range(len(prompt) - 1, len(prompt) + len(ids) - 1)
        return float(sum(log_probs[place, token] for place, token in zip(places, ids, strict=True))) / divisor(ids)

    with torch.no_grad():
        return max(actions, key=score)


@pytest.mark.parametrize(("normalization", "divisor"), [("sum", lambda ids: 1), ("token", len)])
def test_candidates_are_ranked_by_their_log_probabilities(normalization: str, divisor: Any) -> None:
    agent = make_agent("hf:pocket", device="cpu", normalization=normalization)
    assert isinstance(agent, PolicyAgent)
    for step in play(SALAD, agent, most=3):
        expected = best(agent.policy.lm, step.observation, step.actions, divisor)
        assert step.decision.text == expected
        assert step.decision.credit is not None
        assert step.decision.credit.values == ()


def test_a_model_that_writes_freely_is_understood_and_counted() -> None:
    agent = make_agent("hf:pocket", device="cpu", action_sampling="free", max_new_tokens=6)
    (step,) = play(SALAD, agent, most=1)
    assert 0 < step.decision.usage.completion_tokens <= 6
    sampled = make_agent(
        "hf:pocket", device="cpu", action_sampling="free", max_new_tokens=6, deterministic=False, temperature=9.0
    )
    said = [texts(play(SALAD, sampled, seed=seed, most=2)) for seed in (0, 1, 0)]
    assert said[0] == said[2] != said[1]
