"""Render KeyToken as text and as pixels, without changing the environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from lang_envs import rendering as drawing
from lang_envs.envs.keytoken.admissible import KEYS
from lang_envs.rendering import COLORS, THINGS, font, paste, sprite, write

if TYPE_CHECKING:
    from lang_envs.envs.keytoken.env import KeyTokenEnv

_WIDTH, _HEIGHT = 480, 256  # pixels; multiples of 16, as video encoders ask
_SHOWN = 24  # answers that fit


def ansi(env: KeyTokenEnv) -> str:
    """Tell the order, the answers so far and the key words in lines.

    Args:
        env: The environment; it stays as it is.

    Returns:
        The order, the answers, the key words, the last action, clock and return.
    """
    marks = ["+" if answer else "-" for answer in env.answers] + ["."] * (env.horizon - len(env.answers))
    lines = [
        _order(env),
        f"Answers (+ right, - wrong): {' '.join(marks)}",
        f"Key words (word {env.key_position + 1} of an action): {', '.join(KEYS[: env.n_actions])}",
        f"Last action: {drawing.last_action(env, env.elapsed_steps)}",
        drawing.score(env, "Steps", env.elapsed_steps, env.max_steps),
    ]
    return "\n".join([*lines, _ending(env)] if _is_over(env) else lines)


def rgb_array(env: KeyTokenEnv) -> NDArray[np.uint8]:
    """Draw the order, the words of the last answer with the key word marked, and the answers so far.

    Args:
        env: The environment; it stays as it is.

    Returns:
        RGB image, shape (256, 480, 3).
    """
    image = Image.new("RGB", (_WIDTH, _HEIGHT), COLORS["strip"])
    write(image, (16, 20), _order(env), 18, "text")
    drawing.card(image, (16, 40, 112, 152), "ORDER")
    if not _is_over(env):
        if env.key in THINGS:
            paste(image, sprite(env.key, 56), 36, 62)
        write(image, (64, 136), env.key, 16, "sight", "mm")
    drawing.card(image, (124, 40, 464, 152), "SAID")
    _draw_words(image, env)
    _draw_answers(image, env)
    write(image, (16, 210), f"> {drawing.last_action(env, env.elapsed_steps)}", 14, "sight")
    write(image, (16, 236), drawing.score(env, "Steps", env.elapsed_steps, env.max_steps), 14, "text")
    if _is_over(env):
        drawing.badge(image, (344, 224, 464, 248), _ending(env), "good" if all(env.answers) else "red")
    return np.array(image)


def _draw_answers(image: Image.Image, env: KeyTokenEnv) -> None:
    """Draw a dot for every decision, or for the last ones and the next."""
    first = max(0, min(len(env.answers) + 1, env.horizon) - _SHOWN)
    for place, number in enumerate(range(first, min(env.horizon, first + _SHOWN))):
        color = ("good" if env.answers[number] else "red") if number < len(env.answers) else "card"
        ImageDraw.Draw(image).circle((26 + 19 * place, 178), 7, COLORS[color], COLORS["ink"])


def _draw_words(image: Image.Image, env: KeyTokenEnv) -> None:
    """As many words of the last action as there is room for."""
    if env.last_action is None:
        write(image, (294, 96), drawing.last_action(env, env.elapsed_steps), 13, "faded", "mm")
        return
    known = env.last_action in env.sentences
    x, y = 134, 66
    for number, word in enumerate(drawing.one_line(env.last_action).split()):
        word = drawing.fitted(word, 13, 120)
        width = round(font(13).getlength(word)) + 12
        if x + width > 458:
            x, y = 134, y + 20
        if y > 140:
            break
        is_key = known and number == env.key_position
        ImageDraw.Draw(image).rounded_rectangle(
            (x, y - 8, x + width - 4, y + 8), 4, COLORS["sight" if is_key else "strip"]
        )
        write(image, (x + (width - 4) // 2, y), word, 13, "ink" if is_key else "faded", "mm")
        x += width


def _order(env: KeyTokenEnv) -> str:
    if _is_over(env):
        return f"All {env.horizon} orders are done"
    return f"Order {len(env.answers) + 1} of {env.horizon}: {env.key}"


def _is_over(env: KeyTokenEnv) -> bool:
    return len(env.answers) == env.horizon


def _ending(env: KeyTokenEnv) -> str:
    return "ALL RIGHT" if all(env.answers) else f"{sum(env.answers)} RIGHT"
