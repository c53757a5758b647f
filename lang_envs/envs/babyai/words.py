"""The view of a MiniGrid agent in words, in the manner of BabyAI-Text."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_NOTHING = ("unseen", "empty", "floor", "agent")
_DOORS = ("open", "closed", "locked")
_TYPES = ("unseen", "empty", "wall", "floor", "door", "key", "ball", "box", "goal", "lava", "agent")
_COLORS = ("red", "green", "blue", "purple", "yellow", "grey")
"""Words by MiniGrid's numbers of types and colours; a test compares them with the package's."""


def describe_view(image: NDArray[Any], mission: str) -> str:
    """Return the view and the mission in words.

    Args:
        image: The `image` of a MiniGrid observation, `[width, height, 3]` (type, colour, state). The agent stands in
            the middle of the last row and looks along its column; its own cell holds what it carries.
        mission: The `mission` of the observation.
    """
    width, height = image.shape[:2]
    middle, last = width // 2, height - 1
    seen: list[tuple[int, int, int, str]] = []
    for x, y in np.ndindex(width, height):
        kind = _TYPES[image[x, y, 0]]
        if kind not in (*_NOTHING, "wall") and (x, y) != (middle, last):
            forward, right = last - y, x - middle
            seen.append((forward + abs(right), forward, right, _thing(image[x, y])))
    things = [f"{thing} {_where(forward, right)}" for _, forward, right, thing in sorted(seen)]
    lines = {
        "forward": [image[middle, y, 0] for y in reversed(range(last))],
        "left": [image[x, last, 0] for x in reversed(range(middle))],
        "right": [image[x, last, 0] for x in range(middle + 1, width)],
    }
    wall = _TYPES.index("wall")
    things += [f"a wall {_steps(line.index(wall) + 1)} {side}" for side, line in lines.items() if wall in line]
    carried = image[middle, last]
    carries = "nothing" if _TYPES[carried[0]] in _NOTHING else _thing(carried)
    return f"Mission: {mission}. You see {', '.join(things) or 'nothing'}. You carry {carries}. You"


def _thing(cell: NDArray[Any]) -> str:
    kind, color = _TYPES[cell[0]], _COLORS[cell[1]]
    if kind in ("goal", "lava"):
        return f"a {color} goal" if kind == "goal" else "lava"
    state = f"{_DOORS[cell[2]]} " if kind == "door" else ""
    return f"{'an' if state.startswith('o') else 'a'} {state}{color} {kind}"


def _where(forward: int, right: int) -> str:
    side = f"{_steps(abs(right))} {'right' if right > 0 else 'left'}" if right else ""
    return " and ".join(filter(None, (f"{_steps(forward)} forward" if forward else "", side)))


def _steps(n: int) -> str:
    return f"{n} step" if n == 1 else f"{n} steps"
