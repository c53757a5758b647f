"""Render independent decisions as text and as pixels, without changing the environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from lang_envs import rendering as drawing
from lang_envs.rendering import COLORS, font, write

if TYPE_CHECKING:
    from lang_envs.envs.independent.env import IndependentDecisions

_WIDTH, _HEIGHT = 480, 256  # pixels; multiples of 16, as video encoders require
_LEFT, _RIGHT = 26, 454
_LINE = 20
_DOTS = 24  # answers that fit


def ansi(env: IndependentDecisions) -> str:
    """Show the order, the answers so far and the words in lines.

    Args:
        env: Environment to draw; it is not changed.

    Returns:
        The order, the answers, the words, the last action, clock and return.
    """
    marks = ["+" if answer else "-" for answer in env.answers] + ["."] * (env.horizon - len(env.answers))
    lines = [
        _order(env),
        f"Answers (+ right, - wrong): {' '.join(marks)}",
        env.legend,
        f"Last action: {drawing.last_action(env, env.elapsed_steps)}",
        drawing.score(env, "Steps", env.elapsed_steps, env.max_steps),
    ]
    return "\n".join([*lines, _ending(env)] if env.is_over else lines)


def rgb_array(env: IndependentDecisions) -> NDArray[np.uint8]:
    """Draw the order, the words of the last action with its keys marked, and the answers so far.

    Args:
        env: Environment to draw; it is not changed.

    Returns:
        RGB image, shape (256, 480, 3).
    """
    image = Image.new("RGB", (_WIDTH, _HEIGHT), COLORS["strip"])
    drawing.card(image, (16, 12, 464, 72), _title(env))
    if not env.is_over:
        _draw_words(image, 36, 66, env.order.split(), range(0), "sight")
    drawing.card(image, (16, 80, 464, 160), "LAST ACTION")
    if env.last_action is None:
        write(image, (240, 120), drawing.last_action(env, env.elapsed_steps), 13, "faded", "mm")
    else:
        words = drawing.one_line(env.last_action).split()
        _draw_words(image, 104, 154, words, env.key_places(env.last_action), "faded")
    first = max(0, min(len(env.answers) + 1, env.horizon) - _DOTS)  # the last ones and the next
    for column, number in enumerate(range(first, min(env.horizon, first + _DOTS))):
        color = ("good" if env.answers[number] else "red") if number < len(env.answers) else "card"
        ImageDraw.Draw(image).circle((_LEFT + 19 * column, 182), 7, COLORS[color], COLORS["ink"])
    write(image, (16, 210), env.legend, 12, "faded")
    write(image, (16, 236), drawing.score(env, "Steps", env.elapsed_steps, env.max_steps), 14, "text")
    if env.is_over:
        drawing.badge(image, (344, 224, 464, 248), _ending(env), "good" if all(env.answers) else "red")
    return np.array(image)


def _draw_words(
    image: Image.Image, top: int, bottom: int, words: list[str], marked: range | list[int], color: str
) -> None:
    """Draw as many words as there is room for, the marked ones on a coloured ground."""
    x, y = _LEFT, top
    for number, word in enumerate(words):
        word = drawing.fitted(word, 13, 120)
        width = round(font(13).getlength(word)) + 12
        if x + width > _RIGHT:
            x, y = _LEFT, y + _LINE
        if y > bottom:
            break
        is_marked = number in marked
        if is_marked:
            ImageDraw.Draw(image).rounded_rectangle((x, y - 8, x + width - 4, y + 8), 4, COLORS["sight"])
        write(image, (x + (width - 4) // 2, y), word, 13, "ink" if is_marked else color, "mm")
        x += width


def _order(env: IndependentDecisions) -> str:
    return f"All {env.horizon} {env.noun}s are done" if env.is_over else f"{_title(env).capitalize()}: {env.order}"


def _title(env: IndependentDecisions) -> str:
    return f"{env.noun.upper()} {min(len(env.answers) + 1, env.horizon)} OF {env.horizon}"


def _ending(env: IndependentDecisions) -> str:
    return "ALL RIGHT" if all(env.answers) else f"{sum(env.answers)} RIGHT"
