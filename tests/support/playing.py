"""An episode with an agent of the benchmark."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym

from lang_bench.agents import Agent, Decision
from lang_envs.wrappers import TextAction


class Played(NamedTuple):
    """A step: observation, admissible actions, decision, and result."""

    observation: str
    actions: list[str]
    decision: Decision
    reward: float
    info: dict[str, Any]


def play(env_id: str, agent: Agent, *, seed: int = 0, most: int = 30, **arguments: Any) -> list[Played]:
    """The steps of an episode, at most so many."""
    steps: list[Played] = []
    with TextAction(gym.make(env_id, disable_env_checker=True, **arguments)) as env:
        observation, info = env.reset(seed=seed)
        agent.begin(env.unwrapped, seed)
        over = False
        while not over and len(steps) < most:
            actions, decision = info["admissible_actions"], agent.act(observation, info)
            seen, reward, terminated, truncated, info = env.step(decision.text)
            agent.observe(decision, seen, float(reward), terminated, truncated, info)
            steps.append(Played(observation, actions, decision, float(reward), info))
            observation, over = seen, terminated or truncated
    return steps


def texts(steps: list[Played]) -> list[str]:
    """Actions of the steps."""
    return [step.decision.text for step in steps]
