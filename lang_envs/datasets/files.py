"""Tables from files: CSV, parquet, ARFF."""

from __future__ import annotations

import contextlib
import importlib
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lang_envs.datasets.errors import DataMissingError, TableError
from lang_envs.errors import MissingExtraError, missing_extra
from lang_envs.text import listed, shown

if TYPE_CHECKING:
    import pandas as pd

_MAX_PATH = 200  # characters of a path that go into a message
_ARFF_BLOCK = 20_000  # rows that are Python objects at a time
_ARFF_ATTRIBUTE = re.compile(
    r"""\s*@attribute\s+(?P<name>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s{},%'"][^\s{},%]*)\s*(?P<kind>(?<=[\s'"])[^{].*|\{.*)""",
    re.IGNORECASE | re.DOTALL,
)
_ARFF_NUMBER = re.compile(r"(?:numeric|real|integer)\s*(?:\[[^\]]*\])?", re.IGNORECASE)
"""Type of a number, with KEEL's bounds."""
_ARFF_REMARK = re.compile(r"(?<=[\w}\]])\s*(?:\{\s*[\d.eE+-]+\s*\})?\s*(?:(?<=[\s}])%[^{}'\"]*)?$")
"""Weka's weight, and a comment, behind a type."""
_SPACED_QUOTE = re.compile(r"\s+\"")
MAX_EXACT_INTEGER = 2**53
"""float64 holds every integer up to this one."""
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # two letters at least: one is a drive of Windows
_SNIPPETS = {
    ".tsv": 'pandas.read_csv(path, sep="\\t")',
    ".tab": 'pandas.read_csv(path, sep="\\t")',
    ".txt": 'pandas.read_csv(path, sep="\\t")',
    ".xls": "pandas.read_excel(path)",
    ".xlsx": "pandas.read_excel(path)",
}
"""Functions that read other files, by suffix; `pandas.read_csv(path)`, also of compressed ones, if not listed."""
_CSV_OPTIONS: tuple[dict[str, Any], ...] = (
    {"skipinitialspace": True},
    {"quotechar": "'"},
    {"skipinitialspace": True, "quotechar": "'"},
    {"comment": "#"},
    {"sep": "\t"},
    {"sep": ";"},
)
"""Options of `pandas.read_csv` that are tried, for the message only, on a file that cannot be read without."""
_SEPARATORS = {";": ";", "\t": "\\t", "|": "|"}
"""Separators other than a comma, and their spelling in code."""


def read_table(path: str | Path) -> pd.DataFrame:
    """Read all rows and columns of a table file: CSV, parquet or ARFF, by its suffix.

    CSV is read as the published pipeline does: pandas guesses the types. ARFF: numeric attributes become float64
    (objects where whole numbers exceed 2**53), nominal ones categories, texts objects.

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
        options = next((options for options in _CSV_OPTIONS if _is_csv(path, options)), None)
        fix = "name all columns, take the comma off the end of each row, or quote the texts that hold a comma"
        if options:
            spelled = ", ".join(f"{option}={value!r}" for option, value in options.items())
            fix = f"pass a DataFrame: table=pandas.read_csv(path, {spelled})"
        raise TableError(
            f"Expected a name for every column; got {len(names)} names and longer rows. Fix: {fix}."
        ) from error
    texts = [names, *(frame[name] for name in frame.columns[[dtype.kind not in "biuf" for dtype in frame.dtypes]])]
    spaced = next((text for column in texts for text in column if _SPACED_QUOTE.match(str(text))), None)
    if spaced is not None:
        raise TableError(
            f"Expected quotation marks right behind a comma; got a space before one, {shown(spaced)}. "
            "Fix: pass a DataFrame: table=pandas.read_csv(path, skipinitialspace=True)."
        )
    return frame


def _checked_csv(path: Path, **options: Any) -> pd.DataFrame:
    """Read a CSV file; raise a parser's error or warning where a row is longer than the header."""
    pandas = library("pandas")
    header = pandas.read_csv(path, header=None, nrows=1, dtype=str, **options)
    with contextlib.suppress(pandas.errors.EmptyDataError):  # no row at all
        first = pandas.read_csv(path, header=None, skiprows=1, nrows=1, dtype=str, **options)
        if first.shape[1] > header.shape[1]:
            raise pandas.errors.ParserError("the first row is longer than the header")
    with warnings.catch_warnings():
        warnings.simplefilter("error", pandas.errors.ParserWarning)
        # All at once: in pieces, a column could be numbers in one and text in another.
        frame: pd.DataFrame = pandas.read_csv(path, low_memory=False, index_col=False, **options)
    for name in frame.columns[frame.dtypes != np.float64]:
        # With a gap beside numbers beyond int64, pandas takes the column for text.
        if not pandas.api.types.is_numeric_dtype(frame[name]) and (frame[name] == "").any():
            with contextlib.suppress(ValueError):
                frame[name] = _numbers([value or None for value in frame[name]])
    return with_exact_numbers(
        frame,
        lambda name: _numbers(
            pandas.read_csv(path, usecols=[frame.columns.get_loc(name)], dtype=str, **options).iloc[:, 0]
        ),
    )


def with_exact_numbers(frame: pd.DataFrame, exact: Callable[[str], Any]) -> pd.DataFrame:
    """Put whole numbers back that pandas has rounded to float64, as it does where a value of the column is missing.

    Args:
        frame: Table; it is changed.
        exact: From the name of a column to its values as they were.
    """
    for name in frame.columns[frame.dtypes == np.float64]:
        if frame[name].abs().max() >= MAX_EXACT_INTEGER:
            frame[name] = exact(name)
    return frame


def _numbers(texts: Iterable[Any]) -> NDArray[Any]:
    """Return texts as numbers, whole ones exact: float64, or objects where one is beyond 2**53; None becomes NaN."""
    numbers = [_number(text) if isinstance(text, str) else None for text in texts]
    rounded = np.array(numbers, dtype=np.float64)
    return np.array(numbers, dtype=object) if (np.abs(rounded) >= MAX_EXACT_INTEGER).any() else rounded


def _number(text: str) -> float:
    if "_" in text or not text.isascii():  # Python reads 1_000 and the digits of other scripts; pandas does not
        raise ValueError(f"Unable to parse string {shown(text)}")
    try:
        return int(text)
    except ValueError:
        return float(text)


def _is_csv(path: Path, options: dict[str, Any]) -> bool:
    """Return whether these options of `pandas.read_csv` read a file as a table of at least two columns."""
    try:
        return len(_checked_csv(path, **options).columns) > 1
    except Exception:
        return False


def _read_parquet(path: Path) -> pd.DataFrame:
    library("pyarrow")
    read = library("pandas").read_parquet
    frame: pd.DataFrame = with_exact_numbers(
        read(path, engine="pyarrow"),
        lambda name: read(path, engine="pyarrow", columns=[name], dtype_backend="numpy_nullable")[name].astype(object),
    )
    named = [name for name in frame.index.names if name is not None]
    return frame.reset_index(level=named) if named else frame


def _read_arff(path: Path) -> pd.DataFrame:
    arff = library("arff")
    is_number: list[bool] = []
    with path.open(encoding="utf-8-sig") as file:
        try:
            content = arff.load(_arff_lines(file, is_number), return_type=arff.DENSE_GEN)
            columns = [
                _ArffColumn(name, kind, is_number=number)
                for (name, kind), number in zip(content["attributes"], is_number, strict=True)
            ]
            while block := list(islice(content["data"], _ARFF_BLOCK)):
                for column, values in zip(columns, zip(*block, strict=True), strict=True):
                    column.pieces.append(column.packed(values))
        except arff.BadAttributeType as error:
            raise TableError(
                f"Expected attributes that are numeric, nominal or texts in {path.name[-_MAX_PATH:]!r}; got another "
                f"kind in line {error.line}. Fix: declare it as string, or leave it out."
            ) from error
        except arff.ArffException as error:
            why = str(error).replace(" in line -1", "").replace(", at line -1", "")  # it does not count rows
            raise ValueError(why) from error
    frame: pd.DataFrame = library("pandas").DataFrame({column.name: column.joined() for column in columns})
    return frame


def _arff_lines(file: Iterable[str], is_number: list[bool]) -> Iterator[str]:
    """Yield the lines of an ARFF file as liac-arff reads them; note for every attribute whether it is a number.

    liac-arff knows neither bounds after a type (`integer [1,10]`) nor braces right after a name, and rounds: whole
    numbers to float64, and numbers of an attribute called integer to whole ones. So it gets numbers as texts.
    """
    lines = iter(file)
    for line in lines:
        attribute = _ARFF_ATTRIBUTE.match(line)
        if attribute:
            kind = _ARFF_REMARK.sub("", attribute["kind"].strip())
            is_number.append(_ARFF_NUMBER.fullmatch(kind) is not None)
            line = f"@ATTRIBUTE {attribute['name']} {'STRING' if is_number[-1] else kind}\n"
        yield line
        if line.strip().upper() == "@DATA":
            break
    yield from lines


class _ArffColumn:
    """A column of an ARFF file, built from blocks of rows so that few of them are Python objects at a time."""

    def __init__(self, name: str, kind: str | list[str], *, is_number: bool) -> None:
        self.name, self._is_number = name, is_number
        self.pieces: list[NDArray[Any]] = []
        self.categories = list(dict.fromkeys(kind)) if isinstance(kind, list) else None
        self._codes: dict[str | None, int] = {None: -1}
        self._codes.update((category, code) for code, category in enumerate(self.categories or ()))
        self._dtype: type = np.int32 if self.categories is not None else np.float64 if is_number else object

    def packed(self, values: Sequence[Any]) -> NDArray[Any]:
        if self._is_number:
            return _numbers(values)
        codes = [self._codes[value] for value in values] if self.categories is not None else values
        return np.array(codes, dtype=self._dtype)

    def joined(self) -> Any:
        values = np.concatenate(self.pieces or [np.empty(0, dtype=self._dtype)])
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
        raise missing_extra("data", f"{'liac-arff' if module == 'arff' else module}, which reads tables") from None
