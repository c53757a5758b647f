"""The tasks of the home as rows: scene, command set, feature vector, goal.

Variants differ from these two in nouns only (`lang_envs.registration`), distractors are rows too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from lang_envs.envs.virtualhome.rules import ROOMS, Command, Fact, Fixture, Item, Scene, Use, Verb

Clause = tuple[tuple[bool, Fact], ...]
"""Alternatives; one must hold: (whether the fact shall be perceived, fact)."""


@dataclass(frozen=True)
class HomeTask:
    """A task.

    Attributes:
        name: Key of the task in `TASKS`.
        scene: Content of the home.
        commands: The command set, in the order of the original's action indices; distractors' commands follow.
        feature_facts: Facts of the feature vector, in the original's order.
        goal: Clauses that must all hold.
        distractors: Items that the task does not need.
    """

    name: str
    scene: Scene
    commands: tuple[Command, ...]
    feature_facts: tuple[Fact, ...]
    goal: tuple[Clause, ...]
    distractors: tuple[str, ...] = ()

    def features(self, facts: frozenset[Fact]) -> tuple[int, ...]:
        """Return the feature vector of perceived facts: 1 where a fact holds."""
        return tuple(int(fact in facts) for fact in self.feature_facts)

    def is_reached(self, facts: frozenset[Fact]) -> bool:
        """Return whether the perceived facts fulfil the goal."""
        return all(any((fact in facts) is wanted for wanted, fact in clause) for clause in self.goal)


def _is(*fact: str) -> tuple[bool, Fact]:
    return True, fact


_WALKS = tuple(Command(Verb.WALK_ROOM, room) for room in ("living room", "kitchen", "bathroom", "bedroom"))
_IN_ROOM = tuple(("in", room) for room in ROOMS)

_FOOD_PREPARATION = HomeTask(
    name="food-preparation",
    scene=Scene(
        items=(Item("pancake", "kitchen", "kitchen table"),),
        fixtures=(Fixture("microwave", "kitchen", Use.CONTAINER),),
    ),
    commands=(
        *_WALKS,
        Command(Verb.WALK, "pancake"),
        Command(Verb.WALK, "microwave"),
        Command(Verb.GRAB, "pancake"),
        Command(Verb.PUT, "pancake", "microwave"),
        Command(Verb.OPEN, "microwave"),
        Command(Verb.CLOSE, "microwave"),
    ),
    feature_facts=(
        *_IN_ROOM,
        ("see", "pancake"),
        ("near", "pancake"),
        ("hold", "pancake"),
        ("see", "microwave"),
        ("near", "microwave"),
        ("open", "microwave"),
        ("at", "pancake", "microwave"),
    ),
    # Published literally so. The only way to lose sight of the pancake in the kitchen is to shut it in.
    goal=((_is("in", "kitchen"),), ((False, ("see", "pancake")),)),
)

_ENTERTAINMENT = HomeTask(
    name="entertainment",
    scene=Scene(
        items=(Item("chips", "kitchen", "kitchen counter"), Item("milk", "kitchen", "kitchen table")),
        fixtures=(
            Fixture("coffee table", "living room", Use.SURFACE),
            Fixture("TV", "living room", Use.SWITCH),
            Fixture("sofa", "living room", Use.SEAT),
        ),
    ),
    commands=(
        *_WALKS,
        Command(Verb.WALK, "chips"),
        Command(Verb.WALK, "milk"),
        Command(Verb.WALK, "coffee table"),
        Command(Verb.WALK, "TV"),
        Command(Verb.WALK, "sofa"),
        Command(Verb.GRAB, "chips"),
        Command(Verb.GRAB, "milk"),
        Command(Verb.PUT, "chips", "coffee table"),
        Command(Verb.PUT, "milk", "coffee table"),
        Command(Verb.TURN_ON, "TV"),
        Command(Verb.TURN_OFF, "TV"),
        Command(Verb.SIT, "sofa"),
        Command(Verb.STAND, "sofa"),
    ),
    feature_facts=(
        *_IN_ROOM,
        ("see", "chips"),
        ("near", "chips"),
        ("hold", "chips"),
        ("at", "chips", "coffee table"),
        ("see", "milk"),
        ("near", "milk"),
        ("hold", "milk"),
        ("at", "milk", "coffee table"),
        ("see", "TV"),
        ("near", "TV"),
        ("facing", "TV"),
        ("on", "TV"),
        ("see", "sofa"),
        ("near", "sofa"),
        ("seated", "sofa"),
        ("see", "coffee table"),
        ("near", "coffee table"),
    ),
    goal=(
        (_is("in", "living room"),),
        (_is("facing", "TV"),),
        (_is("on", "TV"),),
        (_is("seated", "sofa"),),
        (_is("near", "milk"), _is("at", "milk", "coffee table")),
        (_is("near", "chips"), _is("at", "chips", "coffee table")),
    ),
)

TASKS: dict[str, HomeTask] = {task.name: task for task in (_FOOD_PREPARATION, _ENTERTAINMENT)}
"""The two published tasks; every id is one of them with other nouns or further arguments."""

DISTRACTORS: dict[str, Item] = {
    item.name: item
    for item in (
        Item("candle", "kitchen", "window sill"),
        Item("notebook", "kitchen", "kitchen table"),
        Item("umbrella", "kitchen", "kitchen chair"),
        Item("spoon", "kitchen", "kitchen counter"),
        Item("newspaper", "kitchen", "kitchen chair"),
        Item("teapot", "kitchen", "kitchen counter"),
    )
}
"""Things that no task needs: they can be walked to, grabbed, and put back in their room."""


@lru_cache(maxsize=256)
def with_distractors(task: HomeTask, names: Sequence[str]) -> HomeTask:
    """Return the task with further things in the home.

    Args:
        task: A task without distractors.
        names: Keys of `DISTRACTORS`, in the order of their description.
    """
    items = tuple(DISTRACTORS[name] for name in names)
    commands = tuple(Command(verb, name) for name in names for verb in (Verb.WALK, Verb.GRAB, Verb.PUT_BACK))
    scene = Scene((*task.scene.items, *items), task.scene.fixtures)
    return replace(task, scene=scene, commands=(*task.commands, *commands), distractors=tuple(names))
