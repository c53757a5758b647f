"""Tables from files, and tables of the user's own.

A table of one's own is taken as it comes: the types of its columns say which hold numbers and which categories. What no
classifier could be asked for is refused, with the reason.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lang_envs.datascicoding.datasets import Dataset
from lang_envs.datascicoding.datasets.errors import DataMissingError, TableError
from lang_envs.datascicoding.datasets.preprocessing import as_numbers, ordinals
from lang_envs.errors import MissingExtraError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MAX_DESCRIPTION", "MIN_CLASS_ROWS", "Table", "own_table", "read_table"]

Table: TypeAlias = "str | Path | pd.DataFrame | Mapping[str, Sequence[Any]]"
"""What a user can hand in: a file, a DataFrame, or columns by their names."""

MAX_DESCRIPTION = 200
"""Characters of the description of a table."""
MIN_CLASS_ROWS = 4
"""Rows that every class must have: with fewer, random halves often lack it on one side."""
_MAX_NUMBER_CLASSES = 100
_MAX_SHOWN = 20  # names in a message
_MAX_NAME = 60  # characters of a name that go into the prompt or a message
_MAX_PATH = 200  # characters of a path that go into a message
_ARFF_BLOCK = 20_000  # rows that are Python objects at a time

_NEUTRAL = "Every row is an example. To be predicted is its class."
_NUMBERS = ("boolean", "decimal", "floating", "integer", "mixed-integer-float")
"""What pandas calls objects that are numbers."""


# ---------------------------------------------------------------------- files


def read_table(path: str | Path) -> pd.DataFrame:
    """All rows and columns of a table file: CSV, parquet or ARFF, by its suffix.

    CSV is read as the published pipeline does: pandas guesses the types. ARFF: numeric attributes become float64,
    nominal ones categories, texts objects.

    Args:
        path: A file that ends in .csv, .parquet, .pq or .arff.

    Raises:
        DataMissingError: If there is no such file; it is a `FileNotFoundError`.
        TableError: If it is a folder, of another kind, or cannot be read.
        MissingExtraError: If the package that reads it is not installed.
    """
    path = Path(path)
    shown = repr(str(path)[-_MAX_PATH:])
    try:
        path = path.expanduser()
        read = _READERS.get(path.suffix.lower())
        if path.is_dir():
            raise TableError(f"Expected a file; got the folder {shown}. Fix: name a file in it.")
        if read is None:
            raise TableError(
                f"Expected a file that ends in {', '.join(_READERS)}; got {shown}. Fix: convert it to one of them."
            )
        if not path.is_file():
            raise DataMissingError(f"Expected a file; there is none at {shown}. Fix: check the path.")
        return read(path)
    except (DataMissingError, MissingExtraError, TableError, MemoryError):
        raise
    except Exception as error:  # three parsers, each with errors of its own
        why = " ".join(str(error).split())[:_MAX_PATH].rstrip(".") or type(error).__name__
        raise TableError(
            f"Expected a file that can be read as its name says, {shown}; got: {why}. "
            f"Fix: check that it is complete; text must be UTF-8."
        ) from error


def _read_csv(path: Path) -> pd.DataFrame:
    read_csv = _library("pandas").read_csv
    header = read_csv(path, header=None, nrows=1, dtype=str)  # read_csv would rename columns of the same name
    _check_names([str(name) for name in header.iloc[0].dropna()])
    # All at once: in pieces, a column could be numbers in one and text in another.
    frame: pd.DataFrame = read_csv(path, low_memory=False)
    return frame


def _read_parquet(path: Path) -> pd.DataFrame:
    _library("pyarrow")
    frame: pd.DataFrame = _library("pandas").read_parquet(path, engine="pyarrow")
    return frame


def _read_arff(path: Path) -> pd.DataFrame:
    arff = _library("arff")
    with path.open(encoding="utf-8-sig") as file:
        content = arff.load(file, return_type=arff.DENSE_GEN)
        columns = [_ArffColumn(name, kind) for name, kind in content["attributes"]]
        while block := list(islice(content["data"], _ARFF_BLOCK)):
            for column, values in zip(columns, zip(*block, strict=True), strict=True):
                column.pieces.append(column.packed(values))
    frame: pd.DataFrame = _library("pandas").DataFrame({column.name: column.joined() for column in columns})
    return frame


class _ArffColumn:
    """A column of an ARFF file, built from blocks of rows so that few of them are Python objects at a time."""

    def __init__(self, name: str, kind: str | list[str]) -> None:
        self.name = name
        self.pieces: list[NDArray[Any]] = []
        self.categories = list(dict.fromkeys(kind)) if isinstance(kind, list) else None
        self._codes: dict[str | None, int] = {None: -1}
        self._codes.update((category, code) for code, category in enumerate(self.categories or ()))
        self._dtype: type = np.int32 if self.categories is not None else object if kind == "STRING" else np.float64

    def packed(self, values: Sequence[Any]) -> NDArray[Any]:
        found = [self._codes[value] for value in values] if self.categories is not None else values
        return np.array(found, dtype=self._dtype)  # None becomes NaN among numbers

    def joined(self) -> Any:  # noqa: ANN401 - an array of NumPy or pandas
        values = np.concatenate([np.empty(0, dtype=self._dtype), *self.pieces])
        if self.categories is None:
            return values
        return _library("pandas").Categorical.from_codes(values, categories=self.categories)


_READERS: dict[str, Callable[[Path], pd.DataFrame]] = {
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".pq": _read_parquet,
    ".arff": _read_arff,
}


def _library(module: str) -> Any:  # noqa: ANN401 - none of them has types
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingExtraError(
            f"Expected {'liac-arff' if module == 'arff' else module}, which reads tables; it is not installed. "
            'Fix: `pip install -c constraints.txt -e ".[data]"`.'
        ) from None


# ---------------------------------------------------------------------- tables of the user's own


def own_table(table: Table, target: str, description: str = "") -> Dataset:
    """A table of one's own.

    Columns of truth values (as 0 and 1) and numbers stay numbers; all others hold categories, numbered in their natural
    order ("9" before "10"), times by time, ordered categories in their own order. Rows with a missing value are left
    out. The classes are the values of the target, in the same order.

    Args:
        table: A CSV, parquet or ARFF file, a DataFrame (its index is no column), or columns by their names.
        target: Column to be predicted.
        description: What the rows are and what is to be predicted, for the agent: one line, at most 200 characters.

    Raises:
        TableError: If no classifier could be asked for it: the message says why. It is a `ValueError`.
        DataMissingError: If the file does not exist; it is a `FileNotFoundError`.
        MissingExtraError: If the package that reads it is not installed.
    """
    about = _checked_description(description)
    origin = _origin(table)
    frame = origin.frame
    names = [str(name) for name in frame.columns]
    _check_names(names)
    place = _checked_target(names, target)
    frame = _complete_rows(frame)
    y = _checked_classes(frame.iloc[:, place])
    x = np.column_stack([_feature(frame.iloc[:, at]) for at in range(len(names)) if at != place])
    return Dataset(origin.name, f"the {origin.title} table", about, x, y, published=False, source=origin.source)


class _Origin(NamedTuple):
    frame: pd.DataFrame
    name: str
    title: str
    source: str


def _origin(table: object) -> _Origin:
    pandas = _library("pandas")
    if isinstance(table, str | Path):
        stem = Path(table).stem
        shown = "".join(c if c.isprintable() else " " for c in stem)[:_MAX_NAME].strip() or "given"
        return _Origin(read_table(table), stem, shown, str(table))
    if isinstance(table, pandas.DataFrame):
        return _Origin(table, "own table", "given", "a DataFrame")
    if not isinstance(table, Mapping):
        raise TableError(
            f"Expected a path, a pandas DataFrame or a mapping of names to columns; got {type(table).__name__}. "
            f"Fix: make a DataFrame of it."
        )
    try:
        return _Origin(pandas.DataFrame(dict(table)), "own table", "given", "a mapping of names to columns")
    except (ValueError, TypeError) as error:
        raise TableError(
            f"Expected columns of one length; pandas makes no table of them: {error}. Fix: make a DataFrame of them."
        ) from error


def _checked_description(description: object) -> str:
    """The description as a sentence; a neutral one for an empty one."""
    if not isinstance(description, str):
        raise TableError(f"Expected a description as text; got {type(description).__name__}. Fix: pass a str.")
    if len(description) > MAX_DESCRIPTION or not description.isprintable():
        raise TableError(
            f"Expected a description of one printable line, at most {MAX_DESCRIPTION} characters; got "
            f"{len(description)} characters, {description[:MAX_DESCRIPTION]!r}. Fix: say it in a sentence or two."
        )
    sentence = description.strip()
    return (sentence if sentence[-1] in ".!?" else f"{sentence}.") if sentence else _NEUTRAL


def _check_names(names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise TableError(f"Expected every column once; got {_listed(twice)} more than once. Fix: rename them.")


def _checked_target(names: list[str], target: object) -> int:
    """Position of the target."""
    if not isinstance(target, str):
        raise TableError(f"Expected the name of the target as text; got {target!r}. Fix: name a column.")
    if target not in names:
        folded = {name.casefold(): name for name in names}
        near = [folded[name] for name in difflib.get_close_matches(target.casefold(), folded)]
        guess = f" Did you mean {_listed(near)}?" if near else ""
        raise TableError(
            f"Expected a column {target!r} to predict; there is none.{guess} Fix: name one of {_listed(names)}."
        )
    if len(names) == 1:
        raise TableError(f"Expected columns beside {target!r} to learn from; got none. Fix: add features.")
    return names.index(target)


def _complete_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows without missing values."""
    n_rows, least = len(frame), 2 * MIN_CLASS_ROWS
    present = frame.notna()
    empty = [str(name) for name in frame.columns[~present.any(axis=0).to_numpy(dtype=np.bool_)]]
    if n_rows and empty:
        raise TableError(
            f"Expected a value in every column; got none in {_listed(empty)}, so that no row is complete. "
            f"Fix: drop such columns."
        )
    complete = present.all(axis=1).to_numpy(dtype=np.bool_)
    n_complete = int(complete.sum())
    if n_complete < least:
        missing = (~present).sum(axis=0).to_numpy()
        worst = (
            f" (most values are missing in {_shown(frame.columns[missing.argmax()])})" if n_complete < n_rows else ""
        )
        raise TableError(
            f"Expected at least {least} rows without missing values; got {n_complete} of {n_rows}{worst}. "
            f"Fix: fill in or drop columns with gaps, or add rows."
        )
    return frame[complete] if n_complete < n_rows else frame


def _checked_classes(column: pd.Series[Any]) -> NDArray[np.int64]:
    """Classes (n,) of the target."""
    name = _shown(column.name)
    if _holds_numbers(column):
        values = as_numbers(column)
        n_distinct = len(np.unique(values))
        if n_distinct > _MAX_NUMBER_CLASSES or not np.array_equal(values, np.floor(values)):
            raise TableError(
                f"Expected classes in {name}: numbers are classes if all are whole and at most {_MAX_NUMBER_CLASSES} "
                f"distinct; got {n_distinct} distinct ones, {values.min():g} to {values.max():g}. "
                f"Fix: make classes of them, with pandas.cut for example, or text."
            )
    codes, labels = _numbered(column)
    if len(labels) < 2:
        raise TableError(
            f"Expected at least two classes in {name}; got only {_shown(labels[0])} in {len(codes)} complete rows. "
            f"Fix: choose another target, or add rows of another class."
        )
    counts = np.bincount(codes)
    rare = [f"{counts[at]} of {_shown(labels[at])}" for at in np.flatnonzero(counts < MIN_CLASS_ROWS)]
    if rare:
        raise TableError(
            f"Expected at least {MIN_CLASS_ROWS} complete rows of every class in {name}, so that random halves have "
            f"all classes; got {', '.join(rare[:5])}{', ...' if rare[5:] else ''}. Fix: drop or merge rare classes."
        )
    return codes


def _feature(column: pd.Series[Any]) -> NDArray[np.float64]:
    return as_numbers(column) if _holds_numbers(column) else _numbered(column)[0].astype(np.float64)


def _holds_numbers(column: pd.Series[Any]) -> bool:
    pandas = _library("pandas")
    if column.dtype.kind != "O" or isinstance(column.dtype, pandas.CategoricalDtype):
        return column.dtype.kind in "biuf"
    return pandas.api.types.infer_dtype(column, skipna=True) in _NUMBERS


def _numbered(column: pd.Series[Any]) -> tuple[NDArray[np.int64], list[str]]:
    """Codes of the categories that occur, and their names; times by time, ordered categories in their own order."""
    if column.dtype.kind in "mM" or getattr(column.dtype, "ordered", False):
        codes, distinct = _library("pandas").factorize(column, sort=True)
        return codes.astype(np.int64), [str(value) for value in distinct]
    return ordinals(column)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(_shown(name) for name in names[:_MAX_SHOWN]) + (", ..." if names[_MAX_SHOWN:] else "")


def _shown(name: object) -> str:
    return repr(str(name)[:_MAX_NAME])
