"""From the table in a file to arrays: rows are chosen, columns left out, and every value becomes a number.

Pure functions of a pandas DataFrame. Columns are found by position rather than by name, since services spell names
differently.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lang_envs.datasets.errors import TableError
from lang_envs.datasets.manifest import Column, Encoding, Manifest, Recipe, RowChoice

if TYPE_CHECKING:
    import pandas as pd

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
NaturalKey = tuple[tuple[tuple[int, float, str], ...], str]

_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")
_WHOLE = re.compile(r"(-?(?:0|[1-9]\d*))\.0+")
_PART = re.compile(r"^-?\d+|\d+|\D+")
_MAX_DIGITS = 300  # beyond it a float is infinite, and beyond 4,300 Python refuses to read an int
_MAX_SHOWN = 60


def arrays(frame: pd.DataFrame, manifest: Manifest, recipe: Recipe) -> tuple[FloatArray, IntArray]:
    """Make features (n, d) and classes (n,) of a file, by a recipe of its manifest.

    Args:
        frame: All rows and columns of the file, as `files.read_table` returns them.
        manifest: Manifest of the file.
        recipe: Recipe, one of `manifest.recipes`.

    Raises:
        TableError: If the file does not match the manifest.
    """
    if frame.shape != manifest.shape:
        raise TableError(
            f"Expected {_size(manifest.shape)} in {manifest.file}; got {_size(frame.shape)}. "
            f"Fix: download it again from {manifest.page}."
        )
    target, features = split_columns(frame, manifest)
    rows = frame.iloc[choose_rows(frame, manifest.rows)]
    x = np.column_stack([_encoded(rows.iloc[:, at], manifest.columns[at], recipe.encoding) for at in features])
    y = _classes(rows.iloc[:, target], manifest)
    if x.shape != manifest.arrays:
        raise TableError(
            f"Expected features of shape {manifest.arrays} from {manifest.file}; got {x.shape}. "
            f"Fix: download it again from {manifest.page}."
        )
    return x, y


# ---------------------------------------------------------------------- rows and columns


def split_columns(frame: pd.DataFrame, manifest: Manifest) -> tuple[int, list[int]]:
    """Return the position of the target, and those of the columns that become features, in the order of the file.

    Raises:
        TableError: If the target is missing or at another position than in the manifest.
    """
    names = [str(name) for name in frame.columns]
    expected = [column.name for column in manifest.columns]
    target, due = _position(names, manifest.target), expected.index(manifest.target)
    if target is None:
        raise TableError(
            f"Expected a column {manifest.target!r} in {manifest.file}; got {', '.join(names[:20])}. "
            f"Fix: download it again from {manifest.page}."
        )
    if target != due:
        raise TableError(
            f"Expected {manifest.target!r} as column {due + 1} of {manifest.file}; got it as column {target + 1}. "
            f"Fix: keep the columns in the order of the original, {', '.join(expected)}."
        )
    dropped = {target}
    for name in manifest.drop:
        position = _position(names, name)
        dropped.add(expected.index(name) if position is None else position)
    return target, [at for at in range(len(names)) if at not in dropped]


def _position(names: list[str], wanted: str) -> int | None:
    """Return the index of a column, by exact name or else ignoring case; None if absent or ambiguous."""
    for same in (str, str.casefold):
        positions = [at for at, name in enumerate(names) if same(name) == same(wanted)]
        if len(positions) == 1:
            return positions[0]
    return None


def choose_rows(frame: pd.DataFrame, choice: RowChoice) -> IntArray:
    """Return the positions of the rows to use, int64 (n,); a row with a missing value is never among them.

    `at` picks from all rows of the file, and incomplete ones are then left out; `first` and `sample` pick from the
    complete rows. Both as published.
    """
    complete = frame.notna().all(axis=1).to_numpy(dtype=np.bool_)
    if choice.at:
        return np.array([row for row in choice.at if complete[row]], dtype=np.int64)
    rows: IntArray = np.flatnonzero(complete).astype(np.int64)
    if choice.sample is not None:
        drawn = np.random.RandomState(choice.seed).permutation(len(rows))[: choice.sample]
        rows = rows[np.sort(drawn)]
    return rows[: choice.first]


# ---------------------------------------------------------------------- values


def _encoded(column: pd.Series[Any], kind: Column, encoding: Encoding) -> FloatArray:
    if encoding is Encoding.RANKS:
        return ranks(column)
    return ordinals(column)[0].astype(np.float64) if kind.levels else as_numbers(column)


def _classes(column: pd.Series[Any], manifest: Manifest) -> IntArray:
    """Return classes 0 .. k-1 in the (natural) order of the manifest, ignoring case."""
    codes, labels = ordinals(column)
    places = {_text(label).casefold(): at for at, label in enumerate(manifest.classes)}
    if {label.casefold() for label in labels} != set(places):
        shown = ", ".join(label[:_MAX_SHOWN] for label in labels[:10]) or "none"
        raise TableError(
            f"Expected exactly {', '.join(manifest.classes)} as values of {manifest.target!r} in {manifest.file}; "
            f"got {shown}{', ...' if labels[10:] else ''}. Fix: download it again from {manifest.page}."
        )
    return np.array([places[label.casefold()] for label in labels], dtype=np.int64)[codes]


def as_numbers(column: pd.Series[Any]) -> FloatArray:
    """Convert a column without missing values to numbers, float64 (n,); texts and categories are parsed.

    Whole numbers beyond 2**53 are rounded to the nearest float64.

    Raises:
        TableError: If a value is not a finite number.
    """
    values = _parsed(column)
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        shown = repr(column.iloc[int(wrong[0])])[:_MAX_SHOWN]
        raise TableError(
            f"Expected finite numbers in column {str(column.name)!r}; got {shown}. "
            f"Fix: replace such values, drop their rows, or drop the column."
        )
    return values


def _parsed(column: pd.Series[Any]) -> FloatArray:
    """Return the values as numbers, NaN where a value is not a number."""
    import pandas as pd

    numbers = column
    if column.dtype.kind not in "biuf":
        try:
            numbers = pd.to_numeric(column.astype(object), errors="coerce")
        except OverflowError:  # a whole number beyond all floats
            numbers = pd.Series([_float(value) for value in column], dtype=np.float64)
    if numbers.dtype.kind not in "biuf":  # times and complex numbers
        return np.full(len(column), np.nan)
    with np.errstate(over="ignore"):  # a long double beyond float64 is infinite, and refused
        values: FloatArray = numbers.to_numpy(dtype=np.float64)
    return values


def _float(value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        return np.nan


def ordinals(column: pd.Series[Any]) -> tuple[IntArray, list[str]]:
    """Encode the categories of a column without missing values as numbers from 0 in their natural order.

    The type of a value is ignored: the number 1, the number 1.0 and the text "1" are one category, and so
    are the truth value True and the text "True".

    Returns:
        Codes, int64 (n,), and the categories as text, in their order.
    """
    import pandas as pd

    mixed = column.dtype == object  # pandas would take True for 1, and cannot compare lists
    values = np.array([_text(value) for value in column], dtype=object) if mixed else column
    codes, distinct = pd.factorize(values)
    labels = [_text(value) for value in distinct]
    ordered = sorted(set(labels), key=natural_key)
    places = {label: at for at, label in enumerate(ordered)}
    return np.array([places[label] for label in labels], dtype=np.int64)[codes], ordered


def ranks(column: pd.Series[Any]) -> FloatArray:
    """Rank every value among the distinct values of a column without missing values, float64 (n,).

    As published: scikit-learn's LabelEncoder on a column of objects. Numbers go by size, texts by code points ("10.0"
    before "2.0"), False before True.

    Raises:
        TableError: If the column mixes texts and numbers: they have no common order.
    """
    from sklearn.preprocessing import LabelEncoder

    try:
        codes: FloatArray = LabelEncoder().fit_transform(column.to_numpy(dtype=object)).astype(np.float64)
    except TypeError:
        raise TableError(
            f"Expected values of one kind in column {str(column.name)!r}; got a mixture that has no order. "
            f"Fix: read the original file, unchanged."
        ) from None
    return codes


def natural_key(text: str) -> NaturalKey:
    """Return the key of natural order: "9" before "10" before "14+", "-1" before "0.5", "C3" before "C26"."""
    parts = [text] if _NUMBER.fullmatch(text) else _PART.findall(text)
    return tuple((0, _number(part), "") if _NUMBER.fullmatch(part) else (1, 0, part) for part in parts), text


def _number(text: str) -> float:
    digits = text.lstrip("-").isdecimal() and len(text) <= _MAX_DIGITS
    return int(text) if digits else float(text)  # an int compares exactly, however large


def _text(value: object) -> str:
    """Return a value as its category is called; whole numbers have no decimals."""
    if isinstance(value, float | np.floating) and value.is_integer():
        return str(int(value))
    text = str(value)
    whole = _WHOLE.fullmatch(text)
    return whole[1] if whole else text


def _size(shape: tuple[int, ...]) -> str:
    return f"{shape[0]:,} rows and {shape[1]:,} columns"
