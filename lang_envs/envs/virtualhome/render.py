"""Render the home as text and as pixels, without changing the environment.

Both show the whole home to the user, and mark the parts that the person does not see.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from lang_envs import rendering as drawing
from lang_envs.envs.virtualhome.rules import AT_START, IN_HAND, Fact, Fixture, Rules, Use
from lang_envs.rendering import COLORS, THINGS, paste, put, sprite, tag

if TYPE_CHECKING:
    from lang_envs.envs.virtualhome.env import VirtualHomeEnv

_WIDTH, _PLAN, _STRIP = 640, 448, 80  # pixels; both sides of a frame are multiples of 16, as video encoders ask
_PERSON, _ITEM, _CARRIED, _TEXT = 58, 34, 26, 154
_COLUMN, _NOUN = 38, 15  # letters between the walls of a room, and at most of a noun there

_GOALS = {
    "food-preparation": "Put the {pancake} in the {microwave} and close it.",
    "entertainment": "Watch the {TV} from the {sofa}, with {chips} and {milk}.",
}
_CONDITIONS = {Use.CONTAINER: ("closed", "open"), Use.SWITCH: ("off", "on"), Use.SEAT: ("", "sat on")}


class _Room(NamedTuple):
    """How a room is drawn: its box (left, top, right, bottom), floor, title, and where somebody who comes in stands."""

    box: tuple[int, int, int, int]
    tiles: tuple[str, ...]
    tile_size: int
    title: tuple[int, int]
    entry: tuple[int, int]


class _Spot(NamedTuple):
    """How a thing is drawn: its foot, its label's foot, the feet of who is near it (x, y), and the label's width."""

    foot: tuple[int, int]
    label: tuple[int, int]
    stand: tuple[int, int]
    room: int = 150


_PLANS = {
    "kitchen": _Room((0, 0, 404, 212), ("floor", "floor-dark"), 26, (146, 14), (52, 204)),
    "bathroom": _Room((404, 0, 640, 212), ("tile",), 20, (414, 14), (454, 204)),
    "bedroom": _Room((0, 236, 232, 448), ("planks",), 64, (12, 252), (194, 358)),
    "living room": _Room((232, 236, 640, 448), ("planks",), 64, (488, 252), (270, 356)),
}
_GAPS = ((26, 206), (428, 206))  # doors in lower walls; the rest are drawn with the upper ones

_SPOTS = {
    "kitchen counter": tuple(_Spot((x, 66), (x, 91), (x, 150), 58) for x in (150, 208, 266)),
    "kitchen table": tuple(_Spot((x, 178), (x, 199), (122, 202), 68) for x in (184, 254)),
    "kitchen chair": tuple(_Spot((370, y), (362, y + 16), (308, 202), 72) for y in (140, 190)),
    "window sill": (_Spot((96, 38), (96, 55), (96, 150), 72),),
    "coffee table": tuple(_Spot((x, 400), (x, 418), (336, 438), 66) for x in (398, 466)),
}
_FURNITURE = {
    "microwave": _Spot((330, 98), (322, 33), (250, 152)),
    "coffee table": _Spot((432, 430), (432, 436), (336, 438)),
    "TV": _Spot((422, 302), (422, 324), (344, 354)),
    "sofa": _Spot((568, 368), (552, 386), (478, 374)),
}
# On the counter; any other thing in its role stands on the floor.
_MICROWAVE = _Spot((330, 68), (334, 91), (250, 152))
_SEAT, _SCREEN = (544, 364), (472, 284)

_DOORS = {"microwave": "door ajar", "oven": "door ajar", "dishwasher": "door ajar"}
_DOORS |= {"cupboard": "door ajar", "washing machine": "round door ajar"}


def ansi(env: VirtualHomeEnv) -> str:
    """Draw the home as a plan of four rooms with their contents.

    Args:
        env: Environment to draw; it is not changed.

    Returns:
        The goal, the plan, contents of the hands, the last action and its outcome, clock and return.
    """
    facts, refusal = _facts(env), _refusal(env)
    plan = []
    for pair in (("kitchen", "bathroom"), ("bedroom", "living room")):
        titles = (f"- {room.upper() if room == env.home_state.room else f'{room} (out of sight)'} " for room in pair)
        plan.append("".join(f"+{title:-<{_COLUMN}}" for title in titles) + "+")
        for texts in zip_longest(*(_room_lines(env, room, facts) for room in pair), range(6), fillvalue=""):
            plan.append("".join(f"|{_padded(str(text))}" for text in texts[:2]) + "|")
    lines = [
        f"Goal: {_goal(env)}",
        *plan,
        f"+{'-' * _COLUMN}" * 2 + "+",
        "Legend: @ you  * near you  - not near you",
        f"In hands: {', '.join(_held(env)) or 'nothing'}",
        f"Last action: {drawing.last_action(env, env.elapsed_steps)}{f' [{refusal}]' if refusal else ''}",
        drawing.score(env, "Steps", env.elapsed_steps, env.max_steps),
    ]
    return "\n".join([*lines, "SUCCESS"] if env.home_task.is_reached(facts) else lines)


def rgb_array(env: VirtualHomeEnv) -> NDArray[np.uint8]:
    """Draw the home as a picture; rooms that the person does not see are veiled.

    Args:
        env: Environment to draw; it is not changed.

    Returns:
        RGB image, shape (528, 640, 3).
    """
    facts, plan, room_of_agent = _facts(env), _building().copy(), env.home_state.room
    _draw_furniture(plan, env)
    for role, spot in _spots(env).items():
        put(plan, _image(_noun(env, role), _ITEM), spot.foot)
    _draw_person(plan, env, facts)
    _draw_labels(plan, env, facts)
    frame, (left, top, right, bottom) = drawing.veil(plan, 0.45), _PLANS[room_of_agent].box
    frame.paste(plan.crop((left, top, right, bottom)), (left, top))
    ImageDraw.Draw(frame).rectangle((left, top, right - 1, bottom - 1), None, COLORS["sight"], 2)
    for room, drawn in _PLANS.items():
        title = tag(room.upper(), "sight") if room == room_of_agent else tag(f"{room} · out of sight", "strip")
        paste(frame, title, *drawn.title)
    return np.concatenate([np.asarray(frame), np.asarray(_strip(env, facts))])


def _padded(text: str) -> str:
    """Return a text as wide as a room; a terminal gives Chinese letters and emoji two columns."""
    n_wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return f"{text:{_COLUMN - n_wide}}"


# ---------------------------------------------------------------------- texts


def _facts(env: VirtualHomeEnv) -> frozenset[Fact]:
    return Rules(env.home_task.scene).perceive(env.home_state)


def _noun(env: VirtualHomeEnv, role: str, n_letters: int | None = None) -> str:
    noun = drawing.one_line(env.wording.the(role).removeprefix("the "))
    return noun if n_letters is None or len(noun) <= n_letters else f"{noun[: n_letters - 3].rstrip()}..."


def _goal(env: VirtualHomeEnv, n_letters: int | None = None) -> str:
    roles = (*env.home_task.scene.item_index, *env.home_task.scene.fixture)
    return _GOALS[env.home_task.name].format(**{role: _noun(env, role, n_letters) for role in roles})


def _places(env: VirtualHomeEnv) -> dict[str, str]:
    """Return the place of every item; those shut away are left out."""
    task, state = env.home_task, env.home_state
    places = {name: item.place for name, item in zip(task.scene.item_index, state.items, strict=True)}
    shut = {fixture.name for fixture in task.scene.fixtures if fixture.use is Use.CONTAINER} - state.opened
    return {name: place for name, place in places.items() if place not in shut}


def _held(env: VirtualHomeEnv) -> list[str]:
    """Return the nouns of the things in hand."""
    return [_noun(env, name) for name, place in _places(env).items() if place == IN_HAND]


def _condition(env: VirtualHomeEnv, fixture: Fixture) -> str:
    state = env.home_state
    return _CONDITIONS.get(fixture.use, ("", ""))[fixture.name in state.opened | state.lit | state.seats_taken]


def _refusal(env: VirtualHomeEnv) -> str:
    """Return why the last action had no effect; empty if it had one, or there was none."""
    if env.elapsed_steps == 0 or env.last_command_succeeded:
        return ""
    return "REFUSED" if env.last_action in env.command_set else "NO SUCH COMMAND"


def _room_lines(env: VirtualHomeEnv, room: str, facts: frozenset[Fact]) -> list[str]:
    """Return lines about a room: the person, furniture with its condition, things with their places."""
    scene, notes, lines = env.home_task.scene, [], []
    if env.home_state.room == room:
        facing = "".join(f", facing {_noun(env, role, _NOUN)}" for kind, role, *_ in facts if kind == "facing")
        lines.append(f"@ you {'sit' if env.home_state.sitting else 'stand'}{facing}")
    for fixture in scene.fixtures:
        condition = _condition(env, fixture)
        notes.append((fixture.room, fixture.name, f": {condition}" if condition else ""))
    for item, place in _places(env).items():
        if place == AT_START:
            start = scene.items[scene.item_index[item]]
            notes.append((start.room, item, f" ({start.spot})"))
        elif place != IN_HAND:
            into = "in" if scene.fixture[place].use is Use.CONTAINER else "on"
            notes.append((scene.fixture[place].room, item, f" ({into} {_noun(env, place, _NOUN)})"))
    marked = (
        (where, "*" if ("near", role) in facts else "-", _noun(env, role, _NOUN), how) for where, role, how in notes
    )
    return lines + [f"{mark} {noun}{how}" for where, mark, noun, how in marked if where == room]


# ---------------------------------------------------------------------- pixels


@lru_cache(maxsize=1)
def _building() -> Image.Image:
    """Draw everything that never changes."""
    image = Image.new("RGB", (_WIDTH, _PLAN), COLORS["hall"])
    for name, ((left, top, right, bottom), tiles, size, _, _) in _PLANS.items():
        room = Image.new("RGB", (right - left, bottom - top))
        for row, y in enumerate(range(50, room.height, size)):
            for column, x in enumerate(range(0, room.width, size)):
                paste(room, sprite(tiles[(row + column) % len(tiles)], size), x, y)
        paste(room, sprite(name, room.width, room.size), 0, 0)
        ImageDraw.Draw(room).rectangle((0, 0, room.width - 1, room.height - 1), None, COLORS["brick"], 6)
        image.paste(room, (left, top))
    for x, y in _GAPS:
        ImageDraw.Draw(image).rectangle((x, y, x + 52, y + 5), COLORS["threshold"])
    for spot in _SPOTS["kitchen chair"]:
        put(image, sprite("chair", 44, (44, 52)), (spot.foot[0], spot.foot[1] + 18))
    put(image, sprite("sofa", 128, (128, 72)), _FURNITURE["sofa"].foot)
    put(image, sprite("coffee table", 112, (112, 48)), _FURNITURE["coffee table"].foot)
    return image


def _image(noun: str, size: int) -> Image.Image:
    return sprite(noun.lower() if noun.lower() in THINGS else "parcel", size)


def _box(env: VirtualHomeEnv) -> tuple[str, _Spot]:
    """Return the fixture in the microwave's role, and its place."""
    noun = _noun(env, "microwave").lower()
    kind = noun if noun in _DOORS else "cupboard"
    return kind, _MICROWAVE if kind == "microwave" else _FURNITURE["microwave"]


def _draw_furniture(plan: Image.Image, env: VirtualHomeEnv) -> None:
    """Draw the furniture that changes."""
    state, (kind, spot) = env.home_state, _box(env)
    put(plan, sprite(kind, 96, (96, 64)), spot.foot)
    if state.opened:
        put(plan, sprite(_DOORS[kind], 96, (96, 64)), spot.foot)
    put(plan, sprite("lit TV" if state.lit else "TV", 96, (96, 64)), _FURNITURE["TV"].foot)
    if state.seats_taken and not state.sitting:
        put(plan, sprite("dent", 128, (128, 72)), _FURNITURE["sofa"].foot)


def _spots(env: VirtualHomeEnv) -> dict[str, _Spot]:
    """Return the positions of the items that are neither in hand nor shut away."""
    spots: dict[str, _Spot] = {}
    scene = env.home_task.scene
    for name, place in _places(env).items():
        index = scene.item_index[name]
        if place == AT_START:  # the place of an absent item stays free
            home = scene.items[index].spot
            spots[name] = _nth(home, [item.spot for item in scene.items[:index]].count(home))
        elif place in _SPOTS:
            spots[name] = _nth(place, index)
        elif place != IN_HAND:
            (x, y), _, stand, _ = _box(env)[1]
            spots[name] = _Spot((x, y - 9), (x, y + 4), stand, 72)
    return spots


def _nth(spot: str, rank: int) -> _Spot:
    return _SPOTS[spot][min(rank, len(_SPOTS[spot]) - 1)]


def _draw_labels(plan: Image.Image, env: VirtualHomeEnv, facts: frozenset[Fact]) -> None:
    """Draw the names of everything that commands are about, gold where the person is near."""
    labels = {role: (_noun(env, role), spot) for role, spot in _spots(env).items()}
    for fixture in env.home_task.scene.fixtures:
        name, condition = drawing.fitted(_noun(env, fixture.name), 11, 96), _condition(env, fixture)
        spot = _box(env)[1] if fixture.use is Use.CONTAINER else _FURNITURE[fixture.name]
        labels[fixture.name] = (f"{name} · {condition}" if condition else name, spot)
    for role, (text, spot) in labels.items():
        put(plan, tag(text, "sight" if ("near", role) in facts else "strip", spot.room), spot.label)


def _draw_person(plan: Image.Image, env: VirtualHomeEnv, facts: frozenset[Fact]) -> None:
    (x, y), state, held = _whereabouts(env, facts), env.home_state, _held(env)
    for step in range(1, 8 if state.facing else 1):  # dots from the face to the screen
        dot = tuple(start + (end - start) * step // 8 for start, end in zip((x - 18, y - 32), _SCREEN, strict=True))
        ImageDraw.Draw(plan).circle(dot, 2, COLORS["sight"], COLORS["ink"])
    for part in ("sitting person" if state.sitting else "person", "head", "face aside" if state.facing else "face"):
        put(plan, sprite(part, _PERSON), (x, y))
    for noun, shift in zip(held, (-21, 21) if held[1:] else (21,), strict=False):
        put(plan, _image(noun, _CARRIED), (x + shift, y - 4))
        put(plan, sprite("hand", 9), (x + shift * 3 // 4, y - 5))
    if _refusal(env):
        paste(plan, sprite("refused", 24), x + 16, y - 66)


def _whereabouts(env: VirtualHomeEnv, facts: frozenset[Fact]) -> tuple[int, int]:
    """Return the position of the person's feet: beside a near thing, else at the door."""
    if env.home_state.sitting:
        return _SEAT
    spots = {fixture.name: _FURNITURE[fixture.name] for fixture in env.home_task.scene.fixtures} | _spots(env)
    stands = [spot.stand for role, spot in spots.items() if ("near", role) in facts]
    return stands[0] if stands else _PLANS[env.home_state.room].entry


@lru_cache(maxsize=64)
def _panel(goals: tuple[str, ...]) -> Image.Image:
    """Return the strip below the plan with the first of the goal's wordings that fits."""
    panel, room = Image.new("RGB", (_WIDTH, _STRIP), COLORS["strip"]), _WIDTH - _TEXT - 6
    drawing.card(panel, (6, 6, 142, 74), "IN HANDS")
    goal = next((goal for goal in goals if drawing.font(16).getlength(goal) <= room), goals[-1])
    drawing.write(panel, (_TEXT, 17), goal, 16, "text")
    return panel


def _strip(env: VirtualHomeEnv, facts: frozenset[Fact]) -> Image.Image:
    """Draw goal, contents of the hands, the last action and its outcome, clock and return."""
    strip = _panel(tuple(f"Goal: {_goal(env, n_letters)}" for n_letters in range(30, 3, -2))).copy()
    held, refusal = _held(env), _refusal(env)
    for noun, x in zip(held, (40, 108) if held[1:] else (74,), strict=False):
        put(strip, _image(noun, 34), (x, 57))
        drawing.write(strip, (x, 65), drawing.fitted(noun, 11, 62), 11, "text", "mm")
    if not held:
        drawing.write(strip, (74, 46), "nothing", 13, "faded", "mm")
    width = round(drawing.font(15).getlength(refusal)) + 18 if refusal else 0
    action = f"> {drawing.last_action(env, env.elapsed_steps)}"
    drawing.write(strip, (_TEXT, 41), drawing.fitted(action, 14, _WIDTH - _TEXT - width - 14), 14, "sight")
    drawing.write(strip, (_TEXT, 63), drawing.score(env, "Steps", env.elapsed_steps, env.max_steps), 14, "text")
    if refusal:
        drawing.badge(strip, (_WIDTH - 6 - width, 30, _WIDTH - 6, 52), refusal, "awning")
    if env.home_task.is_reached(facts):
        drawing.badge(strip, (_WIDTH - 116, 34, _WIDTH - 6, 72), "SUCCESS", "good")
    return strip
