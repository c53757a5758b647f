"""Recorded trajectories of the original kitchen replay through the public interface."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

GOLDEN = Path(__file__).parents[4] / "data" / "golden"
FILES = {
    "Overcooked-TomatoSalad-v0": "tomato_salad.jsonl.gz",
    "Overcooked-TomatoLettuceSalad-v0": "tomato_lettuce_salad.jsonl.gz",
}
DISCOUNT = 0.99


def episodes_of(env_id: str) -> list[dict[str, Any]]:
    with gzip.open(GOLDEN / FILES[env_id], "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="module", params=FILES)
def recorded(request: pytest.FixtureRequest) -> tuple[gym.Env, list[dict[str, Any]]]:
    return gym.make(request.param), episodes_of(request.param)


def test_trajectories_replay(recorded: tuple[gym.Env, list[dict[str, Any]]]) -> None:
    env, episodes = recorded
    for episode in episodes:
        where = f"{episode['policy']} seed {episode['seed']}"
        _, info = env.reset(seed=max(episode["seed"], 0))
        assert info["primitive_steps"] == 0, where
        total = discounted = 0.0
        clock = 0
        for number, step in enumerate(episode["steps"]):
            at = f"{where} step {number}"
            assert info["features"].tolist() == step["features"], at
            assert info["admissible_actions"] == step["admissible"], at
            assert step["admissible"][step["action_index"]] == step["action_text"], at
            tokens = env.action_space.encode(step["action_text"])
            _, reward, terminated, truncated, info = env.step(tokens)
            assert reward == pytest.approx(step["reward"], rel=0, abs=1e-9), at
            assert terminated is step["terminated"], at
            assert truncated is (step["truncated_or_done"] and not step["terminated"]), at
            assert info["primitive_steps"] == step["info_primitive_steps"] == len(step["primitives"]), at
            assert info["success"] is step["terminated"], at
            assert info["invalid_action"] is False, at
            total, discounted = total + reward, discounted + DISCOUNT**clock * reward
            clock += info["primitive_steps"]
            assert clock == step["env_step"] == env.unwrapped.elapsed_primitives, at
        assert terminated or truncated, where
        assert info["features"].tolist() == episode["final_features"], where
        assert info["admissible_actions"] == episode["final_admissible"], where
        assert terminated is episode["delivered"], where
        assert (number + 1, clock) == (episode["length"], episode["primitive_length"]), where
        assert total == pytest.approx(episode["episode_return"], rel=0, abs=1e-9), where
        assert discounted == pytest.approx(episode["info_episode_r"], rel=0, abs=1e-9), where


def test_one_sentence_for_each_set_of_facts(recorded: tuple[gym.Env, list[dict[str, Any]]]) -> None:
    env, episodes = recorded
    sentences, facts = defaultdict(set), defaultdict(set)
    for episode in episodes:
        text, _ = env.reset()
        for step in episode["steps"]:
            told = json.dumps(step["text_facts"], sort_keys=True)
            sentences[told].add(text)
            facts[text].add(told)
            text, *_ = env.step(env.action_space.encode(step["action_text"]))
    assert len(sentences) > 10
    assert {told: texts for told, texts in sentences.items() if len(texts) > 1} == {}
    assert {text: told for text, told in facts.items() if len(told) > 1} == {}
