"""Tables from files: CSV, parquet, ARFF."""

from __future__ import annotations

import contextlib
import importlib
import re
import warnings
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lang_envs.datasets.errors import DataMissingError, TableError
from lang_envs.errors import MissingExtraError, install_command
from lang_envs.text import listed, shown

if TYPE_CHECKING:
    import pandas as pd

_MAX_PATH = 200  # characters of a path that go into a message
_ARFF_BLOCK = 20_000  # rows that are Python objects at a time
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # two letters at least: one is a drive of Windows
_SNIPPETS = {
    ".tsv": 'pandas.read_csv(path, sep="\\t")',
    ".tab": 'pandas.read_csv(path, sep="\\t")',
    ".txt": 'pandas.read_csv(path, sep="\\t")',
    ".xls": "pandas.read_excel(path)",
    ".xlsx": "pandas.read_excel(path)",
}
"""Functions that read other files, by suffix; `pandas.read_csv(path)`, also of compressed ones, if not listed."""
_SEPARATORS = {";": ";", "\t": "\\t", "|": "|"}
"""Separators other than a comma, and their spelling in code."""


def read_table(path: str | Path) -> pd.DataFrame:
    """Read all rows and columns of a table file: CSV, parquet or ARFF, by its suffix.

    CSV is read as the published pipeline does: pandas guesses the types. ARFF: numeric attributes become float64,
    nominal ones categories, texts objects.

    Args:
        path: Path of a file that ends in .csv, .parquet, .pq or .arff; `~` is the home folder. URLs are not read.

    Raises:
        DataMissingError: If there is no such file; it is a `FileNotFoundError`.
        TableError: If the path is a folder, a URL or a file of another kind, or cannot be read.
        MissingExtraError: If the package that reads it is not installed.
    """
    if _ADDRESS.match(str(path)):
        raise TableError(
            f"Expected the path of a file; got the address {str(path)[:_MAX_PATH]!r}, and addresses are not read. "
            f"Fix: download it, or pass a DataFrame: table=pandas.read_csv(address)."
        )
    path = Path(path)
    shown = repr(str(path)[-_MAX_PATH:])
    try:
        path = path.expanduser()
        read = _READERS.get(path.suffix.lower())
        if path.is_dir():
            raise TableError(f"Expected a file; got the folder {shown}. Fix: name a file in it.")
        if read is None:
            raise TableError(
                f"Expected a file that ends in {', '.join(_READERS)}; got {shown}. Fix: convert it to one of them, or "
                f"pass a DataFrame: table={_SNIPPETS.get(path.suffix.lower(), 'pandas.read_csv(path)')}."
            )
        if not path.is_file():
            raise DataMissingError(f"Expected a file; there is none at {shown}. Fix: check the path.")
        return read(path)
    except (DataMissingError, MissingExtraError, TableError, MemoryError):
        raise
    except UnicodeDecodeError as error:
        raise TableError(
            f"Expected text in UTF-8 in {shown}; got: {error.reason} at byte {error.start}. Fix: save it as UTF-8, or "
            f'pass a DataFrame, for example: table=pandas.read_csv(path, encoding="latin-1").'
        ) from error
    except Exception as error:  # three parsers, each with errors of its own
        why = " ".join(str(error).split())[:_MAX_PATH].rstrip(".") or type(error).__name__
        raise TableError(
            f"Expected a file that can be read as its name says, {shown}; got: {why}. Fix: check that it is complete."
        ) from error


def _read_csv(path: Path) -> pd.DataFrame:
    read_csv = library("pandas").read_csv
    # As text, for read_csv would rename columns of the same name.
    header = read_csv(path, header=None, nrows=1, dtype=str, keep_default_na=False)
    names = [str(name) for name in header.iloc[0] if name != ""]
    separator = next((mark for mark in _SEPARATORS if mark in names[0]), None) if len(names) == 1 else None
    if separator:
        raise TableError(
            f"Expected columns with commas between them; got only one, {shown(names[0])}: is the separator "
            f'{separator!r}? Fix: pass a DataFrame: table=pandas.read_csv(path, sep="{_SEPARATORS[separator]}").'
        )
    check_names(names)
    with contextlib.suppress(library("pandas").errors.EmptyDataError):  # no row at all
        first = read_csv(path, header=None, skiprows=1, nrows=1, dtype=str, keep_default_na=False)
        if first.shape[1] > header.shape[1]:
            raise _too_long(names)
    # All at once: in pieces, a column could be numbers in one and text in another.
    with warnings.catch_warnings():
        warnings.simplefilter("error", library("pandas").errors.ParserWarning)
        try:
            frame: pd.DataFrame = read_csv(path, low_memory=False, index_col=False)
        except library("pandas").errors.ParserWarning as warning:
            raise _too_long(names) from warning
    return frame


def _too_long(names: Sequence[str]) -> TableError:
    """Return the error for rows that are longer than the header: its names may be those of other columns."""
    return TableError(
        f"Expected a name for every column; got {len(names)} names and longer rows. Fix: name all columns, or take "
        "the comma off the end of each row."
    )


def _read_parquet(path: Path) -> pd.DataFrame:
    library("pyarrow")
    frame: pd.DataFrame = library("pandas").read_parquet(path, engine="pyarrow")
    named = [name for name in frame.index.names if name is not None]
    return frame.reset_index(level=named) if named else frame


def _read_arff(path: Path) -> pd.DataFrame:
    arff = library("arff")
    with path.open(encoding="utf-8-sig") as file:
        content = arff.load(file, return_type=arff.DENSE_GEN)
        columns = [_ArffColumn(name, kind) for name, kind in content["attributes"]]
        while block := list(islice(content["data"], _ARFF_BLOCK)):
            for column, values in zip(columns, zip(*block, strict=True), strict=True):
                column.pieces.append(column.packed(values))
    frame: pd.DataFrame = library("pandas").DataFrame({column.name: column.joined() for column in columns})
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

    def joined(self) -> Any:
        values = np.concatenate([np.empty(0, dtype=self._dtype), *self.pieces])
        if self.categories is None:
            return values
        return library("pandas").Categorical.from_codes(values, categories=self.categories)


_READERS: dict[str, Callable[[Path], pd.DataFrame]] = {
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".pq": _read_parquet,
    ".arff": _read_arff,
}


def check_names(names: list[str]) -> None:
    """Refuse a name that occurs twice."""
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise TableError(f"Expected every column once; got {listed(twice)} more than once. Fix: rename them.")


def library(module: str) -> Any:
    """Return a package of the extra `data`, or the error that names the extra."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingExtraError(
            f"Expected {'liac-arff' if module == 'arff' else module}, which reads tables; it is not installed. "
            f"Fix: `{install_command('data')}`."
        ) from None
