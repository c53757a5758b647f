"""The kitchen as data: the map, and the tasks played on it.

Coordinates are `Cell(row, column)`, counted from 0 at the top left. The interior (rows and columns 1..5) is free floor;
the ring around it is counters, boards and the serving hatch, so every target on the ring has exactly one floor cell
beside it, its *stand cell*.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

CHOPS_NEEDED = 3
"""Number of strokes of the knife until food counts as chopped."""

_MAP = """\
#####T#
B...A.L
B.....O
S.....#
#.....#
#.....#
#####P#
"""
_FOOD_LETTERS = {"tomato": "T", "lettuce": "L", "onion": "O"}


class Cell(NamedTuple):
    """A place on the map: row counted downward, column counted rightward, both from 0."""

    row: int
    column: int


def _cells(letter: str) -> tuple[Cell, ...]:
    return tuple(
        Cell(row, column)
        for row, line in enumerate(_MAP.splitlines())
        for column, symbol in enumerate(line)
        if symbol == letter
    )


@dataclass(frozen=True)
class KitchenTask:
    """A recipe and the part of the map that it uses; the rest is plain counter.

    Attributes:
        name: Name of the dish in the original task list; a food named in it earns the chopping reward.
        index: Position in that list of seven; one-hot at the end of the feature vector.
        foods: Foods present, in the order of the feature vector.
        goal: Foods that the served bowl must hold, no more and no less.
        n_boards: Number of cutting boards, 1 or 2.
        names_empty_bowl: Whether the phrase for taking the bowl calls it empty.
    """

    name: str
    index: int
    foods: tuple[str, ...]
    goal: frozenset[str]
    n_boards: int
    names_empty_bowl: bool

    size = 7
    n_tasks = 7

    @cached_property
    def food_homes(self) -> tuple[Cell, ...]:
        """Cell where each food starts and returns to."""
        return tuple(_cells(_FOOD_LETTERS[food])[0] for food in self.foods)

    @cached_property
    def bowl_home(self) -> Cell:
        """Cell where the bowl starts and returns to."""
        return _cells("P")[0]

    @cached_property
    def boards(self) -> tuple[Cell, ...]:
        """Cells of the cutting boards, from the top."""
        return _cells("B")[: self.n_boards]

    @cached_property
    def serving(self) -> Cell:
        """Cell of the serving hatch."""
        return _cells("S")[0]

    @cached_property
    def agent_start(self) -> Cell:
        """Cell where the cook starts."""
        return _cells("A")[0]

    def is_floor(self, cell: Cell) -> bool:
        """Return whether the cook can stand on `cell`."""
        return 0 < cell.row < self.size - 1 and 0 < cell.column < self.size - 1

    def stand_cell(self, target: Cell) -> Cell:
        """Return the floor cell next to a target on the ring."""
        last = self.size - 2
        return Cell(min(max(target.row, 1), last), min(max(target.column, 1), last))


def _large(name: str, index: int, *goal: str) -> KitchenTask:
    """Return a recipe in the kitchen with everything in it."""
    return KitchenTask(name, index, ("tomato", "lettuce", "onion"), frozenset(goal), n_boards=2, names_empty_bowl=True)


TASKS: dict[str, KitchenTask] = {
    "tomato-salad": KitchenTask("tomato salad", 0, ("tomato",), frozenset({"tomato"}), 1, names_empty_bowl=False),
    "lettuce-salad": _large("lettuce salad", 1, "lettuce"),
    "onion-salad": _large("onion salad", 2, "onion"),
    "tomato-lettuce-salad": _large("lettuce-tomato salad", 3, "tomato", "lettuce"),
    "tomato-onion-salad": _large("onion-tomato salad", 4, "tomato", "onion"),
    "lettuce-onion-salad": _large("lettuce-onion salad", 5, "lettuce", "onion"),
    "tomato-lettuce-onion-salad": _large("lettuce-onion-tomato salad", 6, "tomato", "lettuce", "onion"),
}
"""The recipes of the original family, in its order. The first and the fourth are the published tasks."""
