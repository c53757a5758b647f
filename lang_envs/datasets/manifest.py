"""Manifests of the tables that have to be fetched: one TOML file in `manifests/` for each.

A manifest holds the origin of a table, its licence as far as known, the layout of its file, the preprocessing that
makes arrays of it, and the digests of both. A digest not yet computed is left out; the first fetch records it,
and the table counts as unverified.
"""

from __future__ import annotations

import tomllib
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

__all__ = ["MANIFEST_NAMES", "Column", "Encoding", "Manifest", "Recipe", "RowChoice", "Service", "manifest"]

MANIFEST_NAMES = ("airlines", "breast-w", "health-insurance", "pharyngitis", "spaceship-titanic")
"""Tables of the paper that have to be fetched; the sixth, balance-scale, is generated."""


class Service(StrEnum):
    """Service that a table is fetched from."""

    OPENML = "openml"
    KAGGLE_DATASET = "kaggle-dataset"
    KAGGLE_COMPETITION = "kaggle-competition"

    @property
    def label(self) -> str:
        """Name of the service, as people write it."""
        return "OpenML" if self is Service.OPENML else "Kaggle"


class Encoding(StrEnum):
    """How values become numbers."""

    KINDS = "kinds"
    """Numbers stay; the categories of a column are numbered in their natural order ("9" before "10")."""
    RANKS = "ranks"
    """Every column, numbers too, becomes ranks among its distinct values, texts in code point order; as published."""


class Column(NamedTuple):
    """A column of a file, in its order.

    Attributes:
        name: Name of the column in the source.
        levels: Approximate number of categories; 0 for a column of numbers.
        low: Smallest number, approximately.
        high: Largest number, approximately.
        whole: Whether all numbers are integers.
    """

    name: str
    levels: int = 0
    low: float = 0.0
    high: float = 1.0
    whole: bool = False


class RowChoice(NamedTuple):
    """Selection of the rows of a file; one of the three, or every complete row.

    Attributes:
        first: Number of complete rows to take from the beginning of the file.
        sample: Number of complete rows to draw without replacement by `seed`; in the order of the file.
        seed: Seed of NumPy's `RandomState`, whose stream is frozen.
        at: Positions of the rows in the file, in this order.
    """

    first: int | None = None
    sample: int | None = None
    seed: int = 0
    at: tuple[int, ...] = ()


class Recipe(NamedTuple):
    """How arrays are made of a file.

    Attributes:
        encoding: Encoding of values as numbers.
        digest: `Dataset.digest` of the arrays; empty while unknown.
        verified_by: Evidence for the digest, in words.
    """

    encoding: Encoding
    digest: str
    verified_by: str


class Manifest(NamedTuple):
    """A table that has to be fetched.

    Attributes:
        name: Key of the table in `DATASETS`.
        title: Short noun phrase: "the airlines table".
        about: Description of the rows and of the target; names and describes no column.
        service: Service that the table is fetched from.
        id: OpenML's number, Kaggle's "owner/name", or the name of a Kaggle competition.
        page: Web page about the table, for reading and for downloading by hand.
        file: Name of the file; for OpenML, of the file that a browser downloads.
        licence: Licence of the table, as far as known.
        target: Column to be predicted.
        drop: Columns to leave out beside the target.
        shape: Numbers of rows and columns of the file.
        sha256: SHA-256 of the file, hexadecimal, whole or its first digits; empty while unknown.
        columns: Every column of the file, in its order, the target among them.
        classes: Values of the target, in the order of the classes.
        rows: Selection of rows.
        arrays: Shape (n, d) of the features.
        recipes: Recipes for arrays by name: "default", and "published" where it can be reproduced.
        note: Caveat for readers of scores; empty if there is none.
    """

    name: str
    title: str
    about: str
    service: Service
    id: str
    page: str
    file: str
    licence: str
    target: str
    drop: tuple[str, ...]
    shape: tuple[int, int]
    sha256: str
    columns: tuple[Column, ...]
    classes: tuple[str, ...]
    rows: RowChoice
    arrays: tuple[int, int]
    recipes: dict[str, Recipe]
    note: str

    @property
    def origin(self) -> str:
        """Service, number or name, and changes, in one line."""
        return f"{self.service.label} {self.id}" + (f"; {self.note}" if self.note else "")

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns of the file."""
        return tuple(column.name for column in self.columns)

    @property
    def features(self) -> tuple[Column, ...]:
        """The columns that become features, in the order of the arrays."""
        return tuple(column for column in self.columns if column.name not in (self.target, *self.drop))


@cache
def manifest(name: str) -> Manifest:
    """Return the manifest of one of `MANIFEST_NAMES`.

    Raises:
        ValueError: If there is no such manifest.
    """
    if name not in MANIFEST_NAMES:
        raise ValueError(f"Expected one of {', '.join(MANIFEST_NAMES)}; got {name!r}. Fix: choose one of them.")
    text = files(__package__).joinpath("manifests", f"{name}.toml").read_text(encoding="utf-8")
    return _parse(name, tomllib.loads(text))


def _parse(name: str, entry: dict[str, Any]) -> Manifest:
    def pair(key: str) -> tuple[int, int]:
        first, second = entry.pop(key)
        return int(first), int(second)

    recipes = {
        key: Recipe(Encoding(recipe["encoding"]), recipe["digest"], recipe["verified_by"])
        for key, recipe in entry.pop("recipes").items()
    }
    rows = entry.pop("rows", {})
    return Manifest(
        name=name,
        service=Service(entry.pop("service")),
        drop=tuple(entry.pop("drop", ())),
        columns=tuple(Column(**column) for column in entry.pop("columns")),
        classes=tuple(entry.pop("classes")),
        rows=RowChoice(**{**rows, "at": tuple(rows.get("at", ()))}),
        shape=pair("shape"),
        arrays=pair("arrays"),
        recipes=recipes,
        **{"note": "", **entry},
    )
