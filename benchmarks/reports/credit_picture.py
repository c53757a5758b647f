"""Token credit as coloured text: every action of an episode, with the methods' credit side by side."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from matplotlib.font_manager import findfont
from PIL import Image, ImageDraw, ImageFont

from lang_envs.text import printable

CUT_OFF = " The episode was cut off by its time limit, and is credited as if it had ended there."
MOST_STEPS = 30
"""Maximum number of actions drawn; of longer episodes the last ones, closest to the reward."""
_SCALE = 2  # pixels of a point
_MARGIN, _GAP, _PAD = 18, 16, 4
_OBSERVATION_WIDTH, _COLUMN_WIDTH, _MIN_WIDTH = 300, 400, 1000
_OBSERVATION_LINES = 5
_TEXT, _SMALL, _HEAD = 12, 8, 13
_TOKEN_HEIGHT = 30
_LONGEST = 60  # letters of a token
_VISIBLE = str.maketrans({" ": "\u00b7", "\n": "\u21b5", "\t": "\u21e5", "\r": "\u240d"})
_STOPS = (
    (194, 87, 12), (233, 138, 60), (248, 201, 160), (247, 247, 247), (181, 211, 236), (111, 168, 214), (47, 116, 181)
)  # fmt: skip
"""Colours from -1 to 1, as in the report: colour-blind readers can distinguish orange and blue."""
_INK, _DIM, _LINE = (30, 30, 30), (110, 110, 110), (215, 215, 215)
_DARK = 0.179
"""Relative luminance of WCAG 2 at which black and white have the same contrast."""

Color = tuple[int, int, int]


class RolloutStep(NamedTuple):
    """One action of a rollout.

    Attributes:
        observation: Observation before the action.
        tokens: Texts of the action's tokens.
        reward: Reward of the step.
        log_probs: Log-probability of each token; may be empty.
        values: Values before the tokens, by column; a column may be missing.
        advantages: Advantages of the tokens, by column.
    """

    observation: str
    tokens: Sequence[str]
    reward: float
    log_probs: Sequence[float]
    values: Mapping[str, Sequence[float]]
    advantages: Mapping[str, Sequence[float]]


class Rollout(NamedTuple):
    """One episode with the credit of several estimators.

    Attributes:
        title: Agent, task and seed.
        columns: Names of the estimators.
        steps: Actions of the episode.
        remark: Caption: the source of the values, the discount.
    """

    title: str
    columns: tuple[str, ...]
    steps: Sequence[RolloutStep]
    remark: str = ""

    @property
    def scale(self) -> float:
        """Largest absolute advantage in any column; 1 where all are 0."""
        rows = (row for step in self.steps for row in step.advantages.values())
        return max((abs(value) for row in rows for value in row), default=0.0) or 1.0


def visible(token: str) -> str:
    """Return a token with its spaces and line ends as visible signs, cut if it is too long."""
    shown = token if len(token) <= _LONGEST else f"{token[: _LONGEST - 1]}\u2026"
    return printable(shown.translate(_VISIBLE))


def shade(advantage: float, scale: float) -> Color:
    """Return the colour of an advantage: near white at 0, blue at the scale, orange at its negative."""
    stop = (min(max(advantage / scale, -1.0), 1.0) + 1) / 2 * (len(_STOPS) - 1)
    low = min(int(stop), len(_STOPS) - 2)
    mixed = (round(a + (stop - low) * (b - a)) for a, b in zip(_STOPS[low], _STOPS[low + 1], strict=True))
    red, green, blue = mixed
    return red, green, blue


def is_dark(color: Color) -> bool:
    """Return whether white text is easier to read than black on a colour."""
    linear = (channel / 3294.6 if channel <= 10 else ((channel / 255 + 0.055) / 1.055) ** 2.4 for channel in color)
    red, green, blue = linear
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue <= _DARK


def _ink_on(color: Color) -> Color:
    return (255, 255, 255) if is_dark(color) else (0, 0, 0)


@lru_cache
def _font(size: int, name: str = "DejaVu Sans Mono") -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(findfont(name), size * _SCALE)


class _Box(NamedTuple):
    """A token in its column, in points from the column's corner."""

    x: float
    y: float
    width: float
    text: str
    advantage: float


def credit_picture(rollout: Rollout, most_steps: int = MOST_STEPS) -> Image.Image:
    """Draw a rollout: observations at the left, a column of coloured actions for each way of assigning credit.

    Args:
        rollout: The rollout to draw.
        most_steps: Maximum number of actions drawn; the last ones of longer episodes.
    """
    first = max(len(rollout.steps) - most_steps, 0)
    steps = rollout.steps[first:]
    laid = [[_lay_out(step, name) for name in rollout.columns] for step in steps]
    heights = []
    for step, columns in zip(steps, laid, strict=True):
        lowest = max((box.y for boxes in columns for box in boxes), default=0.0) + _TOKEN_HEIGHT
        heights.append(round(max(lowest, 16 + 13 * len(_observation_lines(step))) + 16))
    top, left = 86, _MARGIN + _OBSERVATION_WIDTH + _GAP
    column = round(max(box.x + box.width for columns in laid for boxes in columns for box in boxes)) + _GAP
    width = max(_MARGIN + left + len(rollout.columns) * column, _MIN_WIDTH)
    image = Image.new("RGB", (width * _SCALE, (top + sum(heights) + _MARGIN) * _SCALE), "white")
    pen = _Pen(ImageDraw.Draw(image))

    left_out = f" (without its first {first} actions)" if first else ""
    pen.text(_MARGIN, 10, f"{rollout.title}{left_out}", 15, bold=True)
    pen.text(_MARGIN, 33, rollout.remark, 10, _DIM)
    for index, name in enumerate(rollout.columns):
        pen.text(left + index * column, 60, name, _HEAD, bold=True)
    pen.text(_MARGIN, 62, "advantage of every token:", 10, _DIM)
    for index, share in enumerate((-1.0, -0.5, 0.0, 0.5, 1.0)):
        value = share * rollout.scale
        color = shade(value, rollout.scale)
        pen.box(_MARGIN + 136 + 34 * index, 60, 33, 16, color)
        pen.text(_MARGIN + 140 + 34 * index, 63, f"{value:+z.2f}", _SMALL, _ink_on(color))
    pen.line(_MARGIN, 81, width - _MARGIN)

    y = float(top)
    for number, (step, columns, height) in enumerate(zip(steps, laid, heights, strict=True), start=first + 1):
        pen.text(_MARGIN, y, f"action {number}    reward {step.reward:+z.3g}", 10, bold=True)
        for line, text in enumerate(_observation_lines(step)):
            pen.text(_MARGIN, y + 16 + 13 * line, text, 10, _DIM)
        for index, boxes in enumerate(columns):
            for box in boxes:
                color = shade(box.advantage, rollout.scale)
                x, high = left + index * column + box.x, y + box.y
                pen.box(x, high, box.width, _TOKEN_HEIGHT, color)
                pen.text(x + _PAD, high + 2, box.text, _TEXT, _ink_on(color))
                pen.text(x + _PAD, high + 18, f"{box.advantage:+z.2f}", _SMALL, _ink_on(color))
        y += height
        pen.line(_MARGIN, y - 6, width - _MARGIN)
    return image


class _Pen:
    """Draws in points."""

    def __init__(self, draw: ImageDraw.ImageDraw) -> None:
        self._draw = draw

    def text(self, x: float, y: float, text: str, size: int = _TEXT, color: Color = _INK, bold: bool = False) -> None:
        name = "DejaVu Sans" if size != _TEXT else "DejaVu Sans Mono"
        font = _font(size, f"{name}:bold" if bold else name)
        self._draw.text((x * _SCALE, y * _SCALE), printable(text), color, font)

    def box(self, x: float, y: float, width: float, height: float, color: Color) -> None:
        corners = (x * _SCALE, y * _SCALE, (x + width) * _SCALE, (y + height) * _SCALE)
        self._draw.rounded_rectangle(corners, radius=3 * _SCALE, fill=color, outline=_LINE)

    def line(self, x: float, y: float, to: float) -> None:
        self._draw.line((x * _SCALE, y * _SCALE, to * _SCALE, y * _SCALE), _LINE, _SCALE // 2)


def _lay_out(step: RolloutStep, column: str) -> list[_Box]:
    """Lay out the tokens of an action from left to right, in as many lines as they need."""
    letter = _font(_TEXT).getlength("m") / _SCALE
    boxes: list[_Box] = []
    x = y = 0.0
    for token, advantage in zip(step.tokens, step.advantages[column], strict=True):
        text = visible(token) or "\u2205"
        number = _font(_SMALL, "DejaVu Sans").getlength(f"{advantage:+z.2f}") / _SCALE
        width = max(letter * len(text), number) + 2 * _PAD
        if x and x + width > _COLUMN_WIDTH:
            x, y = 0.0, y + _TOKEN_HEIGHT + 3
        boxes.append(_Box(x, y, width, text, advantage))
        x += width + 2
    return boxes


def _observation_lines(step: RolloutStep) -> list[str]:
    """Return the end of the observation, with its newest lines."""
    letters = int(_OBSERVATION_WIDTH / (_font(10, "DejaVu Sans").getlength("n") / _SCALE))
    lines = textwrap.wrap(" ".join(step.observation.split()), letters)
    return lines if len(lines) <= _OBSERVATION_LINES else ["\u2026", *lines[1 - _OBSERVATION_LINES :]]
