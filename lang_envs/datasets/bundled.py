"""The tables that scikit-learn brings along: no download, no account."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lang_envs.errors import MissingExtraError, install_command

Table = tuple[NDArray[np.float64], NDArray[np.int64]]


def read_wine() -> Table:
    """Features (178, 13), classes (178,) of 0 .. 2."""
    return _read("load_wine")


def read_iris() -> Table:
    """Features (150, 4), classes (150,) of 0 .. 2."""
    return _read("load_iris")


def read_breast_cancer() -> Table:
    """Features (569, 30), classes (569,): 0 malignant, 1 benign."""
    return _read("load_breast_cancer")


def read_digits() -> Table:
    """Features (1797, 64), classes (1797,) of 0 .. 9."""
    return _read("load_digits")


def _read(loader: str) -> Table:
    x, y = getattr(_sklearn_datasets(), loader)(return_X_y=True)
    return np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.int64)


def _sklearn_datasets() -> Any:
    try:
        return importlib.import_module("sklearn.datasets")
    except ImportError:
        raise MissingExtraError(
            f"Expected scikit-learn, which brings this table; it is not installed. Fix: `{install_command('datasci')}`."
        ) from None  # the message says it all, and gym.make adds enough to it
