"""Play episodes with any agent and summarise them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium as gym
import numpy as np
from scipy import stats

from benchmarks.agents import base
from benchmarks.runner.discounts import discount_of
from benchmarks.runner.episodes import make_text_env, play_episode
from lang_envs import LangEnv, TokenSequence
from lang_envs.agents import Agent, oracle_agent, random_agent

if TYPE_CHECKING:
    from poad_sb3.on_policy import LLMOnPolicyAlgorithm

__all__ = [
    "Agent",
    "Episode",
    "Summary",
    "discount_of",
    "model_agent",
    "oracle_agent",
    "play",
    "policy_agent",
    "random_agent",
    "summarize",
]


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
        assert isinstance(env.action_space, TokenSequence)
        return env.action_space.decode(tokens)

    return act


def policy_agent(model: LLMOnPolicyAlgorithm) -> base.Agent:
    """A model as it is now, which samples; its chance comes from the seed of the episode alone."""
    from benchmarks.agents.policy import PolicyAgent
    from poad_sb3.rollouts import CreditLevel

    whole = model.credit_level == CreditLevel.ACTION
    return PolicyAgent(type(model).__name__, model.policy, {}, deterministic=False, whole_values=whole)


class _Function(base.Agent):
    """An `Agent` function, which sees the environment and keeps its own source of chance from episode to episode."""

    name, settings = "function", {}

    def __init__(self, function: Agent) -> None:
        self._function = function

    def begin(self, env: LangEnv[Any], seed: int) -> None:
        self._env = env

    def act(self, observation: str, info: Mapping[str, Any]) -> base.Decision:
        return base.Decision(self._function(self._env, observation, info["admissible_actions"]))


def play(
    env_id: str,
    agent: Agent | base.Agent,
    n_episodes: int,
    *,
    seed: int = 0,
    env_kwargs: Mapping[str, Any] | None = None,
) -> list[Episode]:
    """Play whole episodes, seeded with `seed` and the numbers after it; see `play_episode`."""
    env, discount = make_text_env(env_id, env_kwargs), discount_of(env_id)
    player = agent if isinstance(agent, base.Agent) else _Function(agent)
    results = [play_episode(env, player, seed + number, discount) for number in range(n_episodes)]
    env.close()
    return [Episode(one.discounted_return, one.success, one.n_actions, one.n_moves) for one in results]


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
