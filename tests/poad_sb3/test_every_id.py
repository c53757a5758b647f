"""Every method learns on every id whose action space it supports; in `make test` each id with one of them."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import pytest

from lang_envs import ENV_ROWS, EnvRow
from poad_sb3 import ARCHER, GLAM, NTPO, POAD, TWOSOME

LISTED, OPEN = (POAD, NTPO, ARCHER, TWOSOME, GLAM), (POAD, NTPO, ARCHER)


def supported(row: EnvRow) -> tuple[Any, ...]:
    return OPEN if row.id.startswith("DataSciCoding-") else LISTED


def learn(row: EnvRow, method: Any) -> None:
    n_steps = 2 if supported(row) == OPEN else 4
    free = {"action_sampling": "free", "max_new_tokens": 2} if supported(row) == OPEN else {}
    env = gym.make(row.id, **row.trial)
    arguments = {"n_steps": n_steps, "batch_size": n_steps, "n_epochs": 1, "n_critic_epochs": 1, **free}
    model = method("LLMPolicy", env, seed=0, policy_kwargs={"critic_arch": (16,)}, **arguments)
    model.learn(2 * n_steps)
    logged = model.logger.name_to_value
    assert model.num_timesteps == 2 * n_steps
    assert logged["train/first_ratio_error"] < 1e-4
    assert all(math.isfinite(value) for name, value in logged.items() if name != "train/explained_variance")


@pytest.mark.parametrize(("number", "row"), list(enumerate(ENV_ROWS)), ids=[row.id for row in ENV_ROWS])
def test_one_method_on_every_id(number: int, row: EnvRow) -> None:
    methods = supported(row)
    learn(row, methods[number % len(methods)])


@pytest.mark.slow
@pytest.mark.parametrize("row", ENV_ROWS, ids=lambda row: row.id)
def test_every_method_on_every_id(row: EnvRow) -> None:
    for method in supported(row):
        learn(row, method)
