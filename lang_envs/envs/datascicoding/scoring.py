"""The reward: splits of a table, validity of probabilities, and their score.

All of it happens where the labels are, outside the sandbox. scikit-learn is imported when it is first used.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lang_envs.datasets import Dataset
from lang_envs.errors import missing_extra

__all__ = ["SCORERS", "Scorer", "Split", "accuracy", "auc", "balanced_accuracy", "check_probabilities", "splits"]

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.floating[Any]]
Scorer = Callable[[IntArray, FloatArray], float]
"""Function from the classes (n,) and the checked probabilities (n, k) of some rows to a score in [0, 1]."""

_TEST_SHARE = 0.5
_REDRAW_STRIDE = 1000
_MAX_REDRAWS = 1000


class Split(NamedTuple):
    """Positions of the rows to learn from and of those to predict, in the order that code gets them.

    Attributes:
        train: Rows to learn from, int64 (n // 2,).
        test: Rows to predict, int64 (n - n // 2,).
    """

    train: IntArray
    test: IntArray


def splits(dataset: Dataset, random_states: Iterable[int]) -> tuple[Split, ...]:
    """Split a table into random halves, exactly as scikit-learn does.

    The halves are those of `train_test_split(test_size=0.5, random_state=i, shuffle=True)`.

    Halves are not stratified, as published, so a rare class can be missing on one side, without a score. Tables whose
    splits are not published are then halved again, with random states i + 1000, i + 2000, ... modulo 2**32, those
    in use left out, until every class is on both sides.

    Args:
        dataset: Table to split.
        random_states: Random state of each split, 0 .. 2**32 - 1.

    Raises:
        ValueError: If a class is missing on a side of a published split, or after 1000 redraws.
        MissingExtraError: If scikit-learn is not installed.
    """
    states = list(random_states)
    used = set(states)
    return tuple(_split(dataset, random_state, used) for random_state in states)


def _split(dataset: Dataset, random_state: int, used: set[int]) -> Split:
    n_redraws = 0 if dataset.published else _MAX_REDRAWS
    for redraw in range(n_redraws + 1):
        state = (random_state + _REDRAW_STRIDE * redraw) % 2**32
        if redraw and state in used:
            continue
        used.add(state)
        split = _halves(len(dataset.y), state)
        if all(len(np.unique(dataset.y[rows])) == dataset.classes for rows in split):
            return split
    raise ValueError(
        f"Expected every class of {dataset.name!r} in both halves; got a half without one for random_state "
        f"{random_state}{f' and {n_redraws} redraws' if n_redraws else ''}. "
        f"Fix: choose another random_state, or drop classes with very few rows."
    )


def _halves(n_rows: int, random_state: int) -> Split:
    train_test_split = _sklearn("model_selection").train_test_split
    halves = train_test_split(np.arange(n_rows), test_size=_TEST_SHARE, random_state=random_state, shuffle=True)
    return Split(*(rows.astype(np.int64) for rows in halves))


def auc(y: IntArray, probabilities: FloatArray) -> float:
    """Compute the area under the ROC curve, as published.

    It is that of column 1 for two classes, and the mean over ordered pairs for more.

    Args:
        y: Classes (n,), every class present.
        probabilities: Probabilities (n, k) that pass `check_probabilities`.

    Raises:
        ValueError: If a class is missing, so that no curve exists.
        MissingExtraError: If scikit-learn is not installed.
    """
    n_classes = probabilities.shape[1]
    present = np.unique(y)
    if not np.array_equal(present, np.arange(n_classes)):
        raise ValueError(
            f"Expected every class 0 .. {n_classes - 1} among the rows to score; got {present.tolist()}. "
            f"Fix: score halves made by `splits`."
        )
    roc_auc_score = _sklearn("metrics").roc_auc_score
    with np.errstate(all="ignore"):  # differences of the largest numbers overflow; only where they are 0 counts
        probabilities = probabilities.astype(np.float64)
        if n_classes == 2:
            return _unit(roc_auc_score(y, probabilities[:, 1]))
        return _unit(roc_auc_score(y, probabilities, multi_class="ovo", average="macro"))


def accuracy(y: IntArray, probabilities: FloatArray) -> float:
    """Compute the share of rows whose most probable class is right; among equally probable ones the first counts.

    Args:
        y: Classes (n,).
        probabilities: Probabilities (n, k) that pass `check_probabilities`.
    """
    return _unit(np.mean(probabilities.argmax(axis=1) == y))


def balanced_accuracy(y: IntArray, probabilities: FloatArray) -> float:
    """Compute the mean over the present classes of the accuracy on their rows.

    Args:
        y: Classes (n,).
        probabilities: Probabilities (n, k) that pass `check_probabilities`.
    """
    right = probabilities.argmax(axis=1) == y
    return _unit(np.mean([right[y == label].mean() for label in np.unique(y)]))


def _unit(score: Any) -> float:
    """Return a Python float in [0, 1]; means of ones can come out beyond it by rounding."""
    return min(max(float(score), 0.0), 1.0)


SCORERS: dict[str, Scorer] = {"roc_auc": auc, "accuracy": accuracy, "balanced_accuracy": balanced_accuracy}
"""Scorers by name; "roc_auc" is the published one."""


def check_probabilities(array: object, n_rows: int, n_classes: int) -> str | None:
    """Return the fault of predictions in words; None if they can be scored. Never raises.

    For two classes only the order of column 1 counts, so any finite numbers do, as published; beyond that rows have to
    add up to 1 within the tolerance of scikit-learn's `roc_auc_score`.

    Args:
        array: Predictions of any type.
        n_rows: Number of rows to predict.
        n_classes: Number of classes of the table.
    """
    if type(array) is not np.ndarray:  # a subclass could answer for itself
        return f"Expected a numpy array of probabilities; got {type(array).__name__}."
    if array.dtype.kind != "f":
        return f"Expected probabilities as floats; got an array of {array.dtype.name}."
    if array.shape != (n_rows, n_classes):
        return f"Expected probabilities of shape {(n_rows, n_classes)}; got {array.shape}."
    with np.errstate(all="ignore"):
        values = array.astype(np.float64)
        if not np.isfinite(values).all():
            return "Expected finite probabilities; got NaN or infinity."
        if n_classes > 2 and not np.allclose(1, values.sum(axis=1)):
            return "Expected probabilities that add up to 1 in every row; some rows do not."
    return None


def _sklearn(module: str) -> Any:
    try:
        return importlib.import_module(f"sklearn.{module}")
    except ImportError:
        raise missing_extra("datasci", "scikit-learn, which splits and scores") from None
