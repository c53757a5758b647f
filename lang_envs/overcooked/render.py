"""Pictures of the kitchen, as text and as pixels. Reads environments, changes nothing.

Drawings are painted too large and scaled down, which smooths their edges, and kept; a frame pastes kept drawings.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageColor, ImageDraw, ImageFont

from lang_envs.overcooked.kitchen import BOWL, HAND, Item, KitchenState
from lang_envs.overcooked.layout import CHOPS_NEEDED, Cell, KitchenTask
from lang_envs.overcooked.macro_actions import in_view

if TYPE_CHECKING:
    from lang_envs.overcooked.env import OvercookedEnv

__all__ = ["ansi", "rgb_array"]

_CELL, _STRIP = 64, 80  # pixels; both sides of a 7x7 kitchen's frame are multiples of 16, as video encoders ask
_UNITS, _HEAP_SIZE, _OVERSAMPLING = 64, 36, 4

_PALETTE = """
ink #2f2a33, text #f4f1ea, faded #a9b1c0, strip #2b3242, card #414b60, good #2fa866, veil #1d2438, sight #f7d774,
counter #aeb6bf, joint #98a1ac, mat #c3cad2, floor #f6ecd9, floor-dark #ecdfc5, wood #d9a566, bark #a87338,
steel #eef2f5, iron #6b7480, hatch #37445c, awning #d8493f, white #ffffff, slate #8d93a3, brass #f2bf3d,
bronze #a97a12, skin #f6c79c, tan #b67d4e, cheek #ee9f83, red #e23b2e, maroon #8f1b14, coral #ff8f7a, seed #ffd98a,
green #57b13d, moss #2b6b22, lime #a8dd74, mint #d8f2ae, violet #a44f9d, plum #5f2460, lilac #d9a3d6, bowl #3f7fca,
navy #1d3f70, sky #b9d4f0, no-pip #fbf3e4
"""
_COLORS: dict[str, str] = dict(entry.split() for entry in _PALETTE.split(","))

# Shapes in a box of 64 units: kind, points (then angles of a chord, radius of a box, width of a line), fill, outline.
_DRAWINGS = """
floor: box 0 0 64 64 0 floor
floor-dark: box 0 0 64 64 0 floor-dark
counter: box 0 0 64 64 0 joint; box 1 1 63 63 5 counter
mat: box 7 7 57 57 10 mat joint
board: box 2 5 62 60 8 wood bark; line 8 44 44 44 1 bark; box 49 31 57 46 3 ink;
  polygon 49 10 53 10 57 16 57 32 49 32 steel iron
hatch: box 0 0 64 64 0 hatch; box 0 0 64 11 0 white; box 0 0 8 11 0 awning; box 16 0 24 11 0 awning;
  box 32 0 40 11 0 awning; box 48 0 56 11 0 awning; polygon 3 31 13 21 13 27 20 27 20 35 13 35 13 41 brass
bell: chord 8 14 56 62 180 360 brass bronze; ellipse 27 4 37 14 brass bronze; box 3 37 61 48 4 steel iron
cook: ellipse 17 54 32 63 ink; ellipse 32 54 47 63 ink; box 13 38 51 60 10 white slate; ellipse 17 14 47 44 skin tan;
  ellipse 24 25 28 31 ink; ellipse 36 25 40 31 ink; ellipse 19 31 25 36 cheek; ellipse 39 31 45 36 cheek;
  line 27 35 30 38 34 38 37 35 2 maroon; polygon 22 43 32 46 42 43 38 51 32 47 26 51 awning;
  ellipse 13 2 31 18 white slate; ellipse 33 2 51 18 white slate; ellipse 21 0 43 17 white slate;
  box 18 11 46 22 3 white slate
hand: ellipse 6 6 58 58 skin tan
tomato: ellipse 7 13 57 59 red maroon; ellipse 15 24 25 35 coral; line 32 16 35 5 4 moss;
  polygon 32 12 47 9 40 17 48 25 36 21 32 30 28 21 16 25 24 17 17 9 green moss
chopped tomato: ellipse 3 9 35 41 red maroon; ellipse 8 14 30 36 coral; ellipse 12 18 18 24 seed;
  ellipse 20 18 26 24 seed; ellipse 16 26 22 32 seed; ellipse 29 7 61 39 red maroon; ellipse 34 12 56 34 coral;
  ellipse 38 16 44 22 seed; ellipse 46 16 52 22 seed; ellipse 42 24 48 30 seed; ellipse 17 27 49 59 red maroon;
  ellipse 22 32 44 54 coral; ellipse 26 36 32 42 seed; ellipse 34 36 40 42 seed; ellipse 30 44 36 50 seed
lettuce: ellipse 3 20 29 46 green moss; ellipse 35 20 61 46 green moss; ellipse 6 34 32 60 green moss;
  ellipse 32 34 58 60 green moss; ellipse 10 6 36 32 green moss; ellipse 28 6 54 32 green moss;
  ellipse 11 12 53 56 lime moss; ellipse 20 22 44 54 mint green; line 32 26 32 52 3 green;
  line 24 32 32 40 40 32 2 green
chopped lettuce: line 8 30 26 16 7 green moss; line 38 14 57 26 7 green moss; line 6 44 26 52 7 green moss;
  line 20 36 46 31 7 lime moss; line 22 14 36 30 7 mint moss; line 14 34 28 45 7 mint moss;
  line 31 49 50 34 7 lime moss
onion: polygon 24 22 29 4 32 10 36 3 40 22 lilac plum; ellipse 7 16 57 58 violet plum;
  ellipse 20 16 44 58 violet lilac; line 26 62 32 58 38 62 2 plum
chopped onion: ellipse 4 7 36 39 violet plum; ellipse 8 11 32 35 white; ellipse 13 16 27 30 lilac violet;
  ellipse 33 16 61 44 violet plum; ellipse 37 20 57 40 white; ellipse 42 25 52 35 lilac violet;
  ellipse 15 32 43 60 violet plum; ellipse 19 36 39 56 white; ellipse 24 41 34 51 lilac violet
bowl back: ellipse 3 20 61 42 sky navy
bowl front: chord 3 2 61 60 4 176 bowl navy; box 22 56 42 62 2 bowl navy;
  line 4 33 8 37 16 40 24 42 32 42 40 42 48 40 56 37 60 33 2 navy
"""
_SHAPES: dict[str, str] = dict(entry.split(": ") for entry in re.split(r"\n(?! )", _DRAWINGS.strip()))
# Where the heaps of food in a bowl begin, by their number; three would hide one another side by side.
_HEAPS = {0: (), 1: ((14, 3),), 2: ((3, 6), (27, 6)), 3: ((1, 8), (29, 8), (15, 0))}
_font = lru_cache(maxsize=8)(ImageFont.load_default)


def ansi(env: OvercookedEnv) -> str:
    """Draw the kitchen with letters.

    Args:
        env: The environment; it stays as it is.

    Returns:
        The order, the map, its legend, what became of the things, what is in hand, the last action, clock and return.
    """
    task, state, held = env.task, env.kitchen_state, env.kitchen_state.item_at(HAND)
    foods = "  ".join(f"{food[0].upper()} {food} ({food[0]} chopped)" for food in task.foods)
    order = " + ".join(f"chopped {food}" for food in task.foods if food in task.goal)
    lines = [
        f"Order: {task.name} = bowl with {order}",
        *("".join(_letters(env, Cell(row, column)) for column in range(task.size)) for row in range(task.size)),
        f"Legend: @ cook  . floor in view  ### counter  [ ] board  < > serving hatch\n        U bowl  {foods}",
        f"Things: {', '.join(_name(task, state, item) for item in (*range(len(task.foods)), BOWL))}",
        f"In hand: {'nothing' if held is None else _name(task, state, held)}",
        f"Last action: {_last_action(env)}",
        _score(env),
    ]
    return "\n".join([*lines, "SERVED"] if state.bowl == task.serving else lines)


def rgb_array(env: OvercookedEnv) -> NDArray[np.uint8]:
    """Draw the kitchen as a picture; what the cook does not see is veiled.

    Args:
        env: The environment; it stays as it is.

    Returns:
        RGB image, shape (528, 448, 3).
    """
    task, state = env.task, env.kitchen_state
    frame = _pixels(task, veiled=True).copy()
    ends = [(max(at - env.view_radius, 0), min(at + env.view_radius + 1, task.size)) for at in state.agent]
    rows, columns = (slice(first * _CELL, end * _CELL) for first, end in ends)
    seen = frame[rows, columns]
    seen[:] = _pixels(task, veiled=False)[rows, columns]
    for cell in _cells(task):
        if cell in (state.agent, task.serving) or state.item_at(cell) is not None:
            row, column = cell.row * _CELL, cell.column * _CELL
            frame[row : row + _CELL, column : column + _CELL] = _tile(env, cell)
    seen[:2] = seen[-2:] = seen[:, :2] = seen[:, -2:] = ImageColor.getrgb(_COLORS["sight"])
    frame[-_STRIP:] = _strip(env)
    return frame


def _cells(task: KitchenTask) -> list[Cell]:
    return [Cell(row, column) for row in range(task.size) for column in range(task.size)]


def _letters(env: OvercookedEnv, cell: Cell) -> str:
    """Three characters for a cell."""
    task, state = env.task, env.kitchen_state
    if task.is_floor(cell):
        return " @ " if cell == state.agent else " . " if in_view(state.agent, cell, env.view_radius) else "   "
    left, middle, right = "[ ]" if cell in task.boards else "< >" if cell == task.serving else "###"
    item = state.item_at(cell)
    if item is not None:
        letter = "U" if item == BOWL else task.foods[item][0]
        middle = letter if item != BOWL and state.foods[item].chopped else letter.upper()
    return left + middle + right


def _name(task: KitchenTask, state: KitchenState, item: Item) -> str:
    if item == BOWL:
        contents = " + ".join(f"chopped {task.foods[food]}" for food in state.contents())
        return f"bowl with {contents}" if contents else "empty bowl"
    chops = state.foods[item].chops
    how = "chopped" if state.foods[item].chopped else f"{chops}/{CHOPS_NEEDED} chopped" if chops else "whole"
    return f"{how} {task.foods[item]}"


def _last_action(env: OvercookedEnv) -> str:
    """One printable line: models may write anything."""
    if env.last_action is None:
        return "(unfinished sentence)" if env.elapsed_primitives else "(none yet)"
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(env.last_action.split()))


def _score(env: OvercookedEnv) -> str:
    rounded = round(env.episode_return, 3) + 0.0  # + 0.0: no "-0.000"
    return f"Moves {env.elapsed_primitives} / {env.max_primitives}    Return {rounded:+.3f}"


@lru_cache(maxsize=256)
def _sprite(name: str, size: int) -> Image.Image:
    """A drawing of the table, `size` pixels wide and high."""
    canvas = Image.new("RGBA", (_OVERSAMPLING * size,) * 2)
    for shape in _SHAPES[name].split(";"):
        _paint(ImageDraw.Draw(canvas), shape.split(), _OVERSAMPLING * size / _UNITS)
    return canvas.reduce(_OVERSAMPLING)


def _paint(draw: ImageDraw.ImageDraw, words: list[str], scale: float) -> None:
    kind, numbers = words[0], [float(word) for word in words[1:] if word not in _COLORS]
    fill, edge = [*(_COLORS[word] for word in words if word in _COLORS), None][:2]
    points, pen = [scale * number for number in numbers], round(2 * scale)
    if kind == "line":
        if edge:
            draw.line(points[:-1], edge, round(points[-1]) + 2 * pen)
        draw.line(points[:-1], fill, round(points[-1]), joint="curve")
    elif kind == "chord":
        draw.chord(points[:4], numbers[4], numbers[5], fill, edge, pen)
    elif kind == "box":
        draw.rounded_rectangle(points[:4], points[4], fill, edge, pen)
    else:
        getattr(draw, kind)(points, fill, edge, width=pen)


@lru_cache(maxsize=256)
def _bowl(contents: tuple[str, ...], size: int) -> Image.Image:
    image = _sprite("bowl back", size).copy()
    for food, (x, y) in zip(contents, _HEAPS[len(contents)], strict=True):
        heap = _sprite(f"chopped {food}", size * _HEAP_SIZE // _UNITS)
        image.alpha_composite(heap, (size * x // _UNITS, size * y // _UNITS))
    image.alpha_composite(_sprite("bowl front", size))
    return image


def _item_image(task: KitchenTask, state: KitchenState, item: Item, size: int) -> Image.Image:
    if item == BOWL:
        return _bowl(tuple(task.foods[food] for food in state.contents()), size)
    return _sprite(f"{'chopped ' if state.foods[item].chopped else ''}{task.foods[item]}", size)


def _paste(canvas: Image.Image, image: Image.Image, x: int, y: int) -> None:
    canvas.paste(image, (x, y), image)


def _write(frame: Image.Image, at: tuple[int, int], text: str, size: int, color: str, anchor: str = "lm") -> None:
    """Write a line; from its left end (`lm`), as much of it as fits."""
    font, room = _font(size), frame.width - at[0] - 4
    text = text[: room // 3 + 1]  # no printable letter is narrower than 3 pixels
    if anchor == "lm" and font.getlength(text) > room:
        n_kept = bisect_right(range(len(text)), room, key=lambda n: round(font.getlength(f"{text[:n]}..."))) - 1
        text = f"{text[:n_kept]}..."
    ImageDraw.Draw(frame).text(at, text, _COLORS[color], font, anchor)


@lru_cache(maxsize=16)
def _background(task: KitchenTask) -> Image.Image:
    """Everything that never changes in a task."""
    side = task.size * _CELL
    image = Image.new("RGB", (side, side + _STRIP), _COLORS["strip"])
    for cell in _cells(task):
        y, x = cell.row * _CELL, cell.column * _CELL
        tile = "counter" if not task.is_floor(cell) else "floor" if sum(cell) % 2 else "floor-dark"
        _paste(image, _sprite(tile, _CELL), x, y)
        if cell in (*task.food_homes, task.bowl_home):
            _paste(image, _sprite("mat", _CELL), x, y)
        elif cell == task.serving:
            _paste(image, _sprite("hatch", _CELL), x, y)
            _write(image, (x + 32, y + 54), "SERVE", 12, "sight", "mm")
        elif cell in task.boards:
            _paste(image, _sprite("board", _CELL), x, y)
            _write(image, (x + 53, y + 53), str(task.boards.index(cell) + 1), 12, "ink", "mm")
    for left, caption in ((6, "ORDER"), (76, "IN HAND")):
        ImageDraw.Draw(image).rounded_rectangle((left, side + 6, left + 64, side + 74), 8, _COLORS["card"])
        _write(image, (left + 32, side + 15), caption, 11, "faded", "mm")
    _paste(image, _bowl(tuple(food for food in task.foods if food in task.goal), 46), 15, side + 24)
    _write(image, (148, side + 17), task.name.capitalize(), 18, "text")
    return image


@lru_cache(maxsize=32)
def _pixels(task: KitchenTask, *, veiled: bool) -> NDArray[np.uint8]:
    return np.array(_veil(_background(task)) if veiled else _background(task))


def _veil(image: Image.Image) -> Image.Image:
    return Image.blend(image, Image.new("RGB", image.size, _COLORS["veil"]), 0.24)


def _tile(env: OvercookedEnv, cell: Cell) -> NDArray[np.uint8]:
    """A cell and what is there now."""
    task, state, x, y = env.task, env.kitchen_state, cell.column * _CELL, cell.row * _CELL
    tile, item = _background(task).crop((x, y, x + _CELL, y + _CELL)), state.item_at(cell)
    if cell == state.agent:
        _draw_cook(tile, task, state)
    elif item is not None:
        size, x, y = (40, 6, 6) if cell in task.boards else (44, 18, 4) if cell == task.serving else (48, 8, 8)
        _paste(tile, _item_image(task, state, item, size), x, y)
        for stroke in range(CHOPS_NEEDED if cell in task.boards and item != BOWL else 0):
            color = _COLORS["good" if stroke < state.foods[item].chops else "no-pip"]
            ImageDraw.Draw(tile).circle((14 + 12 * stroke, 52), 4, color, _COLORS["ink"])
    elif cell == task.serving:
        _paste(tile, _sprite("bell", 34), 25, 16)
    return np.array(tile if in_view(state.agent, cell, env.view_radius) else _veil(tile))


def _draw_cook(tile: Image.Image, task: KitchenTask, state: KitchenState) -> None:
    held = state.item_at(HAND)
    # A cook with full hands stands aside, so that the face stays visible.
    left, right_hand = (0, (45, 46)) if held is None else (-8, (31, 50))
    _paste(tile, _sprite("cook", _CELL), left, 0)
    if held is not None:
        _paste(tile, _item_image(task, state, held, 34), 30, 28)
    for x, y in ((left + 8, 46), right_hand):
        _paste(tile, _sprite("hand", 11), x, y)


def _strip(env: OvercookedEnv) -> NDArray[np.uint8]:
    task, state, held, side = env.task, env.kitchen_state, env.kitchen_state.item_at(HAND), env.task.size * _CELL
    strip = _background(task).crop((0, side, side, side + _STRIP))
    if held is None:
        _write(strip, (108, 46), "nothing", 13, "faded", "mm")
    else:
        _paste(strip, _item_image(task, state, held, 46), 85, 24)
    _write(strip, (148, 41), f"> {_last_action(env)}", 14, "sight")
    _write(strip, (148, 63), _score(env), 14, "text")
    if state.bowl == task.serving:
        ImageDraw.Draw(strip).rounded_rectangle((366, 6, 442, 29), 6, _COLORS["good"])
        _write(strip, (404, 18), "SERVED", 15, "text", "mm")
    return np.array(strip)
