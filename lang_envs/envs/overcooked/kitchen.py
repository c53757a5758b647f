"""Rules of the kitchen: states and primitive moves. Pure functions of immutable states; no text, no rewards."""

from __future__ import annotations

import enum
from typing import NamedTuple

from lang_envs.envs.overcooked.tasks import CHOPS_NEEDED, Cell, KitchenTask

HAND = Cell(-1, -1)
"""Place of things that the cook holds."""
IN_BOWL = Cell(-2, -2)
"""Place of food that lies in the bowl, wherever the bowl is."""

Item = int
"""Index of a food in `KitchenTask.foods`, or `BOWL`."""
BOWL: Item = -1


class Move(enum.Enum):
    """Primitive moves; the value is the letter used in traces."""

    RIGHT = "R"
    DOWN = "D"
    LEFT = "L"
    UP = "U"
    STAY = "S"


_STEPS = {Move.RIGHT: (0, 1), Move.DOWN: (1, 0), Move.LEFT: (0, -1), Move.UP: (-1, 0)}


class Event(enum.Enum):
    """Events of a primitive move that rewards depend on."""

    NONE = enum.auto()
    CHOPPED = enum.auto()
    DELIVERED = enum.auto()
    MISDELIVERED = enum.auto()


class Food(NamedTuple):
    """A food: a cell, `HAND` or `IN_BOWL`, and the number of its strokes with the knife (0..3)."""

    place: Cell
    chops: int

    @property
    def chopped(self) -> bool:
        """Whether all strokes are done."""
        return self.chops >= CHOPS_NEEDED


class KitchenState(NamedTuple):
    """Everything in the kitchen but the clock."""

    agent: Cell
    foods: tuple[Food, ...]
    bowl: Cell

    def contents(self) -> tuple[Item, ...]:
        """Return the foods in the bowl, in the order of `KitchenTask.foods`."""
        return tuple(item for item, food in enumerate(self.foods) if food.place == IN_BOWL)

    def item_at(self, place: Cell) -> Item | None:
        """Return the bowl or bare food at a cell (or in `HAND`)."""
        if self.bowl == place:
            return BOWL
        return next((item for item, food in enumerate(self.foods) if food.place == place), None)

    def cell_of(self, item: Item) -> Cell:
        """Return the cell of an item on the map: held things are with the cook, contents with the bowl."""
        place = self.bowl if item == BOWL else self.foods[item].place
        if place == IN_BOWL:
            place = self.bowl
        return self.agent if place == HAND else place

    def moved(self, item: Item, place: Cell) -> KitchenState:
        """Return the state with one item somewhere else."""
        if item == BOWL:
            return self._replace(bowl=place)
        return self.with_food(item, self.foods[item]._replace(place=place))

    def with_food(self, item: Item, food: Food) -> KitchenState:
        """Return the state with one food replaced."""
        return self._replace(foods=(*self.foods[:item], food, *self.foods[item + 1 :]))


class Rules:
    """Primitive dynamics of one task (facts: `docs/environments/overcooked.md`)."""

    def __init__(self, task: KitchenTask) -> None:
        self.task = task

    def start(self) -> KitchenState:
        """Return the state with everything at home and empty hands."""
        foods = tuple(Food(home, 0) for home in self.task.food_homes)
        return KitchenState(self.task.agent_start, foods, self.task.bowl_home)

    def step(self, state: KitchenState, move: Move) -> tuple[KitchenState, Event]:
        """Execute one primitive: walk onto floor, or use the thing in that direction."""
        if move is Move.STAY:
            return state, Event.NONE
        rows, columns = _STEPS[move]
        target = Cell(state.agent.row + rows, state.agent.column + columns)
        if self.task.is_floor(target):
            return state._replace(agent=target), Event.NONE
        if target == self.task.serving:
            return self._serve(state)
        held, resting = state.item_at(HAND), state.item_at(target)
        if held is not None:
            return self._use_with(state, held, resting, target), Event.NONE
        if resting is None:
            return state, Event.NONE
        return self._use_bare_handed(state, resting, target)

    def _use_bare_handed(self, state: KitchenState, resting: Item, target: Cell) -> tuple[KitchenState, Event]:
        if target in self.task.boards and resting != BOWL and not state.foods[resting].chopped:
            food = state.foods[resting]
            chopped = food._replace(chops=food.chops + 1)
            rewarded = chopped.chopped and self.task.foods[resting] in self.task.name
            return state.with_food(resting, chopped), Event.CHOPPED if rewarded else Event.NONE
        return state.moved(resting, HAND), Event.NONE

    def _use_with(self, state: KitchenState, held: Item, resting: Item | None, target: Cell) -> KitchenState:
        if resting is None:
            return state.moved(held, target)
        if held == BOWL and resting != BOWL and state.foods[resting].chopped:
            return state.moved(resting, IN_BOWL)
        if held != BOWL and resting == BOWL and state.foods[held].chopped:
            filled = state.moved(held, IN_BOWL)
            # From a board the cook takes the filled bowl along; on a counter it stays.
            return filled.moved(BOWL, HAND) if target in self.task.boards else filled
        return state

    def _serve(self, state: KitchenState) -> tuple[KitchenState, Event]:
        held = state.item_at(HAND)
        if held is None:
            return state, Event.NONE
        served = {held} if held != BOWL else set(state.contents())
        if held == BOWL and {self.task.foods[item] for item in served} == self.task.goal:
            return state.moved(BOWL, self.task.serving), Event.DELIVERED
        for item in served - {BOWL}:
            state = state.with_food(item, Food(self.task.food_homes[item], 0))
        return (state.moved(BOWL, self.task.bowl_home) if held == BOWL else state), Event.MISDELIVERED
