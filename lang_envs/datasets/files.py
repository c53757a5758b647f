"""Tables from files: CSV, parquet, ARFF."""

from __future__ import annotations

import contextlib
import importlib
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lang_envs.datasets.errors import DataMissingError, TableError
from lang_envs.errors import MissingExtraError, install_command
from lang_envs.text import listed, shown

if TYPE_CHECKING:
    import pandas as pd

_MAX_PATH = 200  # characters of a path that go into a message
_ARFF_NUMBER = re.compile(r"(?P<name>\s*@attribute\s+[^{]*[\s'\"])(?:numeric|real|integer)\b[^'\"{]*$", re.IGNORECASE)
"""Declaration of a number, with the bounds of KEEL and OpenML behind its type: `integer [1,10]`."""
_SPACED_QUOTE = re.compile(r"\s+\"")
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
            f"Expected a file that can be read as its name says, {shown}; got: {why}. Fix: correct the file, or read "
            f"it yourself and pass a DataFrame as table."
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
    try:
        frame = _checked_csv(path)
    except (library("pandas").errors.ParserError, library("pandas").errors.ParserWarning) as error:
        if "EOF" in str(error):  # in a quotation, or in a broken file
            raise
        raise TableError(
            f"Expected a name for every column; got {len(names)} names and longer rows. Fix: name all columns, take "
            "the comma off the end of each row, quote the texts that hold a comma, or pass a DataFrame: "
            "table=pandas.read_csv(path, quotechar=..., comment=..., skipinitialspace=True)."
        ) from error
    texts = [names, *(frame[name] for name in frame.columns[[dtype.kind not in "biuf" for dtype in frame.dtypes]])]
    spaced = next((text for column in texts for text in column if _SPACED_QUOTE.match(str(text))), None)
    if spaced is not None:
        raise TableError(
            f"Expected quotation marks right behind a comma; got a space before one, {shown(spaced)}. "
            "Fix: pass a DataFrame: table=pandas.read_csv(path, skipinitialspace=True)."
        )
    return frame


def _checked_csv(path: Path) -> pd.DataFrame:
    """Read a CSV file; raise a parser's error or warning where a row is longer than the header."""
    pandas = library("pandas")
    header = pandas.read_csv(path, header=None, nrows=1, dtype=str)
    with contextlib.suppress(pandas.errors.EmptyDataError):  # no row at all
        first = pandas.read_csv(path, header=None, skiprows=1, nrows=1, dtype=str)
        if first.shape[1] > header.shape[1]:
            raise pandas.errors.ParserError("the first row is longer than the header")
    with warnings.catch_warnings():
        warnings.simplefilter("error", pandas.errors.ParserWarning)
        # All at once: in pieces, a column could be numbers in one and text in another.
        frame: pd.DataFrame = pandas.read_csv(path, low_memory=False, index_col=False)
    return frame


def _read_parquet(path: Path) -> pd.DataFrame:
    library("pyarrow")
    frame: pd.DataFrame = library("pandas").read_parquet(path, engine="pyarrow")
    named = [name for name in frame.index.names if name is not None]
    return frame.reset_index(level=named) if named else frame


def _read_arff(path: Path) -> pd.DataFrame:
    arff, pandas = library("arff"), library("pandas")
    with path.open(encoding="utf-8-sig") as file:
        try:  # whole numbers as REAL, for liac-arff truncates others of an integer attribute
            content = arff.load(_ARFF_NUMBER.sub(r"\g<name>REAL", line) for line in file)
        except arff.BadAttributeType as error:
            raise TableError(
                f"Expected attributes that are numeric, nominal or texts in {path.name[-_MAX_PATH:]!r}; got another "
                f"kind in line {error.line}. Fix: declare it as string, or leave it out."
            ) from error
        except arff.ArffException as error:
            why = str(error).replace(" in line -1", "").replace(", at line -1", "")  # it does not count rows
            raise ValueError(why) from error
    frame: pd.DataFrame = pandas.DataFrame(content["data"], columns=[name for name, _ in content["attributes"]])
    for name, kind in content["attributes"]:
        frame[name] = (
            pandas.Categorical(frame[name], list(dict.fromkeys(kind)))
            if isinstance(kind, list)
            else frame[name].astype(object if kind == "STRING" else np.float64)
        )
    return frame


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
