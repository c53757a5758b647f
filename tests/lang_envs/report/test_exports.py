"""Exports of recorded episodes: the real packages read back what was recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest

import lang_envs
from lang_envs import LangEnvsError
from lang_envs.report.exports import to_inspect, to_minari
from lang_envs.report.results import Results
from lang_envs.wrappers import TextAction

SALAD = "Overcooked-TomatoSalad-v0"


class Recorded(NamedTuple):
    header: dict[str, Any]
    episodes: list[dict[str, Any]]


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    """Two episodes by the oracle, tokens in one of them."""
    episodes = []
    with TextAction(gym.make(SALAD, disable_env_checker=True)) as env:
        for number in range(2):
            text, info = env.reset(seed=number)
            steps: list[dict[str, Any]] = []
            while not steps or not (steps[-1]["terminated"] or steps[-1]["truncated"]):
                listed, shown = info["admissible_actions"], str(text)
                action = lang_envs.oracle(env.unwrapped)
                text, reward, terminated, truncated, info = env.step(action)
                token_fields = (
                    {"tokens": ["a", "b"], "log_probs": [-0.5, -1.0], "values": [0.25, 0.5]} if number else {}
                )
                step = {"observation": shown, "admissible_actions": listed, "action": action, "reward": float(reward)}
                steps.append(step | {"terminated": terminated, "truncated": truncated} | token_fields)
            steps[-1]["final_observation"] = str(text)
            total, success = sum(step["reward"] for step in steps), bool(info["success"])
            line = {"env": SALAD, "seed": 0, "episode": number, "agent": "oracle", "reset_seed": number}
            counts = {"return": total, "success": success, "steps": len(steps), "invalid_actions": 0}
            episodes.append(line | counts | {"steps_list": steps})
    header = {"format": 1, "agent": {"name": "oracle"}, "envs": [{"id": SALAD, "discount": 0.99}], "env_settings": {}}
    return Recorded(header, episodes)


@pytest.mark.filterwarnings("ignore:`\\w+` is set to None:UserWarning")
def test_minari_reads_the_episodes(recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    minari = pytest.importorskip("minari")
    pytest.importorskip("h5py")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    to_minari(recorded, "salad/oracle-v0", author="test", data_format="hdf5")
    dataset = minari.load_dataset("salad/oracle-v0")
    assert dataset.total_episodes == 2
    for recording, episode in zip(dataset.iterate_episodes(), recorded.episodes, strict=True):
        steps = episode["steps_list"]
        assert list(recording.observations) == [
            *(step["observation"] for step in steps),
            steps[-1]["final_observation"],
        ]
        assert list(recording.actions) == [step["action"] for step in steps]
        assert recording.rewards.tolist() == [step["reward"] for step in steps]
        assert recording.terminations.tolist() == [step["terminated"] for step in steps]
        assert len(recording.infos["value"]) == len(steps) + 1
        expected = [-1.5 if episode["episode"] else np.nan] * len(steps) + [np.nan]
        np.testing.assert_array_equal(recording.infos["log_prob"], expected)
        texts = [json.loads(text) for text in recording.infos["admissible_actions"]]
        assert texts[:-1] == [step["admissible_actions"] for step in steps]
    env = dataset.recover_environment()
    env.reset(seed=0)
    assert (
        env.step(recorded.episodes[0]["steps_list"][0]["action"])[1] == recorded.episodes[0]["steps_list"][0]["reward"]
    )
    env.close()


@pytest.mark.parametrize("name", ["log.eval", "log.json"])
def test_inspect_reads_the_episodes(recorded: Recorded, tmp_path: Path, name: str) -> None:
    log = pytest.importorskip("inspect_ai.log")
    read = log.read_eval_log(str(to_inspect(recorded, tmp_path / "logs" / name)))
    assert (read.status, read.eval.model, read.eval.task) == ("success", "oracle", SALAD)
    means = {score.name: score.metrics["mean"].value for score in read.results.scores}
    assert means["return"] == pytest.approx(np.mean([episode["return"] for episode in recorded.episodes]))
    for sample, episode in zip(read.samples, recorded.episodes, strict=True):
        assert sample.scores["return"].value == episode["return"]
        answers = [message.content for message in sample.messages if message.role == "assistant"]
        assert answers == [step["action"] for step in episode["steps_list"]]
        questions = [message.content for message in sample.messages if message.role == "user"]
        for text, step in zip(questions, episode["steps_list"], strict=True):
            assert text.startswith(step["observation"])
            assert all(f"\n- {action}" in text for action in step["admissible_actions"])


def test_what_cannot_be_exported_is_refused(recorded: Recorded, tmp_path: Path) -> None:
    pytest.importorskip("minari")
    other = {**recorded.episodes[0], "env": "KeyToken-v0"}
    with pytest.raises(LangEnvsError, match="Expected episodes of one environment"):
        to_minari(recorded._replace(episodes=[*recorded.episodes, other]), "a-v0")
    without = {**recorded.episodes[0], "steps_list": None}
    with pytest.raises(LangEnvsError, match="run with --steps"):
        to_minari(recorded._replace(episodes=[without]), "a-v0")


@pytest.mark.parametrize("name", ["salad/poad-v", "../x v0"])
def test_a_data_set_needs_a_name_with_a_version(name: str) -> None:
    results = Results({"agent": {"name": "a"}, "env_settings": {}}, [])
    with pytest.raises(LangEnvsError, match="a name with a version"):
        to_minari(results, name)
