"""Statistics of few seeds: interquartile mean, stratified bootstrap, learning curves.

After Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice", NeurIPS 2021. A *score* is
the result of one seed on one task (the mean of its episodes); the scores of a task are a stratum. Resampling draws
seeds with replacement within every task, never across tasks, so that easy and hard tasks stay apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "LEVEL",
    "RESAMPLES",
    "SEED",
    "Curve",
    "Estimate",
    "Floats",
    "Strata",
    "draws",
    "estimate",
    "interquartile_mean",
    "learning_curve",
    "mean",
    "percentile_interval",
    "require_scores",
    "wilson_interval",
    "with_interval",
]

Floats = NDArray[np.float64]
Strata = Sequence[Floats]
"""Scores by task: an array `[n_seeds]` for each; the numbers of seeds may differ."""
Statistic = Callable[[Floats], Floats]
"""Function from scores `[..., n]` to `[...]`."""

LEVEL, RESAMPLES = 0.95, 5_000
SEED = 0
"""Seed of the resampling."""


class Estimate(NamedTuple):
    """A number and its interval.

    Attributes:
        value: Statistic of the scores themselves.
        low: Lower end of the interval; None without resampling, because every task has one seed.
        high: Upper end of the interval; None without resampling.
    """

    value: float
    low: float | None
    high: float | None


def wilson_interval(n_successes: int, n: int) -> tuple[float, float]:
    """Return the 95% interval of a probability from a number of successes in `n` trials (Wilson 1927)."""
    z = NormalDist().inv_cdf((1 + LEVEL) / 2)
    rate, shrink = n_successes / n, 1 / (1 + z**2 / n)
    half = z * sqrt(rate * (1 - rate) / n + (z / (2 * n)) ** 2)
    center = rate + z**2 / (2 * n)
    return max(0.0, shrink * (center - half)), min(1.0, shrink * (center + half))


def mean(scores: Floats) -> Floats:
    """Compute the mean of all scores, `[..., n]` to `[...]`."""
    average: Floats = scores.mean(axis=-1)
    return average


def interquartile_mean(scores: Floats) -> Floats:
    """Compute the mean of the middle half of the scores.

    Of n scores the floor(n / 4) smallest and as many of the largest are left out.

    Args:
        scores: Scores, `[..., n]`.

    Returns:
        Interquartile means, `[...]`; with fewer than 4 scores the mean.
    """
    n = scores.shape[-1]
    cut = n // 4
    middle = np.partition(scores, (cut, n - cut - 1), axis=-1)[..., cut : n - cut]
    return np.asarray(middle.mean(axis=-1), dtype=np.float64)


def estimate(strata: Strata, statistic: Statistic = interquartile_mean) -> Estimate:
    """Return a statistic of all scores together, with its percentile interval under the stratified bootstrap.

    Args:
        strata: Scores by task.
        statistic: Statistic of the samples.

    Raises:
        ValueError: If there are no scores.
    """
    require_scores(strata)
    value = float(statistic(np.concatenate(strata)))
    rng = np.random.default_rng(SEED)
    resampled = np.concatenate([scores[draws(len(scores), rng)] for scores in strata], axis=-1)
    return with_interval(value, statistic(resampled), strata)


def draws(n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw the indices of the resampled seeds, `[RESAMPLES, n]`."""
    return rng.integers(n, size=(RESAMPLES, n))


def percentile_interval(value: float, drawn: Floats) -> Estimate:
    """Return a value with the percentile interval of its bootstrap replicates."""
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(drawn, (tail, 1 - tail))
    return Estimate(value, float(low), float(high))


def with_interval(value: float, drawn: Floats, strata: Strata) -> Estimate:
    """Return a value with the interval of its replicates; without one where every task has one seed."""
    return Estimate(value, None, None) if max(map(len, strata)) < 2 else percentile_interval(value, drawn)


def require_scores(strata: Strata) -> None:
    """Refuse strata without scores.

    Raises:
        ValueError: If there are no scores, or they are not arrays of one dimension.
    """
    if not len(strata) or not all(np.ndim(scores) == 1 and len(scores) for scores in strata):
        shapes = [np.shape(scores) for scores in strata]
        raise ValueError(f"Expected at least one score for every task, as arrays [n_seeds]; got shapes {shapes}.")


# ---------------------------------------------------------------------- learning curves


class Curve(NamedTuple):
    """A learning curve over seeds.

    Attributes:
        steps: Environment steps of the points, `[n]`, rising.
        values: Statistic at these steps, `[n]`.
        low: Lower ends of the intervals, `[n]`; equal to the values if there is one seed.
        high: Upper ends of the intervals, `[n]`; equal to the values if there is one seed.
        by_seed: Results of the seeds, `[n_seeds, n]`.
    """

    steps: Floats
    values: Floats
    low: Floats
    high: Floats
    by_seed: Floats


def learning_curve(
    evaluations: Mapping[int, Sequence[tuple[float, float]]], statistic: Statistic = interquartile_mean
) -> Curve:
    """Return the curve of some seeds, with an interval at every step.

    Args:
        evaluations: Pairs of step and score with rising steps, by seed. Seeds that were evaluated at other steps than
            the first are interpolated between their own; the curve ends where the shortest does.
        statistic: Statistic over seeds.

    Raises:
        ValueError: If a seed has no evaluations, or its steps do not rise.
    """
    points = {seed: np.array(pairs, dtype=np.float64) for seed, pairs in evaluations.items()}
    if not points or any(curve.ndim != 2 or (np.diff(curve[:, 0]) <= 0).any() for curve in points.values()):
        raise ValueError(
            f"Expected for every seed pairs of (step, score), with rising steps; got {dict(evaluations)!r:.200}. "
            "Fix: sort them, and leave out repeated steps."
        )
    begin, end = max(curve[0, 0] for curve in points.values()), min(curve[-1, 0] for curve in points.values())
    steps = next(iter(points.values()))[:, 0]
    steps = steps[(steps >= begin) & (steps <= end)]
    if not len(steps):
        raise ValueError("Expected seeds whose evaluations overlap; got none that do. Fix: evaluate at the same steps.")
    by_seed = np.array([np.interp(steps, curve[:, 0], curve[:, 1]) for curve in points.values()])
    estimates = [estimate([column], statistic) for column in by_seed.T]
    low, high = (
        np.array([point.value if end is None else end for point, end in zip(estimates, ends, strict=True)])
        for ends in zip(*((point.low, point.high) for point in estimates), strict=True)
    )
    return Curve(steps, np.array([point.value for point in estimates]), low, high, by_seed)
