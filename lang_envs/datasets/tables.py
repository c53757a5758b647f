"""Tables of the user's own.

The types of the columns decide between numbers and categories. A table without a learnable classification is refused
with the reason. A likely mistake, such as a column of row numbers, is accepted with one warning in the log.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lang_envs.datasets import Dataset
from lang_envs.datasets.errors import DataError, TableError
from lang_envs.datasets.files import MAX_EXACT_INTEGER, check_names, library, read_table, with_exact_numbers
from lang_envs.datasets.preprocessing import as_numbers, ordinals
from lang_envs.text import MAX_NAME, listed, nearest, printable, shown

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MAX_CLASSES", "MAX_DESCRIPTION", "MIN_CLASS_ROWS", "Table", "own_table"]

_log = logging.getLogger(__name__)

Table: TypeAlias = "str | Path | pd.DataFrame | Mapping[str, Sequence[Any]]"
"""A user's table: a file, a DataFrame, or columns by their names."""

MAX_DESCRIPTION = 200
"""Maximum number of characters of the description of a table."""
MAX_CLASSES = 30
"""Maximum number of classes: the score compares every pair of them, a minute and more for a hundred."""
MIN_CLASS_ROWS = 4
"""Minimum number of rows of a class: with fewer, random halves often lack it on one side."""
_MAX_REMARKS = 5  # columns or classes in a remark
_MONEY = r"(?:[$€£¥₹]|EUR|USD|GBP|CHF)"
_PLAIN_NUMBER = re.compile(r"\s*[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?\s*")
_WRITTEN_NUMBER = re.compile(
    rf"\s*[-+]?\s*{_MONEY}?\s*[-+]?(?:\d{{1,3}}(?:[,.' \u00a0\u202f]\d{{3}})+(?:[.,]\d+)?|\d+(?:[.,]\d+)?)"
    rf"\s*(?:%|{_MONEY})?\s*"
)
_GAPS = ("", "?", "-", ".", "*", "na", "nan", "none", "null", "unknown", "missing")
"""Spellings of a missing value that readers take for text."""
_INDEX_NAMES = ("id", "index")
_MAX_WHY = 200  # characters of somebody else's error

_NEUTRAL = "Every row is an example. To be predicted is its class."
_NUMBERS = ("boolean", "decimal", "floating", "integer", "mixed-integer-float")
"""Names in pandas of objects that are numbers."""
_TIMES = ("date", "datetime", "datetime64", "interval", "period", "time", "timedelta", "timedelta64")
"""Names in pandas of objects that are times or lie on a scale."""


class _Feature(NamedTuple):
    """A column as numbers, and its categories where it has some."""

    values: NDArray[np.float64]
    categories: Sequence[str] = ()
    """Values without an order of their own; empty for numbers, times and ordered categories."""


def own_table(table: Table, target: str | int, description: str = "") -> Dataset:
    """Return a table of one's own.

    Columns of truth values (as 0 and 1) and numbers stay numbers (whole numbers beyond 2**53 become their ranks where
    float64 would round distinct ones to the same); all other columns hold categories, numbered in their natural
    order ("9" before "10"), times by time, ordered categories in their own order. Rows with a missing value are left
    out. The classes are the values of the target, in the same order. A warning is logged if rows are left out or a
    column looks like a mistake.

    Args:
        table: A CSV, parquet or ARFF file, a DataFrame (its index is no column), or columns by their names.
        target: Column to be predicted; it is found by its name as text, so 2 and "2" are the same.
        description: Description of the rows and of the target, for the agent: one line, at most 200 characters.

    Raises:
        TableError: If it has no learnable classification; the message has the reason. It is a `ValueError`.
        DataMissingError: If the file does not exist; it is a `FileNotFoundError`, and no `TableError`.
        MissingExtraError: If the package that reads it is not installed.
    """
    about = _checked_description(description)
    origin = _origin(table)
    names = [str(name) for name in origin.frame.columns]
    check_names(names)
    position = _checked_target(names, target)
    frame = _complete_rows(origin.frame)
    y, classes = _checked_classes(frame.iloc[:, position])
    features = {at: _feature(frame.iloc[:, at]) for at in range(len(names)) if at != position}
    x = np.column_stack([feature.values for feature in features.values()])
    title = f"the {origin.title} table"
    remarks = [*_left_out(origin.frame, frame), *_odd_features(origin.frame, features), *_alike(classes, y)]
    if remarks:
        _log.warning("%s: %s", title, "; ".join([f"{len(origin.frame)} rows", *remarks]))
    return Dataset(origin.name, title, about, x, y, published=False, source=origin.source)


class _Origin(NamedTuple):
    frame: pd.DataFrame
    name: str
    title: str
    source: str


def _origin(table: object) -> _Origin:
    pandas = library("pandas")
    if isinstance(table, str | Path):
        stem = Path(table).stem
        shown = "".join(c if c.isprintable() else " " for c in stem)[:MAX_NAME].strip() or "given"
        return _Origin(read_table(table), stem, shown, str(table))
    if isinstance(table, pandas.DataFrame):
        return _Origin(table, "own table", "given", "a DataFrame")
    if not isinstance(table, Mapping):
        raise TableError(
            f"Expected a path, a pandas DataFrame or a mapping of names to columns; got {type(table).__name__}. "
            f"Fix: make a DataFrame of it."
        )
    try:
        columns = dict(table)
        frame = with_exact_numbers(
            pandas.DataFrame(columns), lambda name: pandas.Series(list(columns[name]), dtype=object)
        )
        return _Origin(frame, "own table", "given", "a mapping of names to columns")
    except (ValueError, TypeError) as error:
        raise TableError(
            f"Expected columns that pandas makes a table of; got: {error}. Fix: make a DataFrame of them."
        ) from error


def _checked_description(description: object) -> str:
    """Return the description as a sentence; a neutral one for an empty one."""
    if not isinstance(description, str):
        raise TableError(f"Expected a description as text; got {type(description).__name__}. Fix: pass a str.")
    if len(description) > MAX_DESCRIPTION or not description.isprintable():
        raise TableError(
            f"Expected a description of one printable line, at most {MAX_DESCRIPTION} characters; got "
            f"{len(description)} characters, {description[:MAX_DESCRIPTION]!r}. Fix: say it in a sentence or two."
        )
    sentence = description.strip()
    return (sentence if sentence[-1] in ".!?" else f"{sentence}.") if sentence else _NEUTRAL


def _checked_target(names: list[str], target: object) -> int:
    """Return the position of the target."""
    if isinstance(target, int | np.integer) and not isinstance(target, bool):
        target = str(target)
    if not isinstance(target, str):
        raise TableError(f"Expected the name of the target as text; got {target!r:.{MAX_NAME}}. Fix: name a column.")
    if target not in names:
        guess = printable(" " + nearest(target, names, " ")).rstrip()
        raise TableError(
            f"Expected a column {target!r} to predict; there is none.{guess} Fix: name one of {listed(names)}."
        )
    if len(names) == 1:
        raise TableError(f"Expected columns beside {target!r} to learn from; got none. Fix: add features.")
    return names.index(target)


def _complete_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows without missing values."""
    n_rows, min_rows = len(frame), 2 * MIN_CLASS_ROWS
    present = frame.notna()
    empty = [str(name) for name in frame.columns[~present.any(axis=0).to_numpy(dtype=np.bool_)]]
    if n_rows and empty:
        raise TableError(
            f"Expected a value in every column; got none in {listed(empty)}, so that no row is complete. "
            f"Fix: drop such columns."
        )
    complete = present.all(axis=1).to_numpy(dtype=np.bool_)
    n_complete = int(complete.sum())
    if n_complete < min_rows:
        missing = (~present).sum(axis=0).to_numpy()
        worst = f" (most values are missing in {shown(frame.columns[missing.argmax()])})" if n_complete < n_rows else ""
        raise TableError(
            f"Expected at least {min_rows} rows without missing values; got {n_complete} of {n_rows}{worst}. "
            f"Fix: fill in or drop columns with gaps, or add rows."
        )
    return frame[complete] if n_complete < n_rows else frame


def _checked_classes(column: pd.Series[Any]) -> tuple[NDArray[np.int64], list[str]]:
    """Return the classes (n,) of the target and their names."""
    name = shown(column.name)
    with _blaming(column):
        if _holds_numbers(column):
            values = np.unique(_finite(column))
            if len(values) > MAX_CLASSES or not np.array_equal(values, np.floor(values)):
                raise _no_classes(name, len(values), f"{values[0]:g} to {values[-1]:g}")
        codes, labels = _numbered(column)
    if len(labels) > MAX_CLASSES:
        raise _no_classes(name, len(labels), f"{shown(labels[0])} to {shown(labels[-1])}")
    if len(labels) < 2:
        raise TableError(
            f"Expected at least two classes in {name}; got only {shown(labels[0])} in {len(codes)} complete rows. "
            f"Fix: choose another target, or add rows of another class."
        )
    counts = np.bincount(codes)
    rare = [f"{counts[at]} of {shown(labels[at])}" for at in np.flatnonzero(counts < MIN_CLASS_ROWS)]
    if rare:
        raise TableError(
            f"Expected at least {MIN_CLASS_ROWS} complete rows of every class in {name}, so that random halves have "
            f"all classes; got {', '.join(rare[:5])}{', ...' if rare[5:] else ''}. Fix: drop or merge rare classes."
        )
    return codes, labels


def _no_classes(name: str, n_distinct: int, span: str) -> TableError:
    return TableError(
        f"Expected classes in {name}: at most {MAX_CLASSES} distinct values, and whole ones if they are numbers; got "
        f"{n_distinct} distinct ones, {span}. Fix: make fewer classes of them, with pandas.cut for example, or choose "
        f"another target."
    )


def _feature(column: pd.Series[Any]) -> _Feature:
    with _blaming(column):
        if _holds_numbers(column):
            return _Feature(_distinct_numbers(_finite(column), column))
        codes, labels = _numbered(column)
        return _Feature(codes.astype(np.float64), () if _has_order(column) else labels)


def _distinct_numbers(values: NDArray[np.float64], column: pd.Series[Any]) -> NDArray[np.float64]:
    """Return the values of a column, or their ranks where float64 would merge distinct numbers."""
    if np.abs(values).max() < MAX_EXACT_INTEGER or column.dtype.kind == "f":
        return values
    exact = np.array([value.item() if isinstance(value, np.generic) else value for value in column], dtype=object)
    distinct, ranks = np.unique(exact, return_inverse=True)
    return values if len(distinct) == len(np.unique(values)) else ranks.astype(np.float64)


@contextmanager
def _blaming(column: pd.Series[Any]) -> Iterator[None]:
    """Raise an error that names the column if it cannot be encoded: its values may be objects of any kind."""
    try:
        yield
    except (DataError, MemoryError):
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {' '.join(str(error).split())[:_MAX_WHY].rstrip('.')}".removesuffix(": ")
        raise TableError(
            f"Expected numbers, texts, truth values or times in column {shown(column.name)}; got values that cannot "
            f"be numbered ({why}). Fix: make text of them, or drop the column."
        ) from error


def _finite(column: pd.Series[Any]) -> NDArray[np.float64]:
    try:
        return as_numbers(column)
    except TableError:  # the message shows a value: once more with Python's numbers, for plain digits
        plain = [value.item() if isinstance(value, np.generic) else value for value in column]
        return as_numbers(library("pandas").Series(plain, dtype=object, name=column.name))


def _holds_numbers(column: pd.Series[Any]) -> bool:
    pandas = library("pandas")
    if column.dtype.kind != "O" or isinstance(column.dtype, pandas.CategoricalDtype):
        return column.dtype.kind in "biuf"
    return pandas.api.types.infer_dtype(column, skipna=True) in _NUMBERS


def _has_order(column: pd.Series[Any]) -> bool:
    """Return whether a column holds times or ordered categories."""
    if column.dtype.kind in "mM" or getattr(column.dtype, "ordered", False):
        return True
    if hasattr(column.dtype, "categories") or column.dtype.kind != "O":
        return False
    return library("pandas").api.types.infer_dtype(column, skipna=True) in _TIMES


def _numbered(column: pd.Series[Any]) -> tuple[NDArray[np.int64], list[str]]:
    """Return codes and names of the occurring categories; times by time, ordered categories in their own order."""
    if _has_order(column):
        codes, distinct = library("pandas").factorize(column, sort=True)
        return codes.astype(np.int64), [str(value) for value in distinct]
    _check_texts(column)
    return ordinals(column)


_DEFAULT_TEXT = re.compile(r"<.* at 0x[0-9A-Fa-f]+>", re.DOTALL)


def _check_texts(column: pd.Series[Any]) -> None:
    """Refuse objects whose text is their place in memory: it differs from run to run."""
    values = getattr(column.dtype, "categories", column)
    if values.dtype != object:
        return
    for value in values:
        if not isinstance(value, str) and _DEFAULT_TEXT.search(str(value)):
            raise TableError(
                f"Expected numbers, texts, truth values or times in column {shown(column.name)}; got objects of the "
                f"type {type(value).__name__}, whose text is a place in memory. Fix: make text of them, or drop the "
                f"column."
            )


# ---------------------------------------------------------------------- remarks on likely mistakes


def _left_out(frame: pd.DataFrame, kept: pd.DataFrame) -> list[str]:
    """Describe how many rows are left out, and where values are missing."""
    if len(kept) == len(frame):
        return []
    missing = frame.isna().sum(axis=0).to_numpy()
    worst = [int(at) for at in np.argsort(-missing, kind="stable") if missing[at]]
    counts = ", ".join(f"{shown(frame.columns[at])}: {missing[at]}" for at in worst[:_MAX_REMARKS])
    more = ", ..." if worst[_MAX_REMARKS:] else ""
    return [f"{len(frame) - len(kept)} left out with missing values ({counts}{more})"]


def _odd_features(frame: pd.DataFrame, features: Mapping[int, _Feature]) -> list[str]:
    """Describe columns that look like mistakes: numbers as text, constants, names and numbers of rows."""
    names = [str(name) for name in frame.columns]
    written = [(names[at], len(f.categories), _as_written(f.categories)) for at, f in features.items()]
    texts = [f"{shown(name)} ({n} categories, such as {shown(text)})" for name, n, text in written if text is not None]
    constant = [names[at] for at, feature in features.items() if feature.values.min() == feature.values.max()]
    distinct = [names[at] for at, feature in features.items() if _names_rows(frame.iloc[:, at], feature)]
    more = ", ..." if texts[_MAX_REMARKS:] else ""
    columns_of = {
        "numbers written as text": ", ".join(texts[:_MAX_REMARKS]) + more,
        "different in every row": listed(distinct),
        "constant": listed(constant),
    }
    return [f"{remark}: {columns}" for remark, columns in columns_of.items() if columns]


def _as_written(categories: Sequence[str]) -> str | None:
    """Return the category that makes a column text although most look like numbers; None for any other column."""
    plain = [_PLAIN_NUMBER.fullmatch(text) is not None for text in categories]
    written = [_WRITTEN_NUMBER.fullmatch(text) is not None for text in categories]
    if 2 * sum(p or w for p, w in zip(plain, written, strict=True)) <= len(categories):
        return None
    odd = [text for text, p, w in zip(categories, plain, written, strict=True) if w and not p]
    return next(iter(odd or [text for text in categories if text.strip().casefold() in _GAPS]), None)


def _names_rows(column: pd.Series[Any], feature: _Feature) -> bool:
    """Return whether a feature only identifies rows: texts that never recur, or the number of the row."""
    n_rows = len(feature.values)
    if feature.categories:
        return len(feature.categories) == n_rows
    name = str(column.name).strip().casefold()
    if name.startswith("unnamed:") or name in _INDEX_NAMES:
        return len(np.unique(feature.values)) == n_rows
    if column.dtype.kind not in "iu" or column.isna().any():
        return False
    numbers = np.unique(column.to_numpy())  # of all rows, also those that were left out
    return (
        len(numbers) == len(column) and int(numbers[0]) in (0, 1) and int(numbers[-1] - numbers[0]) == len(column) - 1
    )


def _alike(classes: Sequence[str], y: NDArray[np.int64]) -> list[str]:
    """Describe classes that differ only by case or spaces around them."""
    groups: dict[str, list[int]] = {}
    for at, label in enumerate(classes):
        groups.setdefault(label.strip().casefold(), []).append(at)
    similar = [at for group in groups.values() if len(group) > 1 for at in group]
    counts = np.bincount(y)
    names = [f"{shown(classes[at])} ({counts[at]})" for at in similar]
    return [f"classes that differ only by case or spaces: {', '.join(names)}"] if names else []
