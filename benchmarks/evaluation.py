"""Play episodes with any agent and summarise them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from scipy import stats

from lang_envs import LangEnv
from lang_envs.agents import Agent, oracle_agent, random_agent
from poad_sb3.on_policy import LLMOnPolicyAlgorithm

__all__ = [
    "Agent",
    "Episode",
    "Summary",
    "discount_of",
    "model_agent",
    "oracle_agent",
    "play",
    "random_agent",
    "summarize",
]

_DISCOUNTS = {"Overcooked": 0.99, "VirtualHome": 0.95}


def discount_of(env_id: str) -> float:
    """Discount of the returns that the published code bases report: per primitive move, which a command is one of."""
    return _DISCOUNTS.get(env_id.split("-")[0], 1.0)


class Episode(NamedTuple):
    """One episode: return discounted by `discount_of` its id, success, actions taken, moves made."""

    discounted_return: float
    success: bool
    n_actions: int
    n_moves: int


class Summary(NamedTuple):
    """Means over episodes with 95% intervals (t interval of the mean; Wilson interval of the rate)."""

    mean_return: float
    return_interval: tuple[float, float]
    success_rate: float
    success_interval: tuple[float, float]
    mean_actions: float
    mean_moves: float
    n_episodes: int


def model_agent(model: LLMOnPolicyAlgorithm, *, deterministic: bool = False) -> Agent:
    """A trained (or untrained) model; by default it samples, as in training."""

    def act(env: gym.Env[Any, Any], text: str, actions: Sequence[str] | None) -> str:
        tokens, _ = model.predict(text, deterministic=deterministic, admissible_actions=actions)
        return env.action_space.decode(tokens)

    return act


def play(env_id: str, agent: Agent, n_episodes: int, *, seed: int = 0) -> list[Episode]:
    """Play whole episodes.

    A macro-action's reward counts its primitives from 0, so it is discounted by the primitives before it.
    """
    env, discount = gym.make(env_id, disable_env_checker=True), discount_of(env_id)
    inner = env.unwrapped
    assert isinstance(inner, LangEnv)
    episodes = []
    for number in range(n_episodes):
        text, info = env.reset(seed=seed + number)
        total, elapsed, n_actions, over = 0.0, 0, 0, False
        while not over:
            action = agent(inner, text, info["admissible_actions"])
            text, reward, terminated, truncated, info = env.step(inner.action_space.encode(action))
            total += discount**elapsed * float(reward)
            elapsed += info.get("primitive_steps", 1)
            n_actions += 1
            over = terminated or truncated
        episodes.append(Episode(total, info["success"], n_actions, elapsed))
    env.close()
    return episodes


def summarize(episodes: list[Episode]) -> Summary:
    """Means and 95% intervals. Equal returns (a deterministic agent) have an interval of width 0."""
    returns = np.array([episode.discounted_return for episode in episodes])
    successes = sum(episode.success for episode in episodes)
    error = stats.sem(returns)
    low, high = stats.t.interval(0.95, len(returns) - 1, returns.mean(), error) if error > 0 else [returns.mean()] * 2
    rate = stats.binomtest(successes, len(episodes)).proportion_ci(method="wilson")
    return Summary(
        mean_return=float(returns.mean()),
        return_interval=(float(low), float(high)),
        success_rate=successes / len(episodes),
        success_interval=(float(rate.low), float(rate.high)),
        mean_actions=float(np.mean([episode.n_actions for episode in episodes])),
        mean_moves=float(np.mean([episode.n_moves for episode in episodes])),
        n_episodes=len(episodes),
    )
