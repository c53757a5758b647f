"""The tables of DataSciCoding: what each is about, where it comes from, and its rows.

A table is added by adding a row to `DATASETS`. Nothing is read, generated or imported before `load` asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lang_envs.datascicoding.datasets import balance_scale, bundled

__all__ = ["DATASETS", "Dataset", "DatasetRow", "load"]

Table = tuple[NDArray[np.float64], NDArray[np.int64]]
_DIGEST_DIGITS = 16


class DatasetRow(NamedTuple):
    """A table that can be loaded.

    Attributes:
        title: A short noun phrase: "the balance scale table".
        about: What the rows are and what is to be predicted. No column is named or described: the agent reads it.
        source: Where the rows come from.
        published: Whether its splits are those of the paper, which are then never redrawn.
        read: Features (n, d) and classes (n,).
    """

    title: str
    about: str
    source: str
    published: bool
    read: Callable[[], Table]


@dataclass(frozen=True, eq=False)
class Dataset:
    """A table with a class for every row. Two are equal if their rows are, whatever they are called.

    Attributes:
        name: As in `DATASETS`.
        title: A short noun phrase: "the balance scale table".
        about: What the rows are and what is to be predicted; names and describes no column.
        x: Features, float64 (n, d), finite, read-only.
        y: Classes 0 .. k-1, int64 (n,), every one of them present, read-only.
        published: Whether its splits are those of the paper.
        source: Where the rows come from.
        classes: k, at least 2.
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
    classes: int = field(init=False)
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        x = np.array(self.x, dtype=np.float64, order="C")  # a copy: nobody else can write to it
        y = np.array(self.y, dtype=np.int64)
        _check(self.name, x, y)
        x.flags.writeable = y.flags.writeable = False
        content = x.astype("<f8").tobytes() + y.astype("<i8").tobytes()
        digest = sha256(content).hexdigest()[:_DIGEST_DIGITS]
        for attribute, value in (("x", x), ("y", y), ("classes", int(y.max()) + 1), ("digest", digest)):
            object.__setattr__(self, attribute, value)

    def __eq__(self, other: object) -> bool:
        return self.digest == other.digest if isinstance(other, Dataset) else NotImplemented

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


_BALANCE_SOURCE = "OpenML 11 (balance-scale), generated from its definition"
_BALANCE_ABOUT = (
    "Every row is a beam with a load on each arm. "
    "To be predicted is whether it tips to the left, stays level or tips to the right."
)

DATASETS: dict[str, DatasetRow] = {
    "balance-scale": DatasetRow(
        title="the balance scale table",
        about=_BALANCE_ABOUT,
        source=f"{_BALANCE_SOURCE}; the 125 rows that the paper's pipeline draws",
        published=True,
        read=balance_scale.read_published,
    ),
    "balance-scale-full": DatasetRow(
        title="the complete balance scale table",
        about=_BALANCE_ABOUT,
        source=f"{_BALANCE_SOURCE}; all 625 rows",
        published=False,
        read=balance_scale.read_full,
    ),
    "wine": DatasetRow(
        title="the wine table",
        about="Every row is the chemical analysis of a wine. To be predicted is which of three growers made it.",
        source="scikit-learn, load_wine",
        published=False,
        read=bundled.read_wine,
    ),
    "iris": DatasetRow(
        title="the iris table",
        about="Every row is an iris flower that somebody measured. To be predicted is its species, one of three.",
        source="scikit-learn, load_iris",
        published=False,
        read=bundled.read_iris,
    ),
    "breast-cancer": DatasetRow(
        title="the breast cancer table",
        about="Every row is a tumour, summed up from an image of its cells. To be predicted is whether it is benign.",
        source="scikit-learn, load_breast_cancer",
        published=False,
        read=bundled.read_breast_cancer,
    ),
    "digits": DatasetRow(
        title="the handwritten digits table",
        about="Every row is a small grey picture of a handwritten digit. To be predicted is which of the ten it is.",
        source="scikit-learn, load_digits",
        published=False,
        read=bundled.read_digits,
    ),
}
"""Every table by its name."""


@cache
def load(name: str) -> Dataset:
    """A table by its name; read once in a process.

    Raises:
        ValueError: If there is no table of that name.
        MissingExtraError: If it comes with a package that is not installed.
    """
    row = DATASETS.get(name)
    if row is None:
        raise ValueError(f"Expected one of {', '.join(DATASETS)}; got {name!r}. Fix: choose one of them.")
    x, y = row.read()
    return Dataset(name, row.title, row.about, x, y, published=row.published, source=row.source)
