"""The estimators that train equal the golden vectors; see data/golden/credit."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poad_sb3.credit.estimators import (
    ESTIMATORS,
    GAE,
    BiLevelGAE,
    EpisodeReturn,
    Estimator,
    GiGPOSum,
    ReturnToGo,
    Rollout,
)

ROOT = Path(__file__).parents[3]
CASES = json.loads((ROOT / "data/golden/credit/estimators.json").read_text(encoding="utf-8"))["cases"]
BATCH = {"baseline": "batch", "advantage_scale": "batch"}

Make = Callable[..., Estimator]


def row(kind: type[Estimator], *, per_token: bool = False, **settings: Any) -> Make:
    """An estimator with the numbers of a case; `per_token` discounts by gamma inside actions too."""

    def make(case: dict[str, Any]) -> Estimator:
        numbers = {name: case[name] for name in ("gamma", "gae_lambda", "gae_lambda_token", "omega")}
        gamma_token = {"gamma_token": case["gamma"]} if per_token else {}
        return kind(**numbers, **gamma_token, **settings)

    return make


ROWS: dict[str, Make] = {
    "action_gae": row(GAE, credit_level="action"),
    "bad": row(GAE),
    "ntpo": row(GAE, per_token=True),
    "archer": row(GAE, per_token=True, bootstrap="action"),
    "bilevel_corrected": row(BiLevelGAE),
    "returns": row(ReturnToGo, credit_level="action"),
    "token_returns_skip": row(ReturnToGo, per_token=True),
    "reinforce_pp": row(ReturnToGo, per_token=True, **BATCH),
    "rebn": row(ReturnToGo, credit_level="action", **BATCH),
    "anchor_loo": row(ReturnToGo, credit_level="action", baseline="state", leave_one_out=True),
    "step_index_loo": row(ReturnToGo, credit_level="action", baseline="step"),
    "grpo": row(EpisodeReturn, baseline="group", advantage_scale="cell"),
    "dr_grpo": row(EpisodeReturn, baseline="group"),
    "rloo": row(EpisodeReturn, baseline="group", leave_one_out=True),
    "gigpo_mean": row(GiGPOSum, baseline="group"),
    "gigpo_mean_std": row(GiGPOSum, baseline="group", advantage_scale="cell"),
}


def rollout_of(case: dict[str, Any], *, one_value: bool) -> Rollout:
    """Episodes side by side, an environment each; the steps after the end of one do not count."""
    episodes = case["episodes"]
    n_steps, n_envs = max(len(episode["steps"]) for episode in episodes), len(episodes)
    n_tokens = max(len(step["values"]) for episode in episodes for step in episode["steps"])
    shape = (n_steps, n_envs)
    rewards, final_values, counted = np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=bool)
    ends, lengths = np.ones(shape, dtype=bool), np.ones(shape, dtype=np.int64)
    values = np.full((*shape, 1 if one_value else n_tokens), np.nan)
    groups, states = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    numbers: dict[Any, int] = {}
    for env, episode in enumerate(episodes):
        for t, step in enumerate(episode["steps"]):
            values_of_step = step["values"][:1] if one_value else step["values"]
            rewards[t, env], counted[t, env], lengths[t, env] = step["reward"], True, len(step["values"])
            values[t, env, : len(values_of_step)] = values_of_step
            ends[t, env] = t == len(episode["steps"]) - 1
            groups[t, env] = numbers.setdefault(("group", episode["group"]), len(numbers))
            states[t, env] = numbers.setdefault(("state", str(step["state"])), len(numbers))
        values[len(episode["steps"]) :, env] = 0.0
        if not episode["terminated"]:
            final_values[len(episode["steps"]) - 1, env] = episode["final_value"]
    return Rollout(
        rewards, lengths, ends, counted, values, np.zeros(n_envs), final_values, np.ones(shape), groups, states
    )


@pytest.mark.parametrize("name", ROWS)
def test_an_estimator_equals_the_golden_vectors(name: str) -> None:
    for case in CASES:
        rollout = rollout_of(case, one_value=name == "action_gae")
        advantages = ROWS[name](case).advantages(rollout)
        for env, expected in enumerate(case["expected"][name]):
            steps = case["episodes"][env]["steps"]
            of_steps = expected if isinstance(expected, list) else [expected] * len(steps)
            for t, of_step in enumerate(of_steps):
                n = len(steps[t]["values"])
                actual = advantages[t, env, np.minimum(np.arange(n), advantages.shape[-1] - 1)]
                np.testing.assert_allclose(actual, np.broadcast_to(of_step, n), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ROWS)
def test_an_estimator_ignores_the_numbers_that_it_does_not_read(name: str) -> None:
    """And no others: an ignored argument gives a warning."""
    numbers = {field.name for field in fields(Estimator) if field.type in ("float", "int")}
    read = set()
    for case in CASES:
        made, rollout = ROWS[name](case), rollout_of(case, one_value=name == "action_gae")
        for number in numbers:
            other = replace(made, **{number: 2 * getattr(made, number)})
            if not np.array_equal(made.advantages(rollout), other.advantages(rollout), equal_nan=True):
                read.add(number)
    ignored = numbers & set(ROWS[name](CASES[0]).ignores)
    assert numbers - read == ignored, f"in `ignores` of {name} and not so, or the reverse: {(numbers - read) ^ ignored}"


WITHOUT_VECTORS: set[type[Estimator]] = set()
"""Estimators that a closed-form test of their own compares."""


def test_every_estimator_is_compared() -> None:
    compared = {type(make(CASES[0])) for make in ROWS.values()} | WITHOUT_VECTORS
    assert compared == set(ESTIMATORS.values()), "add a row of ROWS, or a closed-form test and WITHOUT_VECTORS"
