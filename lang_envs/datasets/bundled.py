"""The tables that scikit-learn brings along: no download, no account."""

from __future__ import annotations

import importlib

import numpy as np
from numpy.typing import NDArray

from lang_envs.errors import missing_extra

Table = tuple[NDArray[np.float64], NDArray[np.int64]]


def read_sklearn(loader: str) -> Table:
    """Return features and classes of a table of scikit-learn, by the name of the function that loads it."""
    try:
        datasets = importlib.import_module("sklearn.datasets")
    except ImportError:
        # Without its cause: the message is complete, and gym.make adds enough to it.
        raise missing_extra("datasci", "scikit-learn, which brings this table") from None
    x, y = getattr(datasets, loader)(return_X_y=True)
    return np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.int64)
