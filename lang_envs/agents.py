"""Agents: functions from an observation to the text of an action."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from lang_envs.core import oracle

__all__ = ["Agent", "oracle_agent", "random_agent"]

Agent = Callable[[gym.Env[Any, Any], str, Sequence[str] | None], str]
"""Function from environment, observation and admissible actions (None: any text) to the text of an action.

Oracles look inside the environment.
"""


def random_agent(rng: np.random.Generator) -> Agent:
    """Return an agent that acts uniformly over the admissible actions.

    Where any text is an action, it writes a sentence with a random number.

    Args:
        rng: Random generator. `default_rng(seed)` draws the same numbers as an environment reset with that seed: use
            `default_rng((seed, 1))` where both have the seed.
    """

    def act(_env: gym.Env[Any, Any], _text: str, actions: Sequence[str] | None) -> str:
        if actions is None:
            return f"say {int(rng.integers(1000))}"
        return actions[int(rng.integers(len(actions)))]

    return act


def oracle_agent() -> Agent:
    """Return the environment's own optimal policy; see `lang_envs.oracle`."""
    return lambda env, _text, _actions: oracle(env)
