"""Walks through environments, shared by the tests of `lang_envs`."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.utils.env_checker import data_equivalence
from numpy.typing import NDArray

from lang_envs import ENV_ROWS

IDS = [row.id for row in ENV_ROWS]
"""Every registered id: tests parametrised over it cover environments that are added later."""

Policy = Callable[[gym.Env, dict[str, Any]], str]


class Step(NamedTuple):
    """One step; `final_text` is the text the episode ended with, and `text` then opens the next episode."""

    action: NDArray[np.int64]
    text: str
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]
    final_text: str | None


def random_policy(seed: int) -> Policy:
    """Uniform over the listed actions; any sentence where the action space is open."""
    rng = random.Random(seed)
    return lambda env, info: rng.choice(info["admissible_actions"] or ["a sentence", "another sentence"])


def oracle_policy(env: gym.Env, info: dict[str, Any]) -> str:
    """What the environment's own oracle says."""
    return env.unwrapped.oracle_action()


def advance(env: gym.Env, action: NDArray[np.int64]) -> Step:
    """One step; resets without a seed when the episode ends, as vector environments do."""
    text, reward, terminated, truncated, info = env.step(action)
    final_text = None
    if terminated or truncated:
        final_text, (text, info) = text, env.reset()
    return Step(action, text, reward, terminated, truncated, info, final_text)


def walk(env: gym.Env, policy: Policy, n_steps: int, info: dict[str, Any]) -> list[Step]:
    """`n_steps` steps from where `env` is, across the ends of episodes."""
    steps = []
    for _ in range(n_steps):
        action = env.action_space.encode(policy(env, info))
        steps.append(advance(env, action))
        info = steps[-1].info
    return steps


def walk_from_reset(env: gym.Env, policy: Policy, n_steps: int, seed: int) -> tuple[str, list[Step]]:
    """First text, and the steps."""
    text, info = env.reset(seed=seed)
    return text, walk(env, policy, n_steps, info)


def same(left: Any, right: Any) -> bool:
    """Exact equality of nested data, arrays included."""
    return data_equivalence(left, right, exact=True)
