"""Tables that are made up, in place of tables that are not here.

Only whole numbers decide, drawn by a generator whose stream is frozen, so a stand-in is the same to the bit everywhere.
"""

from __future__ import annotations

from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from lang_envs.datasets import Dataset
from lang_envs.datasets.manifest import Column, Manifest

_SEED_DIGITS = 8  # hexadecimal: 32 bits
_STEPS = 1_000  # parts of the range of numbers that are not whole
_SCALE = 1_024  # largest contribution of a column to the rule, for each unit of its weight
_MAX_WEIGHT = 3
_NOISE = 5, 2  # a fraction, of the interquartile range of the sum over features


def stand_in(manifest: Manifest) -> Dataset:
    """Return a made-up table in the shape of one that is not here.

    Rows, features, their kinds and ranges, and the number of classes are those of the manifest. The features are
    independent of each other and evenly spread; the classes are equally frequent, and follow a noisy linear rule, so
    that code can earn something. It has no real row: scores on it do not carry over to the real table.

    Args:
        manifest: Manifest of the table to stand in for.

    Returns:
        The same table at every call and on every machine; marked as `synthetic`.
    """
    seed = int(sha256(f"stand-in: {manifest.name}".encode()).hexdigest()[:_SEED_DIGITS], 16)
    rng, n = np.random.RandomState(seed), manifest.arrays[0]
    columns = manifest.features
    x = np.empty((n, len(columns)))
    signal = np.zeros(n, np.int64)
    for number, column in enumerate(columns):
        n_values = _n_values(column, n)
        places = _draw(rng, n_values, n)
        x[:, number] = _values(column, places)
        weight = (1 + int(_draw(rng, _MAX_WEIGHT, 1)[0])) * (-1) ** number
        signal += weight * (_SCALE * places // max(n_values - 1, 1))
    about = f"In the real table, {manifest.about[:1].lower()}{manifest.about[1:]}"
    source = f"made up by a seeded generator, in the shape of {manifest.service.label} {manifest.id}"
    return Dataset(
        name=manifest.name,
        title=f"a synthetic stand-in for {manifest.title}",
        about=about,
        x=x,
        y=_classes(rng, signal, len(manifest.classes)),
        published=False,
        source=source,
        synthetic=True,
    )


def _draw(rng: np.random.RandomState, n_values: int, n: int) -> NDArray[np.int64]:
    """Draw integers 0 .. n_values - 1, shape (n,), alike on machines whose integers differ."""
    return (rng.random_sample(n) * n_values).astype(np.int64)


def _n_values(column: Column, n: int) -> int:
    """Return the number of values that a column of n rows may take."""
    if column.levels:
        return min(column.levels, n)
    return int(column.high - column.low) + 1 if column.whole else _STEPS + 1


def _values(column: Column, places: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the values at places in a column's order, from its lowest on."""
    if column.levels or column.whole:
        return places.astype(np.float64) + (0 if column.levels else column.low)
    values = column.low + (column.high - column.low) * (places.astype(np.float64) / _STEPS)
    return np.clip(np.round(values, 2), column.low, column.high)


def _classes(rng: np.random.RandomState, signal: NDArray[np.int64], n_classes: int) -> NDArray[np.int64]:
    """Return classes (n,), equally frequent, in the order of signal and noise; ties in the order of the rows."""
    n = len(signal)
    ordered = np.sort(signal)
    spread = int(ordered[3 * n // 4] - ordered[n // 4])
    noise = _draw(rng, _NOISE[0] * spread // _NOISE[1] + 1, n)
    ranks = np.empty(n, np.int64)
    ranks[np.argsort(signal + noise, kind="stable")] = np.arange(n)
    return ranks * n_classes // n
