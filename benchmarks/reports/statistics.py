"""Statistics of few runs: interquartile mean, stratified bootstrap, probability of improvement, learning curves.

After Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice", NeurIPS 2021. A *score* is
the result of one seed on one task (the mean of its episodes); the scores of a task are a stratum. Resampling draws
seeds with replacement within every task, never across tasks, so that easy and hard tasks stay apart.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]
Strata = Sequence[Floats]
"""Scores by task: an array `[n_seeds]` for each; the numbers of seeds may differ."""
Statistic = Callable[[Floats], Floats]
"""From scores `[..., n]` to `[...]`."""

LEVEL, RESAMPLES = 0.95, 5_000
_SEED = 0
_MOST_DIVISIONS = 20_000
"""Of scores into two groups; where there are more, as many are drawn."""


class Estimate(NamedTuple):
    """A number and its interval.

    Attributes:
        value: Of the scores as they are.
        low: Lower end; None without resampling, because every task has one seed. Likewise:
        high: Upper end.
    """

    value: float
    low: float | None
    high: float | None


def mean(scores: Floats) -> Floats:
    """Mean of all scores, `[..., n]` to `[...]`."""
    average: Floats = scores.mean(axis=-1)
    return average


def interquartile_mean(scores: Floats) -> Floats:
    """Mean of the middle half: of n scores the floor(n / 4) smallest and as many of the largest are left out.

    Args:
        scores: `[..., n]`.

    Returns:
        `[...]`; with fewer than 4 scores the mean.
    """
    return np.asarray(stats.trim_mean(scores, 0.25, axis=-1), dtype=np.float64)


def estimate(strata: Strata, statistic: Statistic = interquartile_mean) -> Estimate:
    """Return a statistic of all scores together, with its percentile interval under the stratified bootstrap.

    Args:
        strata: Scores by task.
        statistic: Statistic of the samples.

    Raises:
        ValueError: If there are no scores.
    """
    _check(strata)
    value = float(statistic(np.concatenate(strata)))
    rng = np.random.default_rng(_SEED)
    resampled = np.concatenate([scores[_draws(len(scores), rng)] for scores in strata], axis=-1)
    return _with_interval(value, statistic(resampled), strata)


def probability_of_improvement(first: Strata, second: Strata) -> Estimate:
    """Probability that a seed of the first does better than one of the second, averaged over tasks; ties count half.

    Args:
        first: Scores by task.
        second: Of the other, on the same tasks in the same order.

    Raises:
        ValueError: If there are no scores, or the tasks differ in number.
    """
    _check(first)
    _check(second)
    if len(first) != len(second):
        raise ValueError(f"Expected scores on the same tasks; got {len(first)} and {len(second)} tasks.")
    rng = np.random.default_rng(_SEED)
    value, drawn = 0.0, np.zeros(RESAMPLES)
    for x, y in zip(first, second, strict=True):
        wins = _wins(x, y)
        value += float(wins.mean()) / len(first)
        # How often a pair is drawn is the product of how often its two seeds are: no array of all pairs of all draws.
        times_x, times_y = _counts(_draws(len(x), rng)), _counts(_draws(len(y), rng))
        drawn += ((times_x @ wins) * times_y).sum(axis=1) / (wins.size * len(first))
    return _with_interval(value, drawn, [*first, *second])


def rank_test(first: Floats, second: Floats) -> float:
    """How probable it is that seeds of one distribution differ at least as much in ranks as these two groups do.

    The exact two-sided permutation test of Mann and Whitney's U, ties included: of all ways to divide the scores into
    groups of these sizes, the share whose probability of improvement is as far from a half. Three seeds against three
    cannot come below 0.1, four against four below 0.029.

    Args:
        first: Scores, `[a]`.
        second: Scores, `[b]`.
    """
    both = np.concatenate([first, second])
    wins = _wins(both, both)
    n, n_first = len(both), len(first)
    if math.comb(n, n_first) > _MOST_DIVISIONS:
        chosen = np.random.default_rng(_SEED).permuted(np.tile(np.arange(n), (_MOST_DIVISIONS, 1)), axis=1)[:, :n_first]
    else:
        chosen = np.array(list(itertools.combinations(range(n), n_first)))
    member = np.zeros((len(chosen), n))
    np.put_along_axis(member, chosen, 1.0, axis=1)
    apart = np.abs(((member @ wins) * (1 - member)).sum(axis=1) / (n_first * (n - n_first)) - 0.5)
    here = abs(float(_wins(first, second).mean()) - 0.5)
    return float((apart >= here - 1e-9).mean())


def _wins(x: Floats, y: Floats) -> Floats:
    """1 where x > y, 0.5 where equal, `[a]` and `[b]` to `[a, b]`; the mean is Mann and Whitney's U, scaled to 1."""
    wins: Floats = (x[:, None] > y) + 0.5 * (x[:, None] == y)
    return wins


def _draws(n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Places of the seeds that are drawn, `[RESAMPLES, n]`."""
    return rng.integers(n, size=(RESAMPLES, n))


def _counts(draws: NDArray[np.int64]) -> Floats:
    """How often each of n seeds is drawn, `[RESAMPLES, n]` to the same."""
    n_draws, n = draws.shape
    flat = np.bincount((draws + n * np.arange(n_draws)[:, None]).ravel(), minlength=n_draws * n)
    return flat.reshape(n_draws, n).astype(np.float64)


def percentile_interval(value: float, drawn: Floats) -> Estimate:
    """Return a value with the percentile interval of its bootstrap replicates."""
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(drawn, (tail, 1 - tail))
    return Estimate(value, float(low), float(high))


def _with_interval(value: float, drawn: Floats, strata: Strata) -> Estimate:
    return Estimate(value, None, None) if max(map(len, strata)) < 2 else percentile_interval(value, drawn)


def _check(strata: Strata) -> None:
    if not len(strata) or not all(np.ndim(scores) == 1 and len(scores) for scores in strata):
        shapes = [np.shape(scores) for scores in strata]
        raise ValueError(f"Expected at least one score for every task, as arrays [n_seeds]; got shapes {shapes}.")


# ---------------------------------------------------------------------- learning curves


class Curve(NamedTuple):
    """A learning curve over seeds.

    Attributes:
        steps: Where it is known, `[n]`, rising.
        values: The statistic there, `[n]`.
        low: Lower ends of the intervals, `[n]`; equal to the values where there is one seed. Likewise:
        high: Upper ends, `[n]`.
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
        evaluations: By seed, pairs of step and score with rising steps. Seeds that were evaluated at other steps than
            the first are read between their own; the curve ends where the shortest does.
        statistic: Over seeds.

    Raises:
        ValueError: If a seed has no evaluations, or its steps do not rise.
    """
    points = {seed: np.array(pairs, dtype=np.float64) for seed, pairs in evaluations.items()}
    if not points or any(one.ndim != 2 or (np.diff(one[:, 0]) <= 0).any() for one in points.values()):
        raise ValueError(
            f"Expected for every seed pairs of (step, score), with rising steps; got {dict(evaluations)!r:.200}. "
            "Fix: sort them, and leave out repeated steps."
        )
    begin, end = max(one[0, 0] for one in points.values()), min(one[-1, 0] for one in points.values())
    steps = next(iter(points.values()))[:, 0]
    steps = steps[(steps >= begin) & (steps <= end)]
    if not len(steps):
        raise ValueError("Expected seeds whose evaluations overlap; got none that do. Fix: evaluate at the same steps.")
    by_seed = np.array([np.interp(steps, one[:, 0], one[:, 1]) for one in points.values()])
    found = [estimate([column], statistic) for column in by_seed.T]
    low, high = (
        np.array([one.value if end is None else end for one, end in zip(found, ends, strict=True)])
        for ends in zip(*((one.low, one.high) for one in found), strict=True)
    )
    return Curve(steps, np.array([one.value for one in found]), low, high, by_seed)
