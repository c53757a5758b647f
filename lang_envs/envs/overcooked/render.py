"""Render the kitchen as text and as pixels, without changing the environment."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageColor, ImageDraw

from lang_envs import rendering as drawing
from lang_envs.envs.overcooked.kitchen import BOWL, HAND, Item, KitchenState
from lang_envs.envs.overcooked.macro_actions import in_view
from lang_envs.envs.overcooked.tasks import CHOPS_NEEDED, Cell, KitchenTask
from lang_envs.rendering import COLORS, paste, sprite, write

if TYPE_CHECKING:
    from lang_envs.envs.overcooked.env import OvercookedEnv

_CELL, _STRIP = 64, 80  # pixels; both sides of a 7x7 kitchen's frame are multiples of 16, as video encoders ask
_HEAP, _VEIL = 36, 0.24  # size of a heap of food in a bowl of 64; how dark it is out of view

# Where the heaps of food in a bowl begin, in 64ths and by their number; three would hide one another side by side.
_HEAPS = {0: (), 1: ((14, 3),), 2: ((3, 6), (27, 6)), 3: ((1, 8), (29, 8), (15, 0))}


def ansi(env: OvercookedEnv) -> str:
    """Draw the kitchen with letters.

    Args:
        env: Environment to draw; it is not changed.

    Returns:
        The order, the map, its legend, states of the things, contents of the hand, the last action, clock and return.
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
        f"Last action: {drawing.last_action(env, env.elapsed_primitives)}",
        drawing.score(env, "Moves", env.elapsed_primitives, env.max_primitives),
    ]
    return "\n".join([*lines, "SERVED"] if state.bowl == task.serving else lines)


def rgb_array(env: OvercookedEnv) -> NDArray[np.uint8]:
    """Draw the kitchen as a picture, dark where the cook does not see.

    Args:
        env: Environment to draw; it is not changed.

    Returns:
        RGB image, shape (528, 448, 3).
    """
    task, state = env.task, env.kitchen_state
    frame = _pixels(task, veiled=True).copy()
    ends = [(max(at - env.view_radius, 0), min(at + env.view_radius + 1, task.size)) for at in state.agent]
    rows, columns = (slice(first * _CELL, end * _CELL) for first, end in ends)
    sight = frame[rows, columns]
    sight[:] = _pixels(task, veiled=False)[rows, columns]
    for cell in _cells(task):
        if cell in (state.agent, task.serving) or state.item_at(cell) is not None:
            row, column = cell.row * _CELL, cell.column * _CELL
            frame[row : row + _CELL, column : column + _CELL] = _tile(env, cell)
    sight[:2] = sight[-2:] = sight[:, :2] = sight[:, -2:] = ImageColor.getrgb(COLORS["sight"])
    frame[-_STRIP:] = _strip(env)
    return frame


def _cells(task: KitchenTask) -> list[Cell]:
    return [Cell(row, column) for row in range(task.size) for column in range(task.size)]


def _letters(env: OvercookedEnv, cell: Cell) -> str:
    """Return three characters for a cell."""
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


@lru_cache(maxsize=256)
def _bowl(contents: tuple[str, ...], size: int) -> Image.Image:
    image = sprite("bowl back", size).copy()
    for food, (x, y) in zip(contents, _HEAPS[len(contents)], strict=True):
        heap = sprite(f"chopped {food}", size * _HEAP // 64)
        image.alpha_composite(heap, (size * x // 64, size * y // 64))
    image.alpha_composite(sprite("bowl front", size))
    return image


def _item_image(task: KitchenTask, state: KitchenState, item: Item, size: int) -> Image.Image:
    if item == BOWL:
        return _bowl(tuple(task.foods[food] for food in state.contents()), size)
    return sprite(f"{'chopped ' if state.foods[item].chopped else ''}{task.foods[item]}", size)


@lru_cache(maxsize=16)
def _background(task: KitchenTask) -> Image.Image:
    """Draw everything that never changes in a task."""
    side = task.size * _CELL
    image = Image.new("RGB", (side, side + _STRIP), COLORS["strip"])
    for cell in _cells(task):
        y, x = cell.row * _CELL, cell.column * _CELL
        tile = "counter" if not task.is_floor(cell) else "floor" if sum(cell) % 2 else "floor-dark"
        paste(image, sprite(tile, _CELL), x, y)
        if cell in (*task.food_homes, task.bowl_home):
            paste(image, sprite("mat", _CELL), x, y)
        elif cell == task.serving:
            paste(image, sprite("hatch", _CELL), x, y)
            write(image, (x + 32, y + 54), "SERVE", 12, "sight", "mm")
        elif cell in task.boards:
            paste(image, sprite("board", _CELL), x, y)
            write(image, (x + 53, y + 53), str(task.boards.index(cell) + 1), 12, "ink", "mm")
    for left, caption in ((6, "ORDER"), (76, "IN HAND")):
        drawing.card(image, (left, side + 6, left + 64, side + 74), caption)
    paste(image, _bowl(tuple(food for food in task.foods if food in task.goal), 46), 15, side + 24)
    write(image, (148, side + 17), task.name.capitalize(), 18, "text")
    return image


@lru_cache(maxsize=32)
def _pixels(task: KitchenTask, *, veiled: bool) -> NDArray[np.uint8]:
    return np.array(drawing.veil(_background(task), _VEIL) if veiled else _background(task))


def _tile(env: OvercookedEnv, cell: Cell) -> NDArray[np.uint8]:
    """Draw a cell and the things on it."""
    task, state, x, y = env.task, env.kitchen_state, cell.column * _CELL, cell.row * _CELL
    tile, item = _background(task).crop((x, y, x + _CELL, y + _CELL)), state.item_at(cell)
    if cell == state.agent:
        _draw_cook(tile, task, state)
    elif item is not None:
        size, x, y = (40, 6, 6) if cell in task.boards else (44, 18, 4) if cell == task.serving else (48, 8, 8)
        paste(tile, _item_image(task, state, item, size), x, y)
        for stroke in range(CHOPS_NEEDED if cell in task.boards and item != BOWL else 0):
            color = COLORS["good" if stroke < state.foods[item].chops else "no-pip"]
            ImageDraw.Draw(tile).circle((14 + 12 * stroke, 52), 4, color, COLORS["ink"])
    elif cell == task.serving:
        paste(tile, sprite("bell", 34), 25, 16)
    return np.array(tile if in_view(state.agent, cell, env.view_radius) else drawing.veil(tile, _VEIL))


def _draw_cook(tile: Image.Image, task: KitchenTask, state: KitchenState) -> None:
    held = state.item_at(HAND)
    # A cook with full hands stands aside, so that the face stays visible.
    left, right_hand = (0, (45, 46)) if held is None else (-8, (31, 50))
    paste(tile, sprite("cook", _CELL), left, 0)
    if held is not None:
        paste(tile, _item_image(task, state, held, 34), 30, 28)
    for x, y in ((left + 8, 46), right_hand):
        paste(tile, sprite("hand", 11), x, y)


def _strip(env: OvercookedEnv) -> NDArray[np.uint8]:
    task, state, held, side = env.task, env.kitchen_state, env.kitchen_state.item_at(HAND), env.task.size * _CELL
    strip = _background(task).crop((0, side, side, side + _STRIP))
    if held is None:
        write(strip, (108, 46), "nothing", 13, "faded", "mm")
    else:
        paste(strip, _item_image(task, state, held, 46), 85, 24)
    write(strip, (148, 41), f"> {drawing.last_action(env, env.elapsed_primitives)}", 14, "sight")
    write(strip, (148, 63), drawing.score(env, "Moves", env.elapsed_primitives, env.max_primitives), 14, "text")
    if state.bowl == task.serving:
        drawing.badge(strip, (366, 6, 442, 29), "SERVED", "good")
    return np.array(strip)
