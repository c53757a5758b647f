"""What looks like a mistake in a table of the user's own: remarks for one warning; nothing is changed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lang_envs.datasets.names import listed, shown

if TYPE_CHECKING:
    import pandas as pd

_MAX_REMARKS = 5  # columns or classes in a remark
_MONEY = r"(?:[$€£¥₹]|EUR|USD|GBP|CHF)"
_PLAIN_NUMBER = re.compile(r"\s*[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?\s*")
_WRITTEN_NUMBER = re.compile(
    rf"\s*[-+]?\s*{_MONEY}?\s*[-+]?(?:\d{{1,3}}(?:[,.' \u00a0\u202f]\d{{3}})+(?:[.,]\d+)?|\d+(?:[.,]\d+)?)"
    rf"\s*(?:%|{_MONEY})?\s*"
)
_GAPS = ("", "?", "-", ".", "*", "na", "nan", "none", "null", "unknown", "missing")
"""Words for a missing value that readers take for text."""
_INDEX_NAMES = ("id", "index")


class Feature(NamedTuple):
    """A column as numbers, and its categories where it has some."""

    values: NDArray[np.float64]
    categories: Sequence[str] = ()
    """What has no order of its own; empty for numbers, times and ordered categories."""


def left_out(frame: pd.DataFrame, kept: pd.DataFrame) -> list[str]:
    """How many rows are left out, and where values are missing."""
    if len(kept) == len(frame):
        return []
    missing = frame.isna().sum(axis=0).to_numpy()
    worst = [int(at) for at in np.argsort(-missing, kind="stable") if missing[at]]
    told = ", ".join(f"{shown(frame.columns[at])}: {missing[at]}" for at in worst[:_MAX_REMARKS])
    more = ", ..." if worst[_MAX_REMARKS:] else ""
    return [f"{len(frame) - len(kept)} left out with missing values ({told}{more})"]


def odd_features(frame: pd.DataFrame, features: Mapping[int, Feature]) -> list[str]:
    """Columns that were hardly meant as they are: numbers as text, constants, names and numbers of rows."""
    names = [str(name) for name in frame.columns]
    written = [(names[at], len(f.categories), _as_written(f.categories)) for at, f in features.items()]
    told = [f"{shown(name)} ({n} categories, such as {shown(text)})" for name, n, text in written if text is not None]
    constant = [names[at] for at, feature in features.items() if np.ptp(feature.values) == 0]
    distinct = [names[at] for at, feature in features.items() if _names_rows(frame.iloc[:, at], feature)]
    more = ", ..." if told[_MAX_REMARKS:] else ""
    found = {
        "numbers written as text": ", ".join(told[:_MAX_REMARKS]) + more,
        "different in every row": listed(distinct),
        "constant": listed(constant),
    }
    return [f"{what}: {columns}" for what, columns in found.items() if columns]


def _as_written(categories: Sequence[str]) -> str | None:
    """The category that makes a column text although most categories look like numbers; None if that is not so."""
    plain = [_PLAIN_NUMBER.fullmatch(text) is not None for text in categories]
    written = [_WRITTEN_NUMBER.fullmatch(text) is not None for text in categories]
    if 2 * sum(p or w for p, w in zip(plain, written, strict=True)) <= len(categories):
        return None
    odd = [text for text, p, w in zip(categories, plain, written, strict=True) if w and not p]
    return next(iter(odd or [text for text in categories if text.strip().casefold() in _GAPS]), None)


def _names_rows(column: pd.Series[Any], feature: Feature) -> bool:
    """Whether a feature tells rows apart and says nothing else: texts that never recur, or the number of the row."""
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


def alike(classes: Sequence[str], y: NDArray[np.int64]) -> list[str]:
    """Classes that differ only by case or spaces around them."""
    groups: dict[str, list[int]] = {}
    for at, label in enumerate(classes):
        groups.setdefault(label.strip().casefold(), []).append(at)
    similar = [at for group in groups.values() if len(group) > 1 for at in group]
    counts = np.bincount(y)
    told = [f"{shown(classes[at])} ({counts[at]})" for at in similar]
    return [f"classes that differ only by case or spaces: {', '.join(told)}"] if told else []
