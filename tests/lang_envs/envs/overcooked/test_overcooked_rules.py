"""The kitchen against its published figures: reachable states, values, optimal plans, words, primitive quirks.

The numbers are those measured on the original environments (docs/environments/overcooked.md).
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from macro_graph import DISCOUNT, LIMIT, VIEW_RADIUS, MacroGraph, macro_graph, once_only

from lang_envs.envs.overcooked import describe
from lang_envs.envs.overcooked.admissible import admissible_phrases
from lang_envs.envs.overcooked.env import OvercookedEnv
from lang_envs.envs.overcooked.kitchen import HAND, IN_BOWL, Event, Food, KitchenState, Move, Rules
from lang_envs.envs.overcooked.oracle import best_macro
from lang_envs.envs.overcooked.tasks import TASKS, Cell

SMALL, LARGE = "tomato-salad", "tomato-lettuce-salad"
OTHERS = [name for name in TASKS if name not in (SMALL, LARGE)]
"""Recipes of the original family that no trace was recorded of."""


def half_a_digit(decimals: int) -> float:
    return 0.5 * 10.0**-decimals


# ---------------------------------------------------------------------- states and values


@pytest.mark.parametrize(("name", "n_states", "n_features", "n_macros"), [(SMALL, 24, 21, 5), (LARGE, 1156, 801, 8)])
def test_reachable_states(name: str, n_states: int, n_features: int, n_macros: int) -> None:
    graph = macro_graph(name)
    assert graph.rewards.shape == (n_states, n_macros)
    assert len({describe.features(graph.task, state, VIEW_RADIUS) for state in graph.states}) == n_features
    assert {food.chops for state in graph.states for food in state.foods} == {0, 3}


# The published 201.45 primitives of the larger kitchen are 201.44492, rounded twice.
@pytest.mark.parametrize(
    ("name", "percent_delivered", "macros", "primitives", "return_", "primitive_return"),
    [(SMALL, 44.20, 56.33, 165.37, -0.10802, -0.09641), (LARGE, 1.02, 64.94, 201.44, -0.55652, -0.22797)],
)
def test_exact_values_of_random_play(
    name: str, percent_delivered: float, macros: float, primitives: float, return_: float, primitive_return: float
) -> None:
    graph = macro_graph(name)
    two, five = half_a_digit(2), half_a_digit(5)
    assert 100 * graph.expect(graph.delivered.astype(float)) == pytest.approx(percent_delivered, abs=two)
    assert graph.expect(np.ones_like(graph.rewards)) == pytest.approx(macros, abs=two)
    assert graph.expect(graph.primitives.astype(float)) == pytest.approx(primitives, abs=two)
    assert graph.expect(graph.rewards) == pytest.approx(return_, abs=five)
    assert graph.expect(graph.rewards, primitive_discount=DISCOUNT) == pytest.approx(primitive_return, abs=five)


@pytest.mark.parametrize(
    ("name", "per_primitive", "per_macro", "undiscounted"),
    [(SMALL, 0.920518, 1.289141, 1.860370), (LARGE, 0.947656, 1.411660, 1.973105)],
)
def test_exact_values_of_optimal_play(name: str, per_primitive: float, per_macro: float, undiscounted: float) -> None:
    graph, six = macro_graph(name), half_a_digit(6)
    rewards = graph.rewards
    best_per_primitive = graph.expect(rewards, primitive_discount=DISCOUNT, choose=np.max)
    assert best_per_primitive == pytest.approx(per_primitive, abs=six)
    assert graph.expect(rewards, macro_discount=DISCOUNT, choose=np.max) == pytest.approx(per_macro, abs=six)
    assert graph.expect(rewards, choose=np.max) == pytest.approx(undiscounted, abs=six)


@pytest.mark.parametrize(
    ("name", "per_macro", "undiscounted"),
    [(SMALL, 1.094908, 1.145992), (LARGE, 1.240972, 1.338102)],
)
def test_chopping_paid_once_makes_finishing_best(name: str, per_macro: float, undiscounted: float) -> None:
    graph = once_only(macro_graph(name))
    assert graph.expect(graph.rewards, macro_discount=DISCOUNT, choose=np.max) == pytest.approx(
        per_macro, abs=half_a_digit(6)
    )
    assert graph.expect(graph.rewards, choose=np.max) == pytest.approx(undiscounted, abs=half_a_digit(6))


# ---------------------------------------------------------------------- optimal plans

PLANS = {
    SMALL: [
        (0, "RU", -0.00199),
        (2, "LLLLL", -0.004900995),
        (4, "LLL", 0.1930499),
        (0, "L", -0.001),
        (1, "DDDDRRRRDD", -0.009561792),
        (3, "UULLLLL", 0.934686684),
    ],
    LARGE: [
        (0, "RU", -0.00199),
        (4, "LLLLL", -0.004900995),
        (7, "LLL", 0.1930499),
        (1, "RRRRR", -0.004900995),
        (5, "DLLLLL", -0.005851985),
        (7, "LLL", 0.1930499),
        (3, "DDDRRRRD", -0.007725531),
        (0, "UUUULLLLL", -0.008648275),
        (1, "DL", -0.00199),
        (6, "DL", 0.98801),
    ],
}


@pytest.mark.parametrize("name", PLANS)
def test_oracle_plan(name: str) -> None:
    graph, plan = macro_graph(name), PLANS[name]
    state = 0
    for position, (index, letters, reward) in enumerate(plan):
        assert best_macro(graph.task, graph.states[state], VIEW_RADIUS) == index
        assert graph.letters[state][index] == letters
        assert graph.rewards[state, index] == pytest.approx(reward, abs=half_a_digit(9))
        assert graph.delivered[state, index] == (position == len(plan) - 1)
        state = graph.after[state, index]


@pytest.mark.parametrize("name", [SMALL, *(pytest.param(name, marks=pytest.mark.matrix) for name in list(TASKS)[1:])])
def test_oracle_is_shortest_from_every_state(name: str) -> None:
    graph = macro_graph(name)
    distance = graph.macros_to_delivery()
    for number, state in enumerate(graph.states):
        best = best_macro(graph.task, state, VIEW_RADIUS)
        rest = 0 if graph.delivered[number, best] else distance[graph.after[number, best]]
        assert 1 + rest == distance[number]


# ---------------------------------------------------------------------- the other recipes


@pytest.mark.parametrize(
    ("name", "macros"),
    list(zip(OTHERS, [6, 6, 10, 10, 16], strict=True)),
)
def test_other_recipes(name: str, macros: int) -> None:
    """One kitchen, another order: the same states until a dish is served, as many steps for as many foods."""
    graph = macro_graph(name)
    assert graph.task.foods == TASKS[LARGE].foods
    distance = graph.macros_to_delivery()
    assert (distance[0], np.isfinite(distance).all()) == (macros, True)
    assert list(TASKS).index(name) == graph.task.index
    env = OvercookedEnv(name)
    env.reset()
    rewards = [env.step_text(env.oracle_action())[1] for _ in range(macros)]
    assert rewards[-1] > 0.9
    assert sum(reward > 0.1 for reward in rewards[:-1]) == len(graph.task.goal)  # each chop of a food of the dish


# ---------------------------------------------------------------------- the limit


@pytest.mark.parametrize("name", [SMALL, LARGE])
def test_a_delivery_at_or_beyond_the_limit_counts(name: str) -> None:
    env, graph = OvercookedEnv(name), macro_graph(name)
    ends = np.arange(LIMIT)[:, None, None] + graph.primitives
    late = graph.times_reached()[:, :, None] & graph.delivered & (ends >= LIMIT)
    assert ends[late].min() == LIMIT
    for wanted in (LIMIT, ends[late].max()):
        time, state, macro = np.argwhere(late & (ends == wanted))[0]
        play_to(env, graph, time, state)
        _, reward, terminated, truncated, info = env.step_text(env.admissible_actions()[macro])
        assert env.elapsed_primitives == wanted
        assert (terminated, truncated, info["success"]) == (True, False, True)
        assert reward > 0.9


def play_to(env: OvercookedEnv, graph: MacroGraph, time: int, state: int) -> None:
    """Bring `env` to a state at a primitive time, by a path found backwards."""
    reached, path = graph.times_reached(), []
    while time:
        before = np.maximum(time - graph.primitives, 0)
        fits = (graph.after == state) & ~graph.delivered & (graph.primitives <= time)
        fits &= reached[before, np.arange(len(graph.states))[:, None]]
        state, macro = np.argwhere(fits)[0]
        time -= graph.primitives[state, macro]
        path.append(macro)
    env.reset()
    for macro in reversed(path):
        _, _, terminated, truncated, _ = env.step_text(env.admissible_actions()[macro])
        assert (terminated, truncated) == (False, False)


# ---------------------------------------------------------------------- words


@pytest.mark.parametrize("name", [SMALL, LARGE])
def test_the_sentence_determines_the_phrases(name: str) -> None:
    graph, phrases = macro_graph(name), defaultdict(set)
    for state in graph.states:
        listed = admissible_phrases(graph.task, state, VIEW_RADIUS)
        assert len(set(listed)) == len(listed)
        phrases[describe.observation(graph.task, state, VIEW_RADIUS)].add(listed)
    assert {text: lists for text, lists in phrases.items() if len(lists) > 1} == {}


BEFORE_FIRST, TOMATO_HOME, LETTUCE_HOME, ONION_HOME = Cell(1, 1), Cell(0, 5), Cell(1, 6), Cell(2, 6)
BOARD_1, BOARD_2, BOWL_AT_HOME = Cell(1, 0), Cell(2, 0), Cell(6, 5)
AT_HOME = (Food(TOMATO_HOME, 0), Food(LETTUCE_HOME, 0), Food(ONION_HOME, 0))


# ---------------------------------------------------------------------- primitive moves

COUNTER, BESIDE_COUNTER = Cell(0, 3), Cell(1, 3)
HATCH, BEFORE_HATCH = Cell(3, 0), Cell(3, 1)


def kitchen(
    agent: Cell,
    tomato: Cell = TOMATO_HOME,
    chops: int = 0,
    bowl: Cell = BOWL_AT_HOME,
    *,
    lettuce: Food = AT_HOME[1],
    onion: Food = AT_HOME[2],
) -> KitchenState:
    return KitchenState(agent, (Food(tomato, chops), lettuce, onion), bowl)


# name: (before, move, after or None for unchanged, event)
PRIMITIVES: dict[str, tuple[KitchenState, Move, KitchenState | None, Event]] = {
    "pick up with full hand": (kitchen(Cell(1, 5), bowl=HAND), Move.UP, None, Event.NONE),
    "pick up filled bowl": (
        kitchen(BESIDE_COUNTER, IN_BOWL, 3, COUNTER),
        Move.UP,
        kitchen(BESIDE_COUNTER, IN_BOWL, 3, HAND),
        Event.NONE,
    ),
    "third stroke, not in the dish": (
        kitchen(BEFORE_FIRST, onion=Food(BOARD_1, 2)),
        Move.LEFT,
        kitchen(BEFORE_FIRST, onion=Food(BOARD_1, 3)),
        Event.NONE,
    ),
    "bowl takes chopped from board": (
        kitchen(BEFORE_FIRST, BOARD_1, 3, HAND),
        Move.LEFT,
        kitchen(BEFORE_FIRST, IN_BOWL, 3, HAND),
        Event.NONE,
    ),
    "chopped into bowl on board takes the bowl": (
        kitchen(BEFORE_FIRST, HAND, 3, BOARD_1),
        Move.LEFT,
        kitchen(BEFORE_FIRST, IN_BOWL, 3, HAND),
        Event.NONE,
    ),
    "food onto food on board": (
        kitchen(BEFORE_FIRST, HAND, 3, lettuce=Food(BOARD_1, 3)),
        Move.LEFT,
        None,
        Event.NONE,
    ),
    "chopped into bowl on counter leaves the bowl": (
        kitchen(BESIDE_COUNTER, HAND, 3, COUNTER),
        Move.UP,
        kitchen(BESIDE_COUNTER, IN_BOWL, 3, COUNTER),
        Event.NONE,
    ),
    "bowl takes chopped from counter": (
        kitchen(BESIDE_COUNTER, COUNTER, 3, HAND),
        Move.UP,
        kitchen(BESIDE_COUNTER, IN_BOWL, 3, HAND),
        Event.NONE,
    ),
    "serve chopped food": (kitchen(BEFORE_HATCH, HAND, 3), Move.LEFT, kitchen(BEFORE_HATCH), Event.MISDELIVERED),
    "serve incomplete dish": (
        kitchen(BEFORE_HATCH, IN_BOWL, 3, HAND),
        Move.LEFT,
        kitchen(BEFORE_HATCH),
        Event.MISDELIVERED,
    ),
    "serve too much": (
        kitchen(BEFORE_HATCH, IN_BOWL, 3, HAND, lettuce=Food(IN_BOWL, 3), onion=Food(IN_BOWL, 3)),
        Move.LEFT,
        kitchen(BEFORE_HATCH),
        Event.MISDELIVERED,
    ),
}


@pytest.mark.parametrize(("before", "move", "after", "event"), PRIMITIVES.values(), ids=PRIMITIVES)
def test_primitive(before: KitchenState, move: Move, after: KitchenState | None, event: Event) -> None:
    assert Rules(TASKS[LARGE]).step(before, move) == (before if after is None else after, event)
