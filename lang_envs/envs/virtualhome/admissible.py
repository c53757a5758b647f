"""Admissible commands: the published lists, from the percepts.

Admissible is not executable. The lists offer commands that the world refuses (opening an open door) and leave out some
that it would carry out (taking a thing back from the coffee table); the unlisted ones stay in the command set. The
lists are kept as they were published, quirks included (`docs/environments/virtualhome.md`).
"""

from __future__ import annotations

from collections.abc import Callable

from lang_envs.envs.virtualhome.rules import Command, Fact, Verb
from lang_envs.envs.virtualhome.tasks import HomeTask

Facts = frozenset[Fact]


def admissible_commands(task: HomeTask, facts: Facts) -> tuple[Command, ...]:
    """Return the listed commands, in the published order; those about distractors follow."""
    rooms = [command for command in task.commands if command.verb is Verb.WALK_ROOM]
    walks = [command for command in rooms if ("in", command.target) not in facts]
    commands = _LISTS[task.name](facts)
    return (
        *walks,
        *commands,
        *(command for name in task.distractors for command in _about_distractor(name, facts)),
    )


def _about_distractor(name: str, facts: Facts) -> list[Command]:
    if ("hold", name) in facts:
        return [Command(Verb.PUT_BACK, name)] if ("in", "kitchen") in facts else []
    if ("see", name) not in facts:
        return []
    return [Command(Verb.GRAB if ("near", name) in facts else Verb.WALK, name)]


_TO_PANCAKE, _TO_MICROWAVE = Command(Verb.WALK, "pancake"), Command(Verb.WALK, "microwave")
_GRAB_PANCAKE, _PUT_PANCAKE = Command(Verb.GRAB, "pancake"), Command(Verb.PUT, "pancake", "microwave")
_OPEN, _CLOSE = Command(Verb.OPEN, "microwave"), Command(Verb.CLOSE, "microwave")


def _food_preparation(facts: Facts) -> list[Command]:
    if ("in", "kitchen") not in facts or ("see", "pancake") not in facts:
        return []
    held, near_box = ("hold", "pancake") in facts, ("near", "microwave") in facts
    if held:
        return [_TO_PANCAKE, _PUT_PANCAKE, _OPEN, _CLOSE] if near_box else [_TO_PANCAKE, _TO_MICROWAVE]
    if ("near", "pancake") in facts:
        if near_box:
            return [_OPEN, _CLOSE] if ("open", "microwave") in facts else [_CLOSE]
        return [_TO_MICROWAVE, _GRAB_PANCAKE]
    return [_TO_PANCAKE, _OPEN, _CLOSE] if near_box else [_TO_PANCAKE, _TO_MICROWAVE]


_TO_CHIPS, _TO_MILK = Command(Verb.WALK, "chips"), Command(Verb.WALK, "milk")
_TO_TABLE, _TO_TV, _TO_SOFA = (Command(Verb.WALK, name) for name in ("coffee table", "TV", "sofa"))
_PUT_CHIPS, _PUT_MILK = Command(Verb.PUT, "chips", "coffee table"), Command(Verb.PUT, "milk", "coffee table")
_ON, _OFF = Command(Verb.TURN_ON, "TV"), Command(Verb.TURN_OFF, "TV")
_SIT, _STAND = Command(Verb.SIT, "sofa"), Command(Verb.STAND, "sofa")


def _entertainment(facts: Facts) -> list[Command]:
    if ("in", "kitchen") in facts:
        return _fetching(facts)
    if ("in", "living room") not in facts:
        return []
    if ("near", "coffee table") in facts:
        return _at_coffee_table(facts)
    if ("near", "TV") in facts:
        return [_TO_TABLE, _TO_SOFA] if ("on", "TV") in facts else [_TO_TABLE, _TO_SOFA, _ON, _OFF]
    if ("near", "sofa") in facts:
        if ("seated", "sofa") in facts:
            return []
        return [_TO_TABLE, _TO_TV, _SIT, _STAND] if ("on", "TV") in facts else [_TO_TABLE, _TO_TV]
    return [_TO_TABLE, _TO_TV, _TO_SOFA]


def _fetching(facts: Facts) -> list[Command]:
    """Return commands in the kitchen: walk to things that are not near, grab things that are."""
    visible = [name for name in ("chips", "milk") if ("see", name) in facts]
    free = [name for name in visible if ("hold", name) not in facts]
    near = [name for name in free if ("near", name) in facts]
    # Published so: where only one thing is left and not near, the list offers to walk to the other one.
    swapped = {"chips": _TO_MILK, "milk": _TO_CHIPS} if len(visible) == 1 else {"chips": _TO_CHIPS, "milk": _TO_MILK}
    walks = [swapped[name] for name in free if name not in near]
    return [*walks, *(Command(Verb.GRAB, name) for name in near)]


def _at_coffee_table(facts: Facts) -> list[Command]:
    held = [name for name in ("chips", "milk") if ("hold", name) in facts]
    if not held:
        return []
    puts = [command for command in (_PUT_CHIPS, _PUT_MILK) if command.target in held]
    other_is_there = ("at", "milk", "coffee table") in facts or ("at", "chips", "coffee table") in facts
    return [_TO_TV, _TO_SOFA] if other_is_there else [_TO_TV, _TO_SOFA, *puts]


_LISTS: dict[str, Callable[[Facts], list[Command]]] = {
    "food-preparation": _food_preparation,
    "entertainment": _entertainment,
}
