"""The homes against their published figures: reachable states, optimal plans, rules and lists.

The numbers are those measured on the original environments (docs/environments/virtualhome.md).
"""

from __future__ import annotations

import json
from hashlib import sha256

import numpy as np
import pytest
from home_graph import HomeGraph, home_graph

from lang_envs.envs.virtualhome.oracle import best_command

HEAT, WATCH = "food-preparation", "entertainment"


# ---------------------------------------------------------------------- states and values


@pytest.mark.parametrize(
    ("name", "n_states", "n_goals", "n_commands", "n_vectors"), [(HEAT, 52, 1, 10, 19), (WATCH, 576, 4, 17, 213)]
)
def test_reachable_states(name: str, n_states: int, n_goals: int, n_commands: int, n_vectors: int) -> None:
    graph = home_graph(name)
    assert graph.after.shape == (n_states, n_commands)
    assert graph.goal.sum() == n_goals
    assert len(set(graph.features)) == n_vectors


# ---------------------------------------------------------------------- optimal plans

PLANS = {
    HEAT: {(4, 6, 5, 8, 7, 9)},
    WATCH: {
        (0, 7, 13, 1, 4, 9, 5, 10, 0, 8, 15),
        (0, 7, 13, 1, 5, 10, 4, 9, 0, 8, 15),
        (4, 9, 0, 7, 13, 1, 5, 10, 0, 8, 15),
        (5, 10, 0, 7, 13, 1, 4, 9, 0, 8, 15),
        (4, 9, 5, 10, 0, 6, 11, 7, 13, 8, 15),
        (4, 9, 5, 10, 0, 6, 12, 7, 13, 8, 15),
        (5, 10, 4, 9, 0, 6, 11, 7, 13, 8, 15),
        (5, 10, 4, 9, 0, 6, 12, 7, 13, 8, 15),
    },
}


@pytest.mark.parametrize(("name", "length", "farthest"), [(HEAT, 6, 7), (WATCH, 11, 11)])
def test_optimal_plans(name: str, length: int, farthest: int) -> None:
    graph = home_graph(name)
    assert set(graph.plans()) == set(graph.plans(graph.listed)) == PLANS[name]
    assert graph.distance()[0] == length
    assert graph.distance().max() == farthest


@pytest.mark.parametrize("name_and_distractors", [(HEAT,), (WATCH,), (HEAT, "candle")])
def test_oracle_is_shortest_from_every_state_and_prefers_listed_commands(name_and_distractors: tuple[str, ...]) -> None:
    graph = home_graph(*name_and_distractors)
    distance, unlisted = graph.distance(), unlisted_on_the_way(graph)
    assert len(graph.going_on) == len(graph.states) - graph.goal.sum() > 50
    for number in graph.going_on:
        after = graph.after[number]
        best = distance[after] == distance[number] - 1
        best &= unlisted[after] + ~graph.listed[number] == unlisted[number]
        command = best_command(graph.task, graph.states[number])
        assert graph.task.commands.index(command) == np.flatnonzero(best)[0]  # of equals, the first of the set


def unlisted_on_the_way(graph: HomeGraph) -> np.ndarray:
    """Fewest commands outside the lists among the shortest ways from each state."""
    distance, fewest = graph.distance(), np.zeros(len(graph.states))
    for number in sorted(graph.going_on, key=lambda state: distance[state]):
        nearer = np.flatnonzero(distance[graph.after[number]] == distance[number] - 1)
        fewest[number] = min(fewest[graph.after[number, n]] + (not graph.listed[number, n]) for n in nearer)
    return fewest


# ---------------------------------------------------------------------- rules, features and lists

DIGESTS = {
    (HEAT,): "2a9eff866cb0e69f",
    (WATCH,): "84a4299212c5fb58",
    (HEAT, "candle", "teapot"): "df60865705b122f1",
    (WATCH, "candle"): "0dc36a1b55055a84",
}
"""Made when every command, feature and list agreed with the published preconditions and tables in every state."""


@pytest.mark.parametrize("name_and_distractors", DIGESTS)
def test_rules_features_and_lists_stay_the_same(name_and_distractors: tuple[str, ...]) -> None:
    graph = home_graph(*name_and_distractors)
    arrays = [array.tolist() for array in (graph.after, graph.succeeds, graph.listed, graph.goal)]
    content = json.dumps([*arrays, [list(map(int, features)) for features in graph.features]])
    assert sha256(content.encode()).hexdigest()[:16] == DIGESTS[name_and_distractors]
