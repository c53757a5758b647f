"""The homes against their published figures: reachable states, values, optimal plans, lists, refusals and quirks.

The numbers are those measured on the original environments (docs/environments/virtualhome.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from home_graph import HomeGraph, home_graph

from lang_envs.envs.virtualhome.oracle import best_command
from lang_envs.envs.virtualhome.rules import AT_START, IN_HAND, HomeState

HEAT, WATCH = "food-preparation", "entertainment"
BOTH = pytest.mark.parametrize("name", [HEAT, WATCH])


# ---------------------------------------------------------------------- states and values


@pytest.mark.parametrize(
    ("name", "n_states", "n_goals", "n_commands", "n_vectors"), [(HEAT, 52, 1, 10, 19), (WATCH, 576, 4, 17, 213)]
)
def test_reachable_states(name: str, n_states: int, n_goals: int, n_commands: int, n_vectors: int) -> None:
    graph = home_graph(name)
    assert graph.after.shape == (n_states, n_commands)
    assert graph.goal.sum() == n_goals
    assert len(set(graph.features)) == n_vectors


@pytest.mark.parametrize(
    ("name", "success", "return_95", "return_99", "length"),
    [
        (HEAT, "0.0150036", "0.00287771", "0.0105794", "49.795"),
        (WATCH, "0.00304368", "0.000432234", "0.00204832", "49.972"),
    ],
)
def test_exact_values_of_random_play(name: str, success: str, return_95: str, return_99: str, length: str) -> None:
    graph = home_graph(name)
    assert f"{graph.expect(graph.listed):.6g}" == success
    assert f"{graph.expect(graph.listed, discount=0.95):.6g}" == return_95
    assert f"{graph.expect(graph.listed, discount=0.99):.6g}" == return_99
    assert f"{graph.expect(graph.listed, length=True):.3f}" == length


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


# ---------------------------------------------------------------------- preconditions, facts sections 2 and 3


class Situation(NamedTuple):
    """A state with the questions that the published tables ask."""

    state: HomeState
    names: tuple[str, ...]

    def at(self, name: str) -> str:
        return self.state.items[self.names.index(name)].place

    def held(self, name: str) -> bool:
        return self.at(name) == IN_HAND

    def near(self, name: str) -> bool:
        return name in self.state.near

    def visible(self, name: str) -> bool:
        room = {AT_START: "kitchen", "microwave": "kitchen", "coffee table": "living room"}
        hidden = self.at(name) == "microwave" and "microwave" not in self.state.opened
        return self.held(name) or (room[self.at(name)] == self.state.room and not hidden)

    @property
    def n_held(self) -> int:
        return sum(map(self.held, self.names))

    @property
    def living(self) -> bool:
        return self.state.room == "living room"


def grabbable(s: Situation, item: str) -> bool:
    reach = s.near(item) or (s.at(item) == "coffee table" and s.near("coffee table"))
    return s.visible(item) and not s.held(item) and reach


def puttable(s: Situation, item: str) -> bool:
    return s.living and s.held(item) and s.near("coffee table")


def switchable(s: Situation) -> bool:
    return s.living and s.near("TV") and s.n_held < 2


Condition = Callable[[Situation], bool]
SUCCEEDS_IFF: dict[str, list[Condition]] = {
    HEAT: [
        *[lambda s: True] * 4,
        lambda s: s.visible("pancake"),
        lambda s: s.state.room == "kitchen",
        lambda s: grabbable(s, "pancake"),
        lambda s: s.state.room == "kitchen" and s.held("pancake") and s.near("microwave") and bool(s.state.opened),
        lambda s: s.state.room == "kitchen" and s.near("microwave") and not s.state.opened,
        lambda s: s.state.room == "kitchen" and s.near("microwave") and bool(s.state.opened),
    ],
    WATCH: [
        *[lambda s: not s.state.sitting] * 4,
        lambda s: s.visible("chips") and not s.state.sitting,
        lambda s: s.visible("milk") and not s.state.sitting,
        *[lambda s: s.living and not s.state.sitting] * 3,
        lambda s: grabbable(s, "chips"),
        lambda s: grabbable(s, "milk"),
        lambda s: puttable(s, "chips"),
        lambda s: puttable(s, "milk"),
        lambda s: switchable(s) and not s.state.lit,
        lambda s: switchable(s) and bool(s.state.lit),
        lambda s: s.living and s.near("sofa") and not s.state.sitting,
        lambda s: s.state.sitting,
    ],
}


@pytest.mark.parametrize(
    ("name", "number"), [(name, n) for name in SUCCEEDS_IFF for n in range(len(SUCCEEDS_IFF[name]))]
)
def test_a_command_succeeds_iff(name: str, number: int) -> None:
    graph = home_graph(name)
    names = tuple(graph.task.scene.item_index)
    expected = [SUCCEEDS_IFF[name][number](Situation(graph.states[state], names)) for state in graph.going_on]
    assert graph.succeeds[graph.going_on, number].tolist() == expected
    assert any(expected)


# ---------------------------------------------------------------------- the features, facts sections 1.1, 1.2, 2, 3

ROOM_ORDER = ("kitchen", "bathroom", "bedroom", "living room")


def published_features(s: Situation) -> list[bool]:
    in_room = [s.state.room == room for room in ROOM_ORDER]
    food = [part for name in s.names for part in (s.visible(name), s.visible(name) and s.near(name), s.held(name))]
    if s.names == ("pancake",):
        in_kitchen, is_open = s.state.room == "kitchen", bool(s.state.opened)
        in_box = in_kitchen and is_open and s.at("pancake") == "microwave"
        return [*in_room, *food, in_kitchen, in_kitchen and s.near("microwave"), in_kitchen and is_open, in_box]
    on_table = [s.living and s.at(name) == "coffee table" for name in s.names]
    television = [True, s.near("TV"), s.state.facing, bool(s.state.lit)]
    rest = [*television, True, s.near("sofa"), bool(s.state.seats_taken), True, s.near("coffee table")]
    return [*in_room, *food[:3], on_table[0], *food[3:], on_table[1], *(s.living and part for part in rest)]


@BOTH
def test_features(name: str) -> None:
    graph = home_graph(name)
    names = tuple(graph.task.scene.item_index)
    expected = [tuple(map(int, published_features(Situation(state, names)))) for state in graph.states]
    assert graph.features == expected


# ---------------------------------------------------------------------- lists of entertainment, facts section 4


def published_list_of_entertainment(f: tuple[int, ...]) -> list[int]:
    if f[1]:
        return [0, 1, 3]
    if f[2]:
        return [0, 1, 2]
    return published_list_of_the_kitchen(f) if f[0] else published_list_of_the_living_room(f)


def published_list_of_the_kitchen(f: tuple[int, ...]) -> list[int]:
    (see_c, near_c, hold_c), (see_m, near_m, hold_m) = f[4:7], f[8:11]
    food: list[int] = []
    if see_c and see_m:
        if hold_c and hold_m:
            food = []
        elif hold_c:
            food = [10 if near_m else 5]
        elif hold_m:
            food = [9 if near_c else 4]
        else:
            food = {(1, 1): [9, 10], (1, 0): [5, 9], (0, 1): [4, 10], (0, 0): [4, 5]}[near_c, near_m]
    elif see_c:
        food = [] if hold_c else [9] if near_c else [5]
    elif see_m:
        food = [] if hold_m else [10] if near_m else [4]
    return [0, 2, 3, *food]


def published_list_of_the_living_room(f: tuple[int, ...]) -> list[int]:
    hold_c, on_table_c, hold_m, on_table_m = f[6], f[7], f[10], f[11]
    if f[20]:
        if hold_c and hold_m:
            return [1, 2, 3, 7, 8, 11, 12]
        if hold_m:
            return [1, 2, 3, 7, 8] if on_table_c else [1, 2, 3, 7, 8, 12]
        if hold_c:
            return [1, 2, 3, 7, 8] if on_table_m else [1, 2, 3, 7, 8, 11]
        return [1, 2, 3]
    if f[13]:
        return [1, 2, 3, 6, 8] if f[15] else [1, 2, 3, 6, 8, 13, 14]
    if f[17]:
        if f[18]:
            return [1, 2, 3]
        return [1, 2, 3, 6, 7, 15, 16] if f[15] else [1, 2, 3, 6, 7]
    return [1, 2, 3, 6, 7, 8]


def test_lists_of_entertainment() -> None:
    graph = home_graph(WATCH)
    listed = {number: list(graph.lists[number]) for number in graph.going_on}
    assert listed == {number: published_list_of_entertainment(graph.features[number]) for number in graph.going_on}
    assert min(map(len, listed.values())) == 3
