"""Macro-actions: the cook's verbs, each a run of primitive moves.

Navigation is exact for one cook on an empty floor: all row moves, then all column moves, to the target's stand cell,
then one move that faces the target. Every macro-action takes at least one primitive and is never cut.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from lang_envs.envs.overcooked.kitchen import BOWL, HAND, IN_BOWL, Event, Item, KitchenState, Move, Rules
from lang_envs.envs.overcooked.tasks import CHOPS_NEEDED, Cell, KitchenTask


class Verb(enum.Enum):
    """Kinds of macro-action."""

    GET_FOOD = enum.auto()
    GET_BOWL = enum.auto()
    GO_TO_BOARD = enum.auto()
    DELIVER = enum.auto()
    CHOP = enum.auto()


class Macro(NamedTuple):
    """A verb and its object: index of the food or board, 0 where there is no choice."""

    verb: Verb
    target: int = 0


class MacroRun(NamedTuple):
    """The state after a macro-action, and the primitive moves and events on the way."""

    state: KitchenState
    moves: tuple[Move, ...]
    events: tuple[Event, ...]


def macros_of(task: KitchenTask) -> tuple[Macro, ...]:
    """Return all macro-actions of a task, in the order of its admissible list."""
    return (
        *(Macro(Verb.GET_FOOD, item) for item in range(len(task.foods))),
        Macro(Verb.GET_BOWL),
        *(Macro(Verb.GO_TO_BOARD, board) for board in range(task.n_boards)),
        Macro(Verb.DELIVER),
        Macro(Verb.CHOP),
    )


def in_view(agent: Cell, cell: Cell, radius: int) -> bool:
    """Return whether `cell` is in the square of `radius` around the cook."""
    return abs(agent.row - cell.row) <= radius and abs(agent.column - cell.column) <= radius


def execute(rules: Rules, state: KitchenState, macro: Macro, view_radius: int) -> MacroRun:
    """Run one macro-action to its end."""
    run = _Run(rules, state, view_radius)
    if macro.verb is Verb.GET_FOOD:
        run.get_food(macro.target)
    elif macro.verb is Verb.GET_BOWL:
        run.get_bowl()
    elif macro.verb is Verb.GO_TO_BOARD:
        run.go_and_use_if_holding(rules.task.boards[macro.target])
    elif macro.verb is Verb.DELIVER:
        run.deliver()
    else:
        run.chop()
    return MacroRun(run.state, tuple(run.moves), tuple(run.events))


class _Run:
    """The primitives of one macro-action as they are made."""

    def __init__(self, rules: Rules, state: KitchenState, view_radius: int) -> None:
        self.rules = rules
        self.state = state
        self.view_radius = view_radius
        self.moves: list[Move] = []
        self.events: list[Event] = []

    def get_food(self, item: Item) -> None:
        food = self.state.foods[item]
        if food.place == IN_BOWL:
            self._approach_bowl()
        elif food.place == HAND:
            self._do(Move.STAY)
        elif food.place in self.rules.task.boards and not food.chopped:
            self._go_or_stay(food.place)
        else:
            self._go(food.place)
            self._use(food.place)

    def get_bowl(self) -> None:
        bowl, held = self.state.bowl, self.state.item_at(HAND)
        if held == BOWL:
            return self._do(Move.STAY)
        self._go(bowl)
        if held is None:
            return self._use(bowl)
        if not self.state.foods[held].chopped:
            return self._do(Move.STAY)
        self._use(bowl)
        if self.state.bowl == HAND:  # it was on a board: filling it also takes it
            return self._do(Move.STAY)
        return self._use(bowl)

    def go_and_use_if_holding(self, target: Cell) -> None:
        if self.state.item_at(HAND) is None:
            return self._go_or_stay(target)
        self._go(target)
        return self._use(target)

    def deliver(self) -> None:
        serving = self.rules.task.serving
        already_there = self.state.agent == self.rules.task.stand_cell(serving)
        if self.state.item_at(HAND) is None and not already_there:
            return self._go(serving)
        self._go(serving)
        return self._use(serving)

    def chop(self) -> None:
        for board in self.rules.task.boards:
            item = self.state.item_at(board)
            is_at_board = self.state.agent == self.rules.task.stand_cell(board)
            if is_at_board and item is not None and item != BOWL and not self.state.foods[item].chopped:
                for _ in range(CHOPS_NEEDED):
                    self._use(board)
                return
        self._do(Move.STAY)

    def _approach_bowl(self) -> None:
        """Walk toward the bowl until it is in view (a held bowl is), then stay once."""
        path = self._path(self.state.cell_of(BOWL))
        for move in path:
            if in_view(self.state.agent, self.state.cell_of(BOWL), self.view_radius):
                break
            self._do(move)
        self._do(Move.STAY)

    def _go_or_stay(self, target: Cell) -> None:
        if self.state.agent == self.rules.task.stand_cell(target):
            self._do(Move.STAY)
        else:
            self._go(target)

    def _go(self, target: Cell) -> None:
        for move in self._path(target):
            self._do(move)

    def _path(self, target: Cell) -> list[Move]:
        agent, stand = self.state.agent, self.rules.task.stand_cell(target)
        rows, columns = stand.row - agent.row, stand.column - agent.column
        return [Move.DOWN if rows > 0 else Move.UP] * abs(rows) + [Move.RIGHT if columns > 0 else Move.LEFT] * abs(
            columns
        )

    def _use(self, target: Cell) -> None:
        rows, columns = target.row - self.state.agent.row, target.column - self.state.agent.column
        if rows:
            self._do(Move.DOWN if rows > 0 else Move.UP)
        else:
            self._do(Move.RIGHT if columns > 0 else Move.LEFT)

    def _do(self, move: Move) -> None:
        self.state, event = self.rules.step(self.state, move)
        self.moves.append(move)
        self.events.append(event)
