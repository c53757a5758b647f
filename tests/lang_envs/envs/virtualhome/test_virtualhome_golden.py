"""Recorded trajectories of the original homes replay through the public interface."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

GOLDEN = Path(__file__).parents[4] / "data" / "golden"
FULL_RECORD = {"random_admissible": 60, "random_all": 12, "eps_optimal": 20, "mixed_all": 12, "optimal": 1}
VARIANT_RECORD = {"random_admissible": 1, "optimal": 1}
DISCOUNT = 0.95

# id: (file, variant in it, episodes of each policy, successes, refused commands)
RECORDS: dict[str, tuple[str, str | None, dict[str, int], int, int]] = {
    "VirtualHome-FoodPreparation-v0": ("food_preparation", None, FULL_RECORD, 34, 375),
    "VirtualHome-Entertainment-v0": ("entertainment", None, FULL_RECORD, 33, 524),
    "VirtualHome-Cheese-v0": ("variants", "Cheese", VARIANT_RECORD, 1, 3),
    "VirtualHome-Hamburger-v0": ("variants", "Hamburger", VARIANT_RECORD, 1, 2),
    "VirtualHome-ApplePie-v0": ("variants", "Apple Pie", VARIANT_RECORD, 1, 0),
    "VirtualHome-Pizza-v0": ("variants", "Pizza", VARIANT_RECORD, 1, 1),
    "VirtualHome-WashingPlate-v0": ("variants", "Washing Plate", VARIANT_RECORD, 1, 0),
    "VirtualHome-Laundry-v0": ("variants", "Laundry", VARIANT_RECORD, 1, 0),
}


def episodes_of(file: str, variant: str | None) -> list[dict[str, Any]]:
    with gzip.open(GOLDEN / f"virtualhome_{file}.jsonl.gz", "rt", encoding="utf-8") as lines:
        episodes = [json.loads(line) for line in lines]
    return [episode for episode in episodes if episode["variant"] == variant]


@pytest.mark.every_id
@pytest.mark.parametrize("env_id", RECORDS)
def test_trajectories_replay(env_id: str) -> None:
    env = gym.make(env_id)
    for episode in episodes_of(*RECORDS[env_id][:2]):
        where = f"{episode['policy']} seed {episode['seed']}"
        _, info = env.reset(seed=episode["seed"])
        assert info["command_succeeded"] is False, where
        returned = 0.0
        for number, step in enumerate(episode["steps"]):
            at = f"{where} step {number}"
            assert info["features"].tolist() == step["features"], at
            assert info["admissible_actions"] == step["admissible"], at
            assert env.unwrapped.command_set[step["action_index"]] == step["action_text"], at
            _, reward, terminated, truncated, info = env.step(env.action_space.encode(step["action_text"]))
            assert reward == step["reward"], at
            assert terminated is step["terminated"], at
            assert truncated is (step["truncated_or_done"] and not step["terminated"]), at
            assert info["command_succeeded"] is step["succeed"], at
            assert info["success"] is step["terminated"], at
            assert info["invalid_action"] is False, at
            returned += DISCOUNT**number * reward
        assert terminated or truncated, where
        assert number + 1 == episode["length"] == env.unwrapped.elapsed_steps, where
        assert info["features"].tolist() == episode["final_features"], where
        assert info["admissible_actions"] == episode["final_admissible"], where
        assert returned == pytest.approx(episode["episode_return"], rel=0, abs=1e-12), where
