"""Render an episode of programming as text and as pixels, without changing the environment.

Code and messages are anything that a model writes: they are escaped, set letter by letter in cells of one size, and
cut where their box ends.
"""

from __future__ import annotations

import keyword
import re
import textwrap
import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageColor, ImageDraw

from lang_envs import rendering as drawing
from lang_envs.rendering import COLORS, fitted, font, write
from lang_envs.text import printable

if TYPE_CHECKING:
    from lang_envs.envs.datascicoding.env import Attempt, DataSciCodingEnv
    from lang_envs.envs.datascicoding.evaluation import Evaluation

Box = tuple[int, int, int, int]

_SIZE = (960, 640)  # pixels; both sides of a frame are multiples of 16, as video encoders ask
_CODE: Box = (8, 100, 648, 532)
_ATTEMPTS: Box = (656, 100, 952, 350)
_SPLITS: Box = (656, 358, 952, 532)
_VERDICT: Box = (8, 540, 952, 632)
_CELL_WIDTH, _CELL_HEIGHT, _LETTER, _BASELINE, _OVERSAMPLING = 7, 15, 12, 11, 4
_ROWS, _COLUMNS, _MESSAGE_ROWS, _MESSAGE_COLUMNS = 26, 88, 4, 131
_LISTED = 8  # attempts that are listed at once
_TEXT_ROWS, _TEXT_COLUMNS, _TEXT_AXIS = 40, 100, 50
_LONGEST_MESSAGE = 2_000  # characters that are looked at

_RGB = {name: ImageColor.getrgb(color) for name, color in COLORS.items()}
_SYNTAX = {"comment": "faded", "string": "lime", "number": "seed", "word": "text"}
_TOKEN = re.compile(
    r"""(?P<comment>\#.*)"""
    r"""|(?P<string>[bfruBFRU]{0,2}(?:'{3}[\s\S]*?(?:'{3}|\Z)|"{3}[\s\S]*?(?:"{3}|\Z)"""
    r"""|'(?:\\.|[^'\\\n])*'?|"(?:\\.|[^"\\\n])*"?))"""
    r"""|(?P<number>\b\d[\w.]*)|(?P<word>[^\W\d]\w*)"""
)
_SYNTHETIC = "SYNTHETIC DATA"
_MADE_UP = "the rows are made up; scores on them say nothing about the real table."
_TASK = "An attempt is the body of build_model(x_train, y_train): fitted to half of the rows, scored on the other half."
_NO_CODE = "No code yet: the body of build_model(x_train, y_train) will stand here."
_EMPTY_CODE = "This attempt holds no code."


class _Row(NamedTuple):
    """Line of a listing; without a number if it counts the lines left out."""

    number: int | None
    text: str
    wrong: bool = False


class _Axis(NamedTuple):
    """Axes of the areas of the splits."""

    low: float
    areas: tuple[float, ...]
    mean: float
    std: float

    def place(self, area: float, room: int) -> int:
        """Return the position of a value on an axis of so many units."""
        return round(room * min(max(0.0, (area - self.low) / (1 - self.low)), 1.0))


def ansi(env: DataSciCodingEnv) -> str:
    """Tell the episode in lines of at most 100 columns.

    Args:
        env: Environment to draw; it is not changed.

    Returns:
        The task, the last attempt's code, its evaluation, the attempts with their rewards, best and return; above
         it all a warning if the rows are made up.
    """
    last = env.attempts[-1].evaluation if env.attempts else None
    title, size, about = _task_lines(env)
    rows = _listing(last, _TEXT_ROWS, _TEXT_COLUMNS - 2)
    headline, message = _verdict(env)
    lines = [f"{_SYNTHETIC}: {_MADE_UP}"] if env.dataset.synthetic else []
    lines += [
        f"{_cut(title, _TEXT_COLUMNS - len(size) - 2)}: {size}",
        *_wrapped(f"{about} {_TASK}", _TEXT_COLUMNS, 6),
        f"Code of attempt {len(env.attempts)}:" if last else "Code:",
    ]
    lines += [f"{'>' if row.wrong else ' '} {text}" for row, text in zip(rows, _numbered(rows), strict=True)]
    lines += [headline, *_wrapped(message, _TEXT_COLUMNS, 8), *_text_axis(last)]
    lines += [" ".join(_attempt(env, index)).rstrip() for index in _listed(env)]
    done = f"Attempts {len(env.attempts)} / {env.max_attempts}    Return {_signed(env.episode_return)}"
    lines += [f"Best so far: {_best(env)}", done]
    return "\n".join(_cut(line, _TEXT_COLUMNS) for line in lines)


def rgb_array(env: DataSciCodingEnv) -> NDArray[np.uint8]:
    """Draw the task, the last attempt's code, its evaluation, and the attempts so far.

    Args:
        env: Environment to draw; it is not changed.

    Returns:
        RGB image, shape (640, 960, 3).
    """
    last = env.attempts[-1].evaluation if env.attempts else None
    image = _background(*_task_lines(env), env.dataset.synthetic).copy()
    _draw_code(image, last, len(env.attempts))
    _draw_attempts(image, env)
    _draw_splits(image, last)
    _draw_verdict(image, env)
    return np.array(image)


# ---------------------------------------------------------------------- texts


def _task_lines(env: DataSciCodingEnv) -> tuple[str, str, str]:
    """Return lines about the task: the table, its size, its subject."""
    table = env.dataset
    n, width = table.x.shape
    size = f"{n:,} rows x {width:,} features, {table.classes:,} classes"
    return drawing.one_line(table.title[:1].upper() + table.title[1:]), size, drawing.one_line(table.about)


def _verdict(env: DataSciCodingEnv) -> tuple[str, str]:
    """Return a headline and a message about the last attempt."""
    if not env.attempts:
        return "NO ATTEMPT YET", f"Failed code gets reward {_signed(env.failure_reward)} and its error message."
    (evaluation, reward), axis = env.attempts[-1], _axis(env.attempts[-1].evaluation)
    if axis is None:
        how = f"FAILED: {_name(evaluation)}, paid {_signed(reward)}"
        return how, _legible((evaluation.error or "")[:_LONGEST_MESSAGE])
    n = len(axis.areas)
    scores = f"mean AUC {axis.mean:.4f} ± {axis.std:.4f} over {n} split{'s'[: n - 1]}"
    return f"IT RAN: {scores}, paid {_signed(reward)}", "An AUC of 0.5 is that of guessing, 1 that of a perfect model."


def _axis(evaluation: Evaluation | None) -> _Axis | None:
    """Return the areas of an attempt; None if there are none, since it failed."""
    if evaluation is None or not evaluation.aucs:
        return None
    areas = tuple(float(area) for area in evaluation.aucs)
    return _Axis(0.5 if min(areas) >= 0.5 else 0.0, areas, float(np.mean(areas)), float(np.std(areas)))


def _name(evaluation: Evaluation) -> str:
    return evaluation.status.replace("_", " ")


def _signed(number: float) -> str:
    return f"{round(number, 4) + 0.0:+.4f}" if abs(number) < 1e6 else f"{number:+.2e}"  # + 0.0: no "-0.0000"


def _best(env: DataSciCodingEnv) -> str:
    return "none" if env.best_so_far is None else _signed(env.best_so_far)


def _listed(env: DataSciCodingEnv) -> range:
    """Return indices of the attempts to list: the last ones, and as many of the coming ones as fit."""
    first = max(0, min(len(env.attempts) - _LISTED + 1, env.max_attempts - _LISTED))
    return range(first, min(first + _LISTED, env.max_attempts))


def _attempt(env: DataSciCodingEnv, index: int) -> tuple[str, str, str]:
    """Return number, status and reward of an attempt, or of one still to come."""
    attempts: Sequence[Attempt] = env.attempts
    if index >= len(attempts):
        return f"{index + 1}", "-", ""
    return f"{index + 1}", _name(attempts[index].evaluation), _signed(attempts[index].reward)


def _text_axis(evaluation: Evaluation | None) -> list[str]:
    axis = _axis(evaluation)
    if axis is None:
        return []
    letters = ["-"] * (_TEXT_AXIS + 1)
    for area in axis.areas:
        letters[axis.place(area, _TEXT_AXIS)] = "o"
    letters[axis.place(axis.mean, _TEXT_AXIS)] = "M"
    return [f"AUC {axis.low} |{''.join(letters)}| 1.0 (o split, M mean)"]


# ---------------------------------------------------------------------- untrusted text


def _legible(text: str) -> str:
    """Escape characters of a line that hide, turn around or stack: one cell for each character."""
    if not text.isascii():
        stacked = {letter for letter in text if unicodedata.category(letter)[0] == "M"}
        text = text.translate({ord(letter): letter.encode("unicode_escape").decode() for letter in stacked})
    return text if text.isprintable() else printable(text.expandtabs(4))


def _n_columns(text: str) -> int:
    """Return the columns that a text takes in a terminal; Chinese letters and emoji take two."""
    return len(text) if text.isascii() else sum(1 + (unicodedata.east_asian_width(c) in "WF") for c in text)


def _cut(text: str, columns: int) -> str:
    """Return as much of a line as fits, with an ellipsis if that is not all."""
    if len(text) <= columns and _n_columns(text) <= columns:
        return text
    ends = list(accumulate(_n_columns(letter) for letter in text[: columns + 1]))
    return f"{text[: bisect_right(ends, columns - 1)]}…"


def _wrapped(text: str, columns: int, n_lines: int) -> list[str]:
    """Return a text as at most so many lines."""
    wide = _n_columns(text) > len(text)
    return textwrap.wrap(text, columns // 2 if wide else columns, max_lines=n_lines, placeholder=" …")


def _listing(evaluation: Evaluation | None, n_rows: int, columns: int) -> list[_Row]:
    """Return lines of code around the offending one, else from the first on, numbered and cut."""
    if evaluation is None or not evaluation.code.strip():
        return [_Row(None, _NO_CODE if evaluation is None else _EMPTY_CODE)]
    lines = evaluation.code.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    wrong, n = _wrong_line(evaluation.error or "", lines), len(lines)
    first = max(0, min((wrong or 1) - 1 - n_rows // 2, n - n_rows))
    room = columns - len(str(n)) - 2
    rows = []
    for number, line in enumerate(lines[first : first + n_rows], start=first + 1):
        rows.append(_Row(number, _cut(_legible(line[: columns + 1]), room), number == wrong))
    if first > 0:
        rows[0] = _Row(None, f"… {first + 1:,} lines above")
    if first + n_rows < n:
        rows[-1] = _Row(None, f"… {n - first - n_rows + 1:,} lines below")
    return rows


def _wrong_line(error: str, lines: list[str]) -> int | None:
    """Return the number of the line that an error ends with, as far as the code has such a line.

    Both the message and the quoted line may look like it; the right one is followed by the line that it names.
    """
    ends = {match.end(): int(match[1]) for match in re.finditer(r"\(line ([0-9]{1,7})(?:\)$|: )", error)}
    candidates = [(error[end:], number) for end, number in ends.items() if 1 <= number <= len(lines)]
    numbers = (number for rest, number in candidates if rest.startswith(lines[number - 1].strip()[:60]))
    return next(numbers, candidates[-1][1] if candidates else None)


def _numbered(rows: list[_Row]) -> list[str]:
    width = max(len(str(row.number)) if row.number else 0 for row in rows)
    return [f"{row.number:{width}}  {row.text}" if row.number else row.text for row in rows]


def _painted(rows: list[_Row]) -> list[list[str]]:
    """Return a colour for every letter of a listing's lines, numbers included."""
    texts = ["" if row.number is None else row.text for row in rows]
    inks = ["text"] * len("\n".join(texts))
    for match in _TOKEN.finditer("\n".join(texts)):
        ink = "lilac" if keyword.iskeyword(match[0]) else _SYNTAX[match.lastgroup or "word"]
        inks[match.start() : match.end()] = [ink] * len(match[0])
    painted, start = [], 0
    for text, line in zip(texts, _numbered(rows), strict=True):
        painted.append(["faded"] * (len(line) - len(text)) + inks[start : start + len(text)])
        start += len(text) + 1
    return painted


# ---------------------------------------------------------------------- pixels


@lru_cache(maxsize=2048)
def _glyph(letter: str) -> NDArray[np.uint8]:
    """Return the coverage of a cell by a letter, shape (15, 7); letters that are too wide for it are squeezed."""
    scale, face = _OVERSAMPLING, font(_LETTER * _OVERSAMPLING)
    width = max(round(face.getlength(letter)), _CELL_WIDTH * scale)
    image = Image.new("L", (width, _CELL_HEIGHT * scale))
    ImageDraw.Draw(image).text((width // 2, _BASELINE * scale), letter, 255, face, "ms")
    return np.array(image.resize((_CELL_WIDTH, _CELL_HEIGHT), Image.Resampling.BOX))


def _typewrite(image: Image.Image, at: tuple[int, int], lines: Sequence[str], inks: Sequence[Sequence[str]]) -> None:
    """Write lines, one cell a letter, with a colour for every letter."""
    shape = len(lines), max((len(line) for line in lines), default=0)
    if 0 in shape:
        return
    glyphs = np.zeros((*shape, _CELL_HEIGHT, _CELL_WIDTH), np.uint8)
    colors = np.zeros((*shape, 3), np.uint8)
    for row, (line, names) in enumerate(zip(lines, inks, strict=True)):
        if line:
            glyphs[row, : len(line)] = [_glyph(letter) for letter in line]
            colors[row, : len(line)] = [_RGB[name] for name in names]
    mask = glyphs.transpose(0, 2, 1, 3).reshape(shape[0] * _CELL_HEIGHT, -1)
    ink = colors.repeat(_CELL_HEIGHT, axis=0).repeat(_CELL_WIDTH, axis=1)
    image.paste(Image.fromarray(ink), at, Image.fromarray(mask))


@lru_cache(maxsize=32)
def _background(title: str, size: str, about: str, synthetic: bool) -> Image.Image:
    """Draw everything that never changes in an environment."""
    image = Image.new("RGB", _SIZE, COLORS["strip"])
    drawing.badge(image, (816, 10, 952, 34), "DataSciCoding", "bowl")
    if synthetic:
        drawing.badge(image, (804, 37, 952, 56), _SYNTHETIC, "seam")
    _line(image, (12, 23), title, 20, 790, "sight")
    for y, text, color in ((46, size, "text"), (66, about, "text"), (86, _TASK, "faded")):
        _line(image, (12, y), text, 14, _SIZE[0] - 24, color)
    drawing.card(image, _SPLITS, "ROC AUC OF EVERY SPLIT")
    return image


def _inner(box: Box) -> Box:
    """Return the box of a card below its caption."""
    return box[0] + 4, box[1] + 19, box[2] - 4, box[3] - 4


def _line(image: Image.Image, at: tuple[int, int], text: str, size: int, room: int, color: str = "text") -> None:
    write(image, at, fitted(text, size, room), size, color)


def _draw_code(image: Image.Image, evaluation: Evaluation | None, number: int) -> None:
    left, top, right, _ = _inner(_CODE)
    drawing.card(image, _CODE, f"CODE OF ATTEMPT {number:,}" if evaluation else "CODE")
    ImageDraw.Draw(image).rounded_rectangle(_inner(_CODE), 6, COLORS["night"])
    rows = _listing(evaluation, _ROWS, _COLUMNS)
    for at, row in enumerate(rows):
        if row.wrong:
            y = top + 4 + at * _CELL_HEIGHT
            ImageDraw.Draw(image).rectangle((left, y, right, y + _CELL_HEIGHT - 1), COLORS["maroon"])
    _typewrite(image, (left + 6, top + 4), _numbered(rows), _painted(rows))


@lru_cache(maxsize=256)
def _entry(number: str, name: str, reward: str, ground: str) -> Image.Image:
    """Return an attempt as a row of the list; kept, since letters take most of a frame's time."""
    image = Image.new("RGB", (_ATTEMPTS[2] - _ATTEMPTS[0] - 8, 21), COLORS["card"])
    ImageDraw.Draw(image).circle((14, 10), 6, COLORS[ground], COLORS["faded"])
    color = "faded" if ground == "card" else "text"
    _line(image, (28, 10), number, 14, 50, color)
    _line(image, (82, 10), name, 14, 120, color)
    write(image, (image.width - 8, 10), reward, 14, color, "rm")
    return image


def _draw_attempts(image: Image.Image, env: DataSciCodingEnv) -> None:
    left, top, right, bottom = _inner(_ATTEMPTS)
    drawing.card(image, _ATTEMPTS, fitted(f"ATTEMPTS: {len(env.attempts):,} OF {env.max_attempts:,}", 11, right - left))
    for row, index in enumerate(_listed(env)):
        ground = "card"
        if index < len(env.attempts):
            ground = "good" if env.attempts[index].evaluation.aucs else "awning"
        image.paste(_entry(*_attempt(env, index), ground), (left, top + 4 + 21 * row))
    for y, name, value in (
        (bottom - 32, "Best so far", _best(env)),
        (bottom - 11, "Return of the episode", _signed(env.episode_return)),
    ):
        _line(image, (left + 8, y), name, 14, 170, "sight")
        write(image, (right - 8, y), value, 14, "sight", "rm")


def _draw_splits(image: Image.Image, evaluation: Evaluation | None) -> None:
    left, top, right, bottom = _inner(_SPLITS)
    axis, draw = _axis(evaluation), ImageDraw.Draw(image)
    if axis is None:
        text = "no score yet" if evaluation is None else "no score: it failed"
        write(image, ((left + right) // 2, (top + bottom) // 2), text, 14, "faded", "mm")
        return
    left, right, top, bottom = left + 26, right - 24, top + 20, bottom - 18

    def x(area: float) -> int:
        return left + axis.place(area, right - left)

    draw.rectangle((x(axis.mean - axis.std), top, x(axis.mean + axis.std), bottom), COLORS["dusk"])
    for tick in (axis.low, (axis.low + 1) / 2, 1.0):
        draw.line((x(tick), top, x(tick), bottom + 3), COLORS["slate"])
        write(image, (x(tick), bottom + 11), f"{tick:g}", 11, "faded", "mm")
    n = len(axis.areas)
    for number, area in enumerate(axis.areas):
        y = top + round((number + 0.5) * (bottom - top) / n)
        draw.line((left, y, x(area), y), COLORS["iron"])
        draw.circle((x(area), y), 4 if n <= 12 else 2, COLORS["good"], COLORS["text"])
        if n <= 12:
            write(image, (left - 12, y), str(number + 1), 11, "faded", "mm")
    draw.line((x(axis.mean), top - 4, x(axis.mean), bottom), COLORS["sight"], 2)
    write(image, (min(max(x(axis.mean), left + 20), right - 20), top - 12), f"mean {axis.mean:.4f}", 11, "sight", "mm")


def _draw_verdict(image: Image.Image, env: DataSciCodingEnv) -> None:
    left, top, right, _ = _VERDICT
    headline, message = _verdict(env)
    ground = "card" if not env.attempts else "good" if env.attempts[-1].evaluation.aucs else "awning"
    ImageDraw.Draw(image).rounded_rectangle(_VERDICT, 8, COLORS[ground])
    _line(image, (left + 12, top + 14), headline, 16, right - left - 24)
    lines = _wrapped(message, _MESSAGE_COLUMNS, _MESSAGE_ROWS)
    _typewrite(image, (left + 12, top + 25), lines, [["text"] * len(line) for line in lines])
