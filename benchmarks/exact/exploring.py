"""Every situation of a deterministic environment that lists its actions, by breadth-first search.

With the environments' public interface only: worlds are captured and restored by `get_state` and `set_state`, actions
are texts. It is fast because the clock affects only the end: each world's consequences are computed once, at any clock
value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from lang_envs import LangEnv

Env = LangEnv[Any]
Policy = Callable[[Env], Mapping[str, float]]
"""Function from an environment in some situation to the probability of each action."""


def random_policy(env: Env) -> dict[str, float]:
    """Return the uniform distribution over the admissible actions."""
    actions = env.admissible_actions()
    if not actions:
        raise ValueError(f"Expected an environment that lists its actions; {env} lists {actions}.")
    return {action: 1 / len(actions) for action in actions}


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
    """

    source: int
    target: int
    text: str
    probability: float
    reward: float
    duration: int
    success: bool


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
            edges.append(Edge(source, target, text, probability, reward, duration, info["success"]))
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
