"""The kitchen against its published figures: macro-actions, optimal plans, words, primitive quirks.

The numbers are those measured on the original environments (docs/environments/overcooked.md).
"""

from __future__ import annotations

import json
from hashlib import sha256

import numpy as np
import pytest
from macro_graph import LIMIT, VIEW_RADIUS, MacroGraph, macro_graph

from lang_envs.envs.overcooked import describe
from lang_envs.envs.overcooked.admissible import admissible_phrases
from lang_envs.envs.overcooked.env import OvercookedEnv
from lang_envs.envs.overcooked.kitchen import HAND, IN_BOWL, Event, Food, KitchenState, Move, Rules
from lang_envs.envs.overcooked.oracle import best_macro
from lang_envs.envs.overcooked.tasks import TASKS, Cell

SMALL, LARGE = "tomato-salad", "tomato-lettuce-salad"
OTHERS = [name for name in TASKS if name not in (SMALL, LARGE)]
"""Recipes of the original family that no trace was recorded of."""


# ---------------------------------------------------------------------- states, rewards, features and words

DIGESTS = {SMALL: "2ba78f289a43352d", LARGE: "4ceef6351f380459"}
"""Made when the values of random and of optimal play were the published ones, to their last digit."""


@pytest.mark.parametrize("name", DIGESTS)
def test_macro_actions_features_lists_and_texts_stay_the_same(name: str) -> None:
    """In every state that can be reached from reset."""
    graph = macro_graph(name)
    told = [
        [describe.features(graph.task, state, VIEW_RADIUS), admissible_phrases(graph.task, state, VIEW_RADIUS),
         describe.observation(graph.task, state, VIEW_RADIUS)]
        for state in graph.states
    ]  # fmt: skip
    rewards = (np.round(graph.rewards, 9) + 0.0).tolist()
    arrays = [array.tolist() for array in (graph.after, graph.primitives, graph.delivered)]
    content = json.dumps([rewards, *arrays, graph.letters, told])
    assert sha256(content.encode()).hexdigest()[:16] == DIGESTS[name]


# ---------------------------------------------------------------------- optimal plans


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
