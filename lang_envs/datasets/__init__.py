"""The tables of DataSciCoding: subject, origin and rows of each.

A table is added by adding a row to `DATASETS`: one that is generated or comes with a package says how it is read, one
that has to be fetched has a manifest. No row is read, generated or fetched before `load` asks for it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from lang_envs.datasets import balance_scale, bundled, store
from lang_envs.datasets.errors import (
    DataMissingError,
    InterruptedFetchError,
    OfflineError,
    TimedOutError,
)
from lang_envs.datasets.manifest import MANIFEST_NAMES, Manifest, manifest
from lang_envs.errors import install_command

__all__ = ["BUNDLED", "DATASETS", "Data", "Dataset", "DatasetRow", "Preprocessing", "load"]

_log = logging.getLogger(__name__)

Table = tuple[NDArray[np.float64], NDArray[np.int64]]
Reader = Callable[[], Table]


class DatasetRow(NamedTuple):
    """A table that can be loaded.

    Attributes:
        title: Short noun phrase: "the balance scale table".
        about: Description of the rows and of the target. No column is named or described: the agent reads it.
        source: Origin of the rows.
        licence: Licence of the rows, as far as known.
        shape: Numbers of rows and features (n, d).
        classes: Number of classes.
        published: Whether the arrays of `preprocessing="default"` are those of the paper, whose splits are never
            redrawn.
        known_labels: Way for a program to have the labels without learning them, since the table is always the same.
        read: Function that returns features (n, d) and classes (n,), of `preprocessing="default"`.
        manifest: Manifest of a table that has to be fetched; None for one that is generated or comes with a package.
    """

    title: str
    about: str
    source: str
    licence: str
    shape: tuple[int, int]
    classes: int
    published: bool
    known_labels: str
    read: Reader
    manifest: Manifest | None = None


@dataclass(frozen=True, eq=False)
class Dataset:
    """A table with a class for every row. Two are equal if their rows are, under any name.

    Attributes:
        name: Name of the table, as in `DATASETS`.
        title: Short noun phrase: "the balance scale table".
        about: Description of the rows and of the target; names and describes no column.
        x: Features, float64 (n, d), finite or, with `may_be_missing`, NaN; read-only.
        y: Classes 0 .. k-1, int64 (n,), every one of them present, read-only.
        published: Whether its splits are those of the paper.
        source: Origin of the rows.
        synthetic: Whether the rows are made up, as a stand-in for a table that is not here.
        may_be_missing: Whether features may be missing, as NaN.
        classes: Number of classes k, at least 2.
        digest: First 16 hex digits of the SHA-256 of the bytes of `x` (by rows) followed by those of `y`.

    Raises:
        ValueError: If the arrays are not as described.
    """

    name: str
    title: str
    about: str
    x: NDArray[np.float64] = field(repr=False)
    y: NDArray[np.int64] = field(repr=False)
    published: bool
    source: str
    synthetic: bool = False
    may_be_missing: bool = False
    classes: int = field(init=False)
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        x = np.array(self.x, dtype=np.float64, order="C")  # a copy that no caller can write to
        y = np.array(self.y, dtype=np.int64)
        _check(self.name, np.nan_to_num(x, nan=0.0, posinf=np.inf, neginf=-np.inf) if self.may_be_missing else x, y)
        x.flags.writeable = y.flags.writeable = False
        digest = store.array_digest(x, y)
        for attribute, value in (("x", x), ("y", y), ("classes", int(y.max()) + 1), ("digest", digest)):
            object.__setattr__(self, attribute, value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Dataset):
            return NotImplemented
        return (self.digest, self.x.shape) == (other.digest, other.x.shape)

    def __hash__(self) -> int:
        return hash(self.digest)


def _check(name: str, x: NDArray[np.float64], y: NDArray[np.int64]) -> None:
    if x.ndim != 2 or 0 in x.shape or y.shape != x.shape[:1]:
        raise ValueError(
            f"Expected features (n, d) and classes (n,), not empty; got {x.shape} and {y.shape} for {name!r}. "
            f"Fix: one row of features and one class for every example."
        )
    if not np.isfinite(x).all():
        raise ValueError(f"Expected finite features; got NaN or infinity in {name!r}. Fix: drop those rows.")
    present = np.unique(y)
    if len(present) < 2 or not np.array_equal(present, np.arange(len(present))):
        raise ValueError(
            f"Expected classes 0 .. k-1, at least two, all present; got {present[:10].tolist()} in {name!r}. "
            f"Fix: number the classes with numpy.unique(labels, return_inverse=True)."
        )


_OURS = "MIT, as this package"
_SKLEARN = "BSD-3-Clause, as scikit-learn"
_BALANCE_ABOUT = (
    "Every row is a beam with a load on each arm. "
    "To be predicted is whether it tips to the left, stays level or tips to the right."
)


def _of_sklearn(title: str, about: str, loader: str, shape: tuple[int, int], classes: int) -> DatasetRow:
    source, read = f"scikit-learn, {loader}", partial(bundled.read_sklearn, loader)
    return DatasetRow(title, about, source, _SKLEARN, shape, classes, False, "bundled with scikit-learn", read)


def _balance(title: str, rows: str, n_rows: int, published: bool, read: Reader) -> DatasetRow:
    source = f"OpenML 11 (balance-scale), generated from its definition; {rows}"
    return DatasetRow(title, _BALANCE_ABOUT, source, _OURS, (n_rows, 4), 3, published, "given by a formula", read)


def _fetched(table: Manifest) -> DatasetRow:
    labels, read = f"public on {table.service.label}", partial(store.read_arrays, table, "default")
    size = table.arrays, len(table.classes)
    return DatasetRow(table.title, table.about, table.origin, table.licence, *size, False, labels, read, table)


DATASETS: dict[str, DatasetRow] = {
    "balance-scale": _balance(
        "the balance scale table",
        "the 125 rows that the paper's pipeline draws",
        125,
        True,
        balance_scale.read_published,
    ),
    "balance-scale-full": _balance(
        "the complete balance scale table", "all 625 rows", 625, False, balance_scale.read_full
    ),
    "wine": _of_sklearn(
        "the wine table",
        "Every row is the chemical analysis of a wine. To be predicted is which of three growers made it.",
        "load_wine",
        (178, 13),
        3,
    ),
    "iris": _of_sklearn(
        "the iris table",
        "Every row is an iris flower that somebody measured. To be predicted is its species, one of three.",
        "load_iris",
        (150, 4),
        3,
    ),
    "breast-cancer": _of_sklearn(
        "the breast cancer table",
        "Every row is a tumour, summed up from an image of its cells. To be predicted is whether it is benign.",
        "load_breast_cancer",
        (569, 30),
        2,
    ),
    "digits": _of_sklearn(
        "the handwritten digits table",
        "Every row is a small grey picture of a handwritten digit. To be predicted is which of the ten it is.",
        "load_digits",
        (1797, 64),
        10,
    ),
    **{name: _fetched(manifest(name)) for name in MANIFEST_NAMES},
}
"""Every table by its name."""

BUNDLED: tuple[str, ...] = tuple(name for name, row in DATASETS.items() if row.manifest is None)
"""Names of the tables that are always available."""


Data = Literal["real", "synthetic"]
Preprocessing = Literal["default", "published"]


def load(name: str, *, data: Data = "real", preprocessing: Preprocessing = "default") -> Dataset:
    """Return a table by its name.

    One that has to be fetched is fetched, if its service can be reached and `LANG_ENVS_OFFLINE` is not set.

    Args:
        name: Key of `DATASETS`.
        data: `"synthetic"`: made-up rows of the same shape, for a table that has to be fetched.
        preprocessing: `"default"`: numbers stay numbers, categories are numbered; `"published"`: the arrays that the
            paper's code builds.

    Raises:
        ValueError: If there is no such table, or it has no such preprocessing or stand-in.
        DataMissingError: If the table is not here and its service cannot be reached.
        DataError: If the table cannot be fetched or read.
        MissingExtraError: If a package that the table comes with or is fetched with is not installed.
    """
    row = DATASETS.get(name)
    if row is None:
        raise ValueError(f"Expected one of {', '.join(DATASETS)}; got {name!r}. Fix: choose one of them.")
    for option, value, choices in (("data", data, Data), ("preprocessing", preprocessing, Preprocessing)):
        if value not in get_args(choices):
            raise ValueError(f"Expected {option} to be one of {get_args(choices)}; got {value!r}.")
    if row.manifest is None:
        return _load_bundled(name, data, preprocessing)
    if data == "synthetic":
        from lang_envs.datasets.synthetic import stand_in

        if preprocessing != "default":
            raise ValueError(
                "Expected preprocessing='default' with data='synthetic': nobody published on made-up rows; got "
                f"{preprocessing!r}. Fix: leave one of them out."
            )
        return stand_in(row.manifest)
    return _load_fetched(row.manifest, preprocessing)


@cache
def _load_bundled(name: str, data: Data, preprocessing: Preprocessing) -> Dataset:
    row = DATASETS[name]
    if data == "synthetic":
        raise ValueError(
            f"Expected data='real' for {name!r}, which is always here; got 'synthetic'. Fix: leave it out."
        )
    if preprocessing == "published" and not row.published:
        raise ValueError(
            f"Expected preprocessing='default' for {name!r}: the paper has no such table; got 'published'. "
            f"Fix: leave it out."
        )
    x, y = row.read()
    return Dataset(name, row.title, row.about, x, y, published=row.published, source=row.source)


def _load_fetched(wanted: Manifest, preprocessing: Preprocessing) -> Dataset:
    if preprocessing not in wanted.recipes:
        raise ValueError(
            f"Expected preprocessing='default' for {wanted.name!r}; got {preprocessing!r}. The published arrays cannot "
            f"be reproduced ({wanted.note}). Fix: leave it out, and compare with no published score."
        )
    try:
        x, y = store.read_arrays(wanted, preprocessing)
    except DataMissingError:
        _fetch_unasked(wanted)
        x, y = store.read_arrays(wanted, preprocessing)
    return Dataset(
        wanted.name,
        wanted.title,
        wanted.about,
        x,
        y,
        published=preprocessing == "published",
        source=f"{wanted.origin}; {preprocessing} preprocessing",
    )


def _fetch_unasked(wanted: Manifest) -> None:
    """Fetch the table of an environment that is being made; if that is not possible, raise with the fix."""
    from lang_envs.datasets import fetching

    name, why = wanted.name, "LANG_ENVS_OFFLINE is set"
    if os.environ.get("LANG_ENVS_OFFLINE", "").lower() in ("", "0", "false", "no", "off"):
        if not fetching.has_packages():
            why = f"requests or pandas, to fetch it, is not installed ({install_command('data')})"
        elif fetching.is_reachable(wanted.service):
            _log.warning("Fetching the %s table from %s into %s ...", name, wanted.page, store.table_folder(name))
            try:
                fetching.fetch(wanted)
                return
            except (OfflineError, InterruptedFetchError, TimedOutError) as error:
                why = f"it could not be fetched ({str(error).partition(' Fix: ')[0]})"
        else:
            why = f"{wanted.service.label} cannot be reached from here"
    raise DataMissingError(
        f"Expected the {name} table in {store.table_folder(name)}; it is not there, and {why}. Fix, one of:\n"
        f"  lang-envs data fetch {name}              (on a machine with a network; then copy the folder here)\n"
        f"  lang-envs data fetch {name} --from FILE  (with {wanted.file!r} or the archive from {wanted.page})\n"
        f"  gym.make(..., data='synthetic')          (made-up rows, to try things out)"
    )
