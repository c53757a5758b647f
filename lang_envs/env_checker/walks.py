"""Walks through environments, and their exact comparison."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.utils.env_checker import data_equivalence

from lang_envs.agents import Agent, oracle_agent, random_agent
from lang_envs.core import Tokens, oracle
from lang_envs.env_checker.base import NotApplicableError, expect
from lang_envs.spaces import TokenSequence

N_STEPS = 40
"""Number of steps of a walk: several episodes of good play in the shipped environments."""

Start = tuple[str, dict[str, Any]]
"""Observation and info of `reset` or of a step: the start of a walk."""


class Step(NamedTuple):
    """One step; where it ended an episode, `text` and `info` open the next one, and the finals closed this one."""

    action: Tokens
    text: str
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]
    final_text: str | None
    final_info: dict[str, Any] | None


def where(steps: list[Step], start: Start) -> Start:
    """Return text and info at the end of a walk from `start`."""
    return (steps[-1].text, steps[-1].info) if steps else start


def walk(env: gym.Env[Any, Any], agent: Agent, n_steps: int, start: Start) -> list[Step]:
    """Take `n_steps` steps across the ends of episodes (reset without a seed, as vector environments do)."""
    steps: list[Step] = []
    tokens: Any = env.action_space
    for _ in range(n_steps):
        text, info = where(steps, start)
        action = tokens.encode(agent(env, text, info["admissible_actions"]))
        text, reward, terminated, truncated, info = env.step(action)
        final_text = final_info = None
        if terminated or truncated:
            final_text, final_info = text, info
            text, info = env.reset()
        steps.append(Step(action, text, float(reward), terminated, truncated, info, final_text, final_info))
    return steps


def walk_from_reset(env: gym.Env[Any, Any], agent: Agent, n_steps: int, seed: int | None) -> tuple[str, list[Step]]:
    """Return the first text, and the steps."""
    start = env.reset(seed=seed)
    return start[0], walk(env, agent, n_steps, start)


def randomly(seed: int) -> Agent:
    """Return random play that is the same for the same seed, and independent of an environment with this seed."""
    return random_agent(np.random.default_rng((seed, 1)))  # of `seed` alone, the draws would be the environment's


def needs_oracle(env: gym.Env[Any, Any]) -> Agent:
    """Return the oracle of an environment that has been reset.

    Raises:
        NotApplicableError: If the environment has no oracle.
    """
    if not env.has_wrapper_attr("oracle_action"):
        raise NotApplicableError("the environment has no oracle_action()")
    try:
        oracle(env)
    except NotImplementedError as error:
        raise NotApplicableError("the environment's oracle_action() is not implemented") from error
    return oracle_agent()


def capable_agent(env: gym.Env[Any, Any], seed: int) -> Agent:
    """Return the oracle of an environment that has been reset, so that episodes end; random play without one."""
    try:
        return needs_oracle(env)
    except NotApplicableError:
        return randomly(seed)


def same(left: object, right: object) -> bool:
    """Return whether nested data are exactly equal, arrays included."""
    return data_equivalence(left, right, exact=True)


def expect_same_walk(got: tuple[str, list[Step]], wanted: tuple[str, list[Step]], *, expected: str, fix: str) -> None:
    """Raise `ConformanceError` where two walks differ, naming the first difference."""
    pairs: list[tuple[str, object, object]] = [("first observation", got[0], wanted[0])]
    for number, steps in enumerate(zip(got[1], wanted[1], strict=True), start=1):
        values = zip(Step._fields, *steps, strict=True)
        pairs += [(f"{field} of step {number}", left, right) for field, left, right in values]
    different = next((pair for pair in pairs if not same(*pair[1:])), None)
    expect(different is None, expected, "{}: {!r:.200} and {!r:.200}".format(*different or ("", "", "")), fix)


def tokens_of(env: gym.Env[Any, Any]) -> TokenSequence:
    """Return the action space of an environment that has passed the check of its spaces."""
    space = env.action_space
    assert isinstance(space, TokenSequence)
    return space
