"""Shortest ways by search, and the oracles that the environments make of them."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import gymnasium as gym
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from walk import random_policy

import lang_envs
from lang_envs.envs.planning import PlanTable
from lang_envs.wrappers import AdmissibleObservation, ByteObservation, TextAction

pytestmark = pytest.mark.one_table

Cost = tuple[int, ...]
Graph = dict[int, list[tuple[Cost, int | None]]]
"""From state to (cost, state after) of each action; None is the goal."""


def table_of(graph: Graph) -> PlanTable[int]:
    return PlanTable(graph.__getitem__)


# ---------------------------------------------------------------------- small graphs


def test_threads_share_a_table() -> None:
    """One that came while another explored found no plan, and oracles then played the first action."""

    def expand(state: int) -> list[tuple[Cost, int | None]]:
        time.sleep(1e-4)
        return [((1,), state - 1), ((1,), state + 1 if state else None)]

    table = PlanTable(lambda state: expand(state) if -20 < state < 20 else [])
    with ThreadPoolExecutor(8) as pool:
        plans = list(pool.map(table.best, [19, 5, -3, 0, 7, 12, -19, 1] * 4))
    assert plans == [0, 0, 1, 1, 0, 0, 1, 0] * 4


# ---------------------------------------------------------------------- against brute force


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    n_states = draw(st.integers(1, 7))
    places = draw(st.integers(1, 2))
    cost = st.tuples(st.integers(1, 3), *[st.integers(0, 3)] * (places - 1))
    action = st.tuples(cost, st.one_of(st.none(), st.integers(0, n_states - 1)))
    likely_stuck = st.tuples(cost, st.integers(0, n_states - 1))
    return {n: draw(st.lists(draw(st.sampled_from([action, likely_stuck])), max_size=3)) for n in range(n_states)}


def cheapest(graph: Graph, state: int | None, visited: frozenset[int] = frozenset()) -> tuple[Cost, int] | None:
    """Cost and first action of the cheapest of all ways without a circle; the first of equals."""
    ways = []
    for index, (cost, after) in enumerate(graph[state]):
        rest = (
            None if after in visited | {state} else () if after is None else cheapest(graph, after, visited | {state})
        )
        if rest is not None:
            behind = rest[0] if rest else (0,) * len(cost)
            ways.append((tuple(map(sum, zip(cost, behind, strict=True))), index))
    return min(ways, default=None)


@settings(deadline=None)
@given(graph=graphs(), data=st.data())
def test_plans_are_those_of_brute_force(graph: Graph, data: st.DataObject) -> None:
    table = table_of(graph)
    for state in data.draw(st.permutations(range(len(graph)))):  # any order of queries
        expected = cheapest(graph, state)
        assert (table.cost(state), table.best(state)) == (expected or (None, None))


# ---------------------------------------------------------------------- oracles


def test_oracle_looks_through_wrappers(env_id: str) -> None:
    bare, wrapped = gym.make(env_id), TextAction(AdmissibleObservation(gym.make(env_id)))
    bytes_ = ByteObservation(gym.make(env_id))
    over = False
    for env in (bare, wrapped, bytes_):
        env.reset(seed=0)
    while not over:
        action = lang_envs.oracle(bare)
        assert action == lang_envs.oracle(wrapped) == lang_envs.oracle(bytes_) == bare.unwrapped.oracle_action()
        for env in (bare, bytes_):
            *_, over, _, info = env.step(env.action_space.encode(action))
        wrapped.step(action)
    assert info["success"]


@pytest.mark.parametrize("speaker", ["oracle", "random", "nobody"])
def test_oracle_info(env_id: str, speaker: str) -> None:
    env, at_random = gym.make(env_id, oracle_info=True), random_policy(1)
    _, info = env.reset(seed=0)
    terminated = truncated = False
    oracle_actions = []
    while not (terminated or truncated):
        assert info["oracle_action"] == lang_envs.oracle(env)
        oracle_actions.append(info["oracle_action"])
        action = {"oracle": info["oracle_action"], "random": at_random(env, info), "nobody": ""}[speaker]
        *_, terminated, truncated, info = env.step(env.action_space.encode(action))
    assert info["oracle_action"] is None
    assert terminated or speaker != "oracle"
    assert truncated or speaker != "nobody"
    says_one_thing = info["admissible_actions"] is None  # the same code for a table, after any attempts
    assert (len(set(oracle_actions)) == 1) is (speaker == "nobody" or says_one_thing)
