"""Rules of the home: scene, states, commands, and perceived facts. Pure functions of immutable states; no text.

Names of things are *roles*: the rules know a thing as "pancake" under any wording of a task.

The tasks are hard since they are partially observed: a feature is 1 only while all its things are visible, a
walk forgets what was near, and a carried thing has a *recorded room* that lags one walk behind, so that walking to a
thing in hand after changing rooms leads back (facts: `docs/environments/virtualhome.md`).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

ROOMS = ("kitchen", "bathroom", "bedroom", "living room")
"""All rooms, in the order of the feature vector. Every room is one step from every other."""


class Use(enum.Enum):
    """Use of a piece of furniture."""

    NONE = enum.auto()
    CONTAINER = enum.auto()  # opens and closes; hides its contents while closed
    SURFACE = enum.auto()
    SWITCH = enum.auto()  # turns on and off
    SEAT = enum.auto()


@dataclass(frozen=True)
class Item:
    """A thing that can be carried.

    Attributes:
        name: Role of the thing.
        room: Room of the thing at the start.
        spot: Furniture under it at the start; used by drawings and the full description only.
    """

    name: str
    room: str
    spot: str


@dataclass(frozen=True)
class Fixture:
    """A thing that stays where it is.

    Attributes:
        name: Role of the furniture.
        room: Room of the furniture.
        use: Use of the furniture.
    """

    name: str
    room: str
    use: Use


@dataclass(frozen=True)
class Scene:
    """Content of the home.

    Attributes:
        items: Things to carry, in the order of `HomeState.items`.
        fixtures: Furniture that commands can name.
    """

    items: tuple[Item, ...]
    fixtures: tuple[Fixture, ...]

    start_room = "kitchen"

    @cached_property
    def item_index(self) -> dict[str, int]:
        """Position of each item by name."""
        return {item.name: position for position, item in enumerate(self.items)}

    @cached_property
    def fixture(self) -> dict[str, Fixture]:
        """Furniture by name."""
        return {fixture.name: fixture for fixture in self.fixtures}


AT_START = "start"
"""Place of an item that has not been moved, or has been put back."""
IN_HAND = "hand"
"""Place of an item that is carried."""

N_HANDS = 2


class Verb(enum.Enum):
    """Kinds of command."""

    WALK_ROOM = enum.auto()
    WALK = enum.auto()
    GRAB = enum.auto()
    PUT = enum.auto()
    PUT_BACK = enum.auto()
    OPEN = enum.auto()
    CLOSE = enum.auto()
    TURN_ON = enum.auto()
    TURN_OFF = enum.auto()
    SIT = enum.auto()
    STAND = enum.auto()


class Command(NamedTuple):
    """A verb and the roles it is about."""

    verb: Verb
    target: str
    destination: str = ""


Fact = tuple[str, ...]
"""Something perceived, such as `("near", "pancake")`; a feature vector asks for a list of them."""


class ItemState(NamedTuple):
    """Where an item is (`AT_START`, `IN_HAND`, or a fixture), and, while it is carried, the room on record for it."""

    place: str
    record: str | None = None


class HomeState(NamedTuple):
    """Everything in the home but the clock.

    Attributes:
        room: Room of the person.
        near: Roles that the person is near.
        items: State of each item, in the order of `Scene.items`.
        opened: Containers that are open.
        lit: Switches that are on.
        sitting: Whether the person sits.
        seats_taken: Seats sat on in this episode; standing up does not remove the mark.
        facing: Whether the person faces the switch of the room (set by sitting, cleared by walking).
    """

    room: str
    near: frozenset[str]
    items: tuple[ItemState, ...]
    opened: frozenset[str] = frozenset()
    lit: frozenset[str] = frozenset()
    sitting: bool = False
    seats_taken: frozenset[str] = frozenset()
    facing: bool = False


class Rules:
    """Dynamics of a scene."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    def start(self) -> HomeState:
        """Return the start: in the kitchen with empty hands; everything in its place, closed and off."""
        return HomeState(self.scene.start_room, frozenset(), tuple(ItemState(AT_START) for _ in self.scene.items))

    # ------------------------------------------------------------------ commands

    def execute(self, state: HomeState, command: Command) -> HomeState | None:
        """Return the state after a command, or None where the world refuses it."""
        verb, target, destination = command
        if verb is Verb.WALK_ROOM:
            return None if state.sitting else self._walk(state, target, frozenset())
        if verb is Verb.STAND:
            return state._replace(sitting=False) if state.sitting else None
        if not self.sees(state, target):
            return None
        if verb is Verb.WALK:
            return None if state.sitting else self._walk_to(state, target)
        if target in self.scene.item_index:
            return self._handle(state, verb, target, destination)
        return self._operate(state, verb, target) if target in state.near else None

    def _walk(self, state: HomeState, room: str, near: frozenset[str]) -> HomeState:
        """Rebuild nearness; carried things come along, on record in the room just left."""
        items = tuple(ItemState(IN_HAND, state.room) if item.place == IN_HAND else item for item in state.items)
        return state._replace(room=room, near=near | self._held(state), items=items, facing=False)

    def _walk_to(self, state: HomeState, target: str) -> HomeState:
        if target in self.scene.item_index:
            place, record = state.items[self.scene.item_index[target]]
            if place == IN_HAND:
                return self._walk(state, record or state.room, frozenset())
            near = {target} if place == AT_START else {target, place}
            return self._walk(state, state.room, frozenset(near))
        inside = self._inside(state, target) if self.scene.fixture[target].use is Use.CONTAINER else frozenset()
        return self._walk(state, state.room, inside | {target})

    def _handle(self, state: HomeState, verb: Verb, target: str, destination: str) -> HomeState | None:
        place = state.items[self.scene.item_index[target]].place
        if verb is Verb.GRAB:
            # On a surface, nearness of the surface is enough.
            within_reach = target in state.near or place in state.near
            if place == IN_HAND or not within_reach or not self._has_free_hand(state):
                return None
            return self._moved(state, target, ItemState(IN_HAND, state.room))
        if place != IN_HAND:
            return None
        if verb is Verb.PUT_BACK:
            at_home = state.room == self._item(target).room
            return self._moved(state, target, ItemState(AT_START)) if at_home else None
        ready = self.scene.fixture[destination].use is Use.SURFACE or destination in state.opened
        reached = destination in state.near and self.sees(state, destination)
        return self._moved(state, target, ItemState(destination)) if ready and reached else None

    def _operate(self, state: HomeState, verb: Verb, target: str) -> HomeState | None:
        """Use furniture that is near."""
        if verb is Verb.OPEN:
            can = target not in state.opened and self._has_free_hand(state)
            return state._replace(opened=state.opened | {target}) if can else None
        if verb is Verb.CLOSE:
            return state._replace(opened=state.opened - {target}) if target in state.opened else None
        if verb is Verb.SIT:
            taken = state.seats_taken | {target}
            return None if state.sitting else state._replace(sitting=True, seats_taken=taken, facing=True)
        turned = state.lit | {target} if verb is Verb.TURN_ON else state.lit - {target}
        return state._replace(lit=turned) if turned != state.lit and self._has_free_hand(state) else None

    def _moved(self, state: HomeState, target: str, item: ItemState) -> HomeState:
        index = self.scene.item_index[target]
        return state._replace(near=state.near | {target}, items=(*state.items[:index], item, *state.items[index + 1 :]))

    # ------------------------------------------------------------------ places

    def sees(self, state: HomeState, name: str) -> bool:
        """Return whether a thing is visible: in hand, or in this room and not shut away."""
        if name in self.scene.fixture:
            return self.scene.fixture[name].room == state.room
        place = state.items[self.scene.item_index[name]].place
        if place == IN_HAND:
            return True
        if place == AT_START:
            return self._item(name).room == state.room
        holder = self.scene.fixture[place]
        return holder.room == state.room and (holder.use is Use.SURFACE or place in state.opened)

    def perceive(self, state: HomeState) -> frozenset[Fact]:
        """Return all facts about visible things."""
        facts: set[Fact] = {("in", state.room)}
        for name, item in zip(self.scene.item_index, state.items, strict=True):
            if self.sees(state, name):
                facts.add(("see", name))
                facts.add(("hold", name) if item.place == IN_HAND else ("at", name, item.place))
        for name, fixture in self.scene.fixture.items():
            if fixture.room == state.room:
                facts |= {("see", name), *self._condition(state, name)}
        facts |= {("near", name) for name in state.near if ("see", name) in facts}
        return frozenset(facts)

    def _condition(self, state: HomeState, name: str) -> set[Fact]:
        facts: set[Fact] = set()
        if name in state.opened:
            facts.add(("open", name))
        if name in state.lit:
            facts.add(("on", name))
        if name in state.seats_taken:
            facts.add(("seated", name))
        if state.facing and self.scene.fixture[name].use is Use.SWITCH:
            facts.add(("facing", name))
        return facts

    def _item(self, name: str) -> Item:
        return self.scene.items[self.scene.item_index[name]]

    def _held(self, state: HomeState) -> frozenset[str]:
        names = self.scene.item_index
        return frozenset(name for name in names if state.items[names[name]].place == IN_HAND)

    def _inside(self, state: HomeState, fixture: str) -> frozenset[str]:
        names = self.scene.item_index
        return frozenset(name for name in names if state.items[names[name]].place == fixture)

    def _has_free_hand(self, state: HomeState) -> bool:
        return len(self._held(state)) < N_HANDS
