"""Tables that are drawn from 128 random bits: a new one in every episode, so that no program can hold its labels.

All randomness is a stream of SHAKE-256 over the bits. It is the same on every machine and under every version of numpy,
and it is one-way: neither the features nor the training labels help to find the bits, or the labels of other rows.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lang_envs.datasets import Dataset

NAME = "generated"
"""Value of `dataset` for a new table in every episode."""
KEY_BYTES = 16
"""Length of a key in bytes: 128 bits."""
_MIN_ROWS, _MAX_ROWS, _MIN_FEATURES, _MAX_FEATURES = 200, 600, 4, 12
_RAREST = 8
"""Largest ratio of all rows to those of a class; a table beyond it is drawn again."""

FloatArray = NDArray[np.float64]


class Drawn(NamedTuple):
    """A table, and the truth about it.

    Attributes:
        x: Features (n, d); NaN where a value is missing.
        y: Classes (n,).
        probabilities: Probabilities of the classes (n, k), given all values of a row, the missing ones too.
    """

    x: FloatArray
    y: NDArray[np.int64]
    probabilities: FloatArray


@lru_cache(maxsize=8)
def generated_table(key: bytes) -> Dataset:
    """Return the table of a key of 16 bytes."""
    x, y, _ = draw_table(key)
    share = float(np.isnan(x).mean())
    missing = f"{share:.1%} of the values are missing (NaN)" if share else "No value is missing"
    return Dataset(
        name=NAME,
        title="a generated table",
        about="Every row is drawn by a rule that holds for this table only; some features may be numbered categories. "
        f"{missing}. To be predicted is the class.",
        x=x,
        y=y,
        published=False,
        source="drawn by a generator from 128 random bits, for one episode",
        may_be_missing=True,
    )


def draw_table(key: bytes) -> Drawn:
    """Draw the table of a key: features, a rule with linear, tree-like and interaction parts, and noisy classes.

    Some features are categories with arbitrary numbers, some take no part in the rule. In half of the tables some
    values are missing, completely at random.

    Args:
        key: Key of 16 bytes; equal keys draw equal tables.
    """
    stream = _Stream(key)
    n, width = stream.integer(_MIN_ROWS, _MAX_ROWS), stream.integer(_MIN_FEATURES, _MAX_FEATURES)
    n_classes = stream.integer(2, 3)
    while True:
        drawn = _draw(stream, n, width, n_classes)
        if np.bincount(drawn.y, minlength=n_classes).min() * _RAREST >= n:
            return drawn


class _Stream:
    """Uniform numbers of a key."""

    def __init__(self, key: bytes) -> None:
        self._key, self._n_draws = key, 0

    def uniform(self, *shape: int) -> FloatArray:
        """Draw multiples of 2**-53 in [0, 1)."""
        self._n_draws += 1
        size = int(np.prod(shape))
        data = hashlib.shake_256(self._key + self._n_draws.to_bytes(4, "big")).digest(8 * size)
        numbers = np.frombuffer(data, "<u8").reshape(shape) >> np.uint64(11)
        return numbers.astype(np.float64) * 2.0**-53

    def normal(self, *shape: int) -> FloatArray:
        """Return sums of twelve uniform numbers: variance 1, without functions that differ between machines."""
        return np.asarray(self.uniform(12, *shape).sum(axis=0) - 6.0)

    def integer(self, low: int, high: int) -> int:
        """Return a whole number from `low` to `high`, both included."""
        return low + int(self.uniform(1)[0] * (high - low + 1))


def _draw(stream: _Stream, n: int, width: int, n_classes: int) -> Drawn:
    columns = [_column(stream, n) for _ in range(width)]
    x = np.column_stack([values for values, _ in columns])
    effects = np.column_stack([effect for _, effect in columns])
    relevant = np.argsort(stream.uniform(width))[: stream.integer(3, width)]
    scores = _scores(stream, effects[:, relevant], n_classes)
    noise = 0.15 * stream.uniform(1)[0]
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities = (1 - noise) * exponentials / exponentials.sum(axis=1, keepdims=True) + noise / n_classes
    y = (stream.uniform(n, 1) > probabilities.cumsum(axis=1)[:, :-1]).sum(axis=1)
    x[_missing(stream, n, width)] = np.nan
    return Drawn(x, y, probabilities)


def _column(stream: _Stream, n: int) -> tuple[FloatArray, FloatArray]:
    """Return the values of a feature, and about standardized numbers for the rule."""
    kind = stream.integer(0, 5)
    if kind < 2:
        n_levels = stream.integer(2, 6)
        levels = (stream.uniform(n) * n_levels).astype(np.int64)
        return levels.astype(np.float64), _standardized(stream.normal(n_levels)[levels])
    values = stream.normal(n) if kind < 5 else stream.uniform(n)
    if kind == 4:
        values = values * values * values  # heavy tails
    scale, shift = 10.0 ** stream.integer(0, 2), stream.integer(-5, 5)
    return np.round(values + shift, 3) * scale, _standardized(values)


def _scores(stream: _Stream, effects: FloatArray, n_classes: int) -> FloatArray:
    """Return unnormalized log-probabilities of the classes (n, k): a weighted sum of three kinds of rules."""
    shares = stream.uniform(3) + 0.1
    mixed = np.zeros((len(effects), n_classes))
    for share, part in zip(shares, (_linear, _trees, _interactions), strict=True):
        mixed += share * _standardized(part(stream, effects, n_classes))
    sharpness: float = 2.0 + 3.0 * stream.uniform(1)[0]
    return sharpness * _standardized(mixed)


def _linear(stream: _Stream, effects: FloatArray, n_classes: int) -> FloatArray:
    weights = stream.normal(effects.shape[1], n_classes)
    return np.asarray((effects[:, :, None] * weights).sum(axis=1))


def _trees(stream: _Stream, effects: FloatArray, n_classes: int) -> FloatArray:
    """Return the sum of three trees of depth 3, every level split by one feature at one threshold."""
    total = np.zeros((len(effects), n_classes))
    for _ in range(3):
        leaves = np.zeros(len(effects), np.int64)
        for _ in range(3):
            feature, threshold = stream.integer(0, effects.shape[1] - 1), 1.5 * stream.uniform(1)[0] - 0.75
            leaves = 2 * leaves + (effects[:, feature] > threshold)
        total += stream.normal(8, n_classes)[leaves]
    return total


def _interactions(stream: _Stream, effects: FloatArray, n_classes: int) -> FloatArray:
    """Return a product of two features, and whether two have the same sign (an exclusive or)."""
    order = np.argsort(stream.uniform(effects.shape[1]))
    first, second, third = (effects[:, order[index]] for index in range(3))
    same = np.where((second > 0) == (third > 0), 1.0, -1.0)
    weights = stream.normal(2, n_classes)
    return np.asarray((first * second)[:, None] * weights[0] + same[:, None] * weights[1])


def _missing(stream: _Stream, n: int, width: int) -> NDArray[np.bool_]:
    """Draw the places of missing values (n, d): in half of the tables none, else up to 20 % of some features."""
    share = stream.integer(0, 1) * (0.05 + 0.15 * stream.uniform(1)[0])
    affected = stream.uniform(width) < 0.5
    affected[stream.integer(0, width - 1)] = True
    return np.asarray(affected & (stream.uniform(n, width) < share))


def _standardized(values: FloatArray) -> FloatArray:
    """Shift and scale columns to mean 0 and variance 1; a constant one becomes 0."""
    centred = values - values.mean(axis=0)
    spread = centred.std(axis=0)
    return np.asarray(centred / np.where(spread > 0, spread, 1.0))
