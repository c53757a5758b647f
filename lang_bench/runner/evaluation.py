"""Play episodes with any agent and summarise them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from lang_bench.agents.base import Agent
from lang_bench.agents.local import FunctionAgent
from lang_bench.runner.episodes import Result, make_text_env, play_episode
from lang_envs.agents import Agent as EnvFunction
from lang_envs.report.statistics import wilson_interval
from poad_sb3.common.episode_lines import discount_of


class Summary(NamedTuple):
    """Means over episodes with 95% intervals (t interval of the mean; Wilson interval of the rate)."""

    mean_return: float
    return_interval: tuple[float, float]
    success_rate: float
    success_interval: tuple[float, float]
    mean_actions: float
    mean_moves: float
    n_episodes: int


def play(
    env_id: str,
    agent: EnvFunction | Agent,
    n_episodes: int,
    *,
    seed: int = 0,
    env_kwargs: Mapping[str, Any] | None = None,
) -> list[Result]:
    """Play whole episodes, seeded with `seed` and the numbers after it; see `play_episode`.

    A function keeps its own source of chance from episode to episode.
    """
    env, discount = make_text_env(env_id, env_kwargs), discount_of(env_id)
    player = agent if isinstance(agent, Agent) else FunctionAgent("function", lambda _: agent, {})
    results = [play_episode(env, player, seed + number, discount) for number in range(n_episodes)]
    env.close()
    return results


def summarize(episodes: Sequence[Result]) -> Summary:
    """Compute means and 95% intervals.

    Equal returns (a deterministic agent) have an interval of width 0; that of a single episode is unknown, NaN.
    """
    returns = np.array([episode.discounted_return for episode in episodes])
    successes = sum(episode.success for episode in episodes)
    low = high = returns.mean() if len(returns) > 1 else np.nan
    if np.ptp(returns) > 0:
        low, high = stats.t.interval(0.95, len(returns) - 1, returns.mean(), stats.sem(returns))
    return Summary(
        mean_return=float(returns.mean()),
        return_interval=(float(low), float(high)),
        success_rate=successes / len(episodes),
        success_interval=wilson_interval(successes, len(episodes)),
        mean_actions=float(np.mean([episode.n_actions for episode in episodes])),
        mean_moves=float(np.mean([episode.n_moves for episode in episodes])),
        n_episodes=len(episodes),
    )
