"""Exact scores of random and of optimal play.

Computed without sampling: from the start, the probability of every situation at every clock value is carried forward.
Prints a table and writes env_scores.json.

Only for ids that list their actions. DataSciCoding, where any text is one, is in `datasci_scores`.
"""

from __future__ import annotations

import time
from typing import Annotated, NamedTuple

import gymnasium as gym
import numpy as np

from benchmarks.exact.exploring import Env, Graph, Policy, explore, random_policy
from benchmarks.files import write_result
from benchmarks.options import one_of
from benchmarks.reports.tables import show_records
from lang_bench.runner.results import SCORES
from lang_envs import ENV_ROWS, LangEnv

DISCOUNTS = {"Overcooked": (1.0, 0.99), "VirtualHome": (1.0, 0.99, 0.95)}
"""Discounts per unit of time, by family.

A macro-action's reward is discounted by 0.99 inside, so the kitchen has no other.
"""
LISTED_IDS = tuple(row.id for row in ENV_ROWS if row.id.partition("-")[0] in DISCOUNTS)
"""The ids whose scores are computed here; a class with `random_success` knows its own in closed form."""


def oracle_policy(env: Env) -> dict[str, float]:
    """Return the environment's own optimal policy."""
    return {env.oracle_action(): 1.0}


POLICIES: dict[str, Policy] = {"random": random_policy, "oracle": oracle_policy}


class Score(NamedTuple):
    """Exact expectations over episodes.

    Attributes:
        success: Probability of reaching the goal in time.
        returns: Expected return by discount per unit of time; the first step is not discounted, "1" is the plain sum.
        actions: Expected number of actions.
        duration: Expected number of units of time, beyond the limit where the last action crosses it.
        n_situations: Number of situations reachable at any time; ends not counted.
    """

    success: float
    returns: dict[str, float]
    actions: float
    duration: float
    n_situations: int


def expect(graph: Graph, discounts: tuple[float, ...]) -> Score:
    """Carry the probability of every situation forward, one unit of time after the other."""
    sources, targets, durations = (
        np.array([getattr(edge, name) for edge in graph.edges]) for name in ("source", "target", "duration")
    )
    chosen, rewards, success = (
        np.array([getattr(edge, name) for edge in graph.edges], dtype=float)
        for name in ("probability", "reward", "success")
    )
    alive = targets >= 0
    present = np.zeros((graph.limit + int(durations.max()), len(graph.worlds)))  # rows beyond the limit: truncated
    present[0, 0] = 1.0
    total = dict.fromkeys(("success", "actions", "duration"), 0.0)
    returns = np.zeros(len(discounts))
    for elapsed in range(graph.limit):
        flow = present[elapsed, sources] * chosen
        total["success"] += flow @ success
        total["actions"] += flow.sum()
        total["duration"] += flow @ durations
        returns += np.power(discounts, elapsed) * (flow @ rewards)
        np.add.at(present, (elapsed + durations[alive], targets[alive]), flow[alive])
    named = {f"{discount:g}": float(value) for discount, value in zip(discounts, returns, strict=True)}
    return Score(returns=named, n_situations=len(graph.worlds), **{name: float(sum_) for name, sum_ in total.items()})


def score(env: Env, policy: Policy, discounts: tuple[float, ...]) -> Score:
    """Return the score of a policy in a deterministic environment."""
    return expect(explore(env, policy), discounts)


def score_both(env_id: str) -> dict[str, Score]:
    """Return the scores of random and of optimal play on an id."""
    env = gym.make(env_id, disable_env_checker=True).unwrapped
    assert isinstance(env, LangEnv)
    discounts = DISCOUNTS[env_id.split("-")[0]]
    return {name: score(env, policy, discounts) for name, policy in POLICIES.items()}


def env_scores(
    ids: Annotated[
        list[str] | None,
        one_of(LISTED_IDS, "Only this, printed and not written; repeatable.", "--id"),
    ] = None,
) -> None:
    """Compute exact scores of random and of optimal play on every id that lists its actions."""
    started = time.perf_counter()
    results = {env_id: score_both(env_id) for env_id in ids or LISTED_IDS}
    scores = {
        env_id: {name: env_score._asdict() for name, env_score in both.items()} for env_id, both in results.items()
    }
    rows = {f"{env_id}, {name}": env_score for env_id, both in scores.items() for name, env_score in both.items()}
    show_records("id, agent", rows, ("success", "returns", "actions", "duration", "n_situations"))
    if not ids:
        seconds = round(time.perf_counter() - started, 1)
        write_result("env_scores", {"seconds": seconds, "scores": scores}, SCORES)
