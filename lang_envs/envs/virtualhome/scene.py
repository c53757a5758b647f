"""A home as data: rooms, furniture, and things that can be carried.

Names here are *roles*: the rules know a thing as "pancake" whatever a task's wording calls it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cached_property

ROOMS = ("kitchen", "bathroom", "bedroom", "living room")
"""All rooms, in the order of the feature vector. Every room is one step from every other."""


class Use(enum.Enum):
    """What a piece of furniture is good for."""

    NONE = enum.auto()
    CONTAINER = enum.auto()  # opens and closes; closed, it hides what is inside
    SURFACE = enum.auto()
    SWITCH = enum.auto()  # turns on and off
    SEAT = enum.auto()


@dataclass(frozen=True)
class Item:
    """A thing that can be carried.

    Attributes:
        name: Its role.
        room: Room where it starts.
        spot: Furniture on which it starts; only drawings and the full description tell.
    """

    name: str
    room: str
    spot: str


@dataclass(frozen=True)
class Fixture:
    """A thing that stays where it is.

    Attributes:
        name: Its role.
        room: Where it stands.
        use: What it is good for.
    """

    name: str
    room: str
    use: Use


@dataclass(frozen=True)
class Scene:
    """What is in the home.

    Attributes:
        items: Things to carry, in the order of `HomeState.items`.
        fixtures: Furniture that commands can name.
    """

    items: tuple[Item, ...]
    fixtures: tuple[Fixture, ...]

    start_room = "kitchen"

    @cached_property
    def item_index(self) -> dict[str, int]:
        """Position of each item."""
        return {item.name: position for position, item in enumerate(self.items)}

    @cached_property
    def fixture(self) -> dict[str, Fixture]:
        """Furniture by name."""
        return {fixture.name: fixture for fixture in self.fixtures}
