"""Exact scores of random and of optimal play.

Computed without sampling. From the start, the probability of every situation at every clock value is carried forward,
with the environments' public interface only: worlds are captured and restored by `get_state` and `set_state`, actions
are texts. It is fast because the clock affects only the end: each world's consequences are computed once, at any clock
value. Prints a table and writes env_scores.json.

Only for ids that list their actions. DataSciCoding, where any text is one, is in `datasci_scores`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple

import gymnasium as gym
import numpy as np

from benchmarks.reports.tables import show_records
from benchmarks.runner.files import write_result
from benchmarks.runner.options import one_of
from lang_envs import ENV_ROWS, LangEnv

Env = LangEnv[Any]
Policy = Callable[[Env], Mapping[str, float]]
"""Function from an environment in some situation to the probability of each action."""

DISCOUNTS = {"Overcooked": (1.0, 0.99), "VirtualHome": (1.0, 0.99, 0.95)}
"""Discounts per unit of time, by family.

A macro-action's reward is discounted by 0.99 inside, so the kitchen has no other.
"""
LISTED_IDS = tuple(row.id for row in ENV_ROWS if row.id.partition("-")[0] in DISCOUNTS)
"""The ids that list their actions."""


def random_policy(env: Env) -> dict[str, float]:
    """Return the uniform distribution over the admissible actions."""
    actions = env.admissible_actions()
    if not actions:
        raise ValueError(f"Expected an environment that lists its actions; {env} lists {actions}.")
    return {action: 1 / len(actions) for action in actions}


def oracle_policy(env: Env) -> dict[str, float]:
    """Return the environment's own optimal policy."""
    return {env.oracle_action(): 1.0}


POLICIES: dict[str, Policy] = {"random": random_policy, "oracle": oracle_policy}


# ---------------------------------------------------------------------- the graph of situations


class Edge(NamedTuple):
    """The effect of one action in one situation.

    Attributes:
        source: Situation before the action.
        target: Situation after the action; -1 where the episode has terminated.
        text: Text of the action.
        probability: Probability that the policy chooses the action.
        reward: Reward of the step.
        duration: Units of time that the action takes: `info["primitive_steps"]`, or 1 where there are none.
        success: Whether the goal is reached.
        info: All of `info` after the action.
    """

    source: int
    target: int
    text: str
    probability: float
    reward: float
    duration: int
    success: bool
    info: dict[str, Any]


class Graph(NamedTuple):
    """Every situation that a policy can reach in any time (0 is the start), and the policy's transitions there.

    Attributes:
        worlds: Captured worlds, with the clock set back.
        edges: Edges of the graph, ordered by source.
        limit: Units of time until truncation.
    """

    worlds: list[Any]
    edges: list[Edge]
    limit: int


def explore(env: Env, policy: Policy) -> Graph:
    """Follow a policy everywhere.

    Args:
        env: Deterministic environment; its captured world is a hashable `NamedTuple`.
        policy: Policy to try in every situation.

    Raises:
        ValueError: If the environment draws random numbers, so that one start does not stand for all.
    """
    env.reset(seed=0)
    start = env.get_state()
    del start["digest"]  # worlds are put in below
    limit, timeless = _limit(env, start), _without_clock(env, start)
    worlds, edges = [start["world"]], []
    position = {start["world"]: 0}
    for source, world in enumerate(worlds):  # grows while it is read
        env.set_state(start | {"world": world})
        for text, probability in policy(env).items():
            env.set_state(start | {"world": world})
            _, reward, terminated, _, info = env.step_text(text)
            state = env.get_state()
            if state["np_random"] != start["np_random"]:
                raise ValueError(f"Expected a deterministic environment; {text!r} drew a random number.")
            after = timeless(state["world"])
            target = -1 if terminated else position.setdefault(after, len(worlds))
            if target == len(worlds):
                worlds.append(after)
            duration = info.get("primitive_steps", 1)
            edges.append(Edge(source, target, text, probability, reward, duration, info["success"], info))
    return Graph(worlds, edges, limit)


def _limit(env: Env, start: dict[str, Any]) -> int:
    """Return the units of time until truncation: the number of unfinished sentences (each costs one unit)."""
    env.reset(seed=1)
    if env.get_state()["world"] != start["world"]:
        raise ValueError("Expected a deterministic environment; its start depends on the seed.")
    elapsed, truncated = 0, False
    while not truncated:
        truncated = env.step_text(None)[3]
        elapsed += 1
    return elapsed


def _without_clock(env: Env, start: dict[str, Any]) -> Callable[[Any], Any]:
    """Return a function that removes from a world the fields changed by an unfinished sentence, the clock alone.

    Asked at the start and after every first action, because at the start there is no last action to forget.
    """
    env.set_state(start)
    first, changed = start["world"], set()
    for text in (None, *(env.admissible_actions() or ())):
        env.set_state(start)
        env.step_text(text)
        before = env.get_state()["world"]
        env.set_state(start | {"world": before})  # as if the episode were not over
        env.step_text(None)
        after = env.get_state()["world"]
        changed |= {name for name in first._fields if getattr(before, name) != getattr(after, name)}
    put_back = {name: getattr(first, name) for name in changed}
    return lambda world: world._replace(**put_back)


# ---------------------------------------------------------------------- expectations


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
        write_result("env_scores", {"seconds": seconds, "scores": scores})
