"""Comparisons of two agents over few seeds: probability of improvement, and the exact rank test.

Means, intervals and learning curves are in `lang_envs.report.statistics`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lang_envs.report.statistics import (
    RESAMPLES,
    SEED,
    Estimate,
    Floats,
    Strata,
    draws,
    require_scores,
    with_interval,
)

SETTLED = 0.05
"""Significance level: a difference that equal agents show more rarely is more than chance."""
_MAX_DIVISIONS = 200_000
"""Maximum number of divisions of scores into two groups; if there are more, as many are drawn."""
_CHUNK_SIZE = 10_000
"""Number of divisions that are drawn, or evaluated, together."""


def probability_of_improvement(first: Strata, second: Strata) -> Estimate:
    """Estimate the probability that a seed of the first does better than one of the second, averaged over tasks.

    Ties count half.

    Args:
        first: Scores by task.
        second: Scores of the other, on the same tasks in the same order.

    Raises:
        ValueError: If there are no scores, or the tasks differ in number.
    """
    require_scores(first)
    require_scores(second)
    if len(first) != len(second):
        raise ValueError(f"Expected scores on the same tasks; got {len(first)} and {len(second)} tasks.")
    rng = np.random.default_rng(SEED)
    value, drawn = 0.0, np.zeros(RESAMPLES)
    for x, y in zip(first, second, strict=True):
        wins = _wins(x, y)
        value += float(wins.mean()) / len(first)
        # How often a pair is drawn is the product of how often its two seeds are: no array of all pairs of all draws.
        times_x, times_y = _counts(draws(len(x), rng)), _counts(draws(len(y), rng))
        drawn += ((times_x @ wins) * times_y).sum(axis=1) / (wins.size * len(first))
    return with_interval(value, drawn, [*first, *second])


def rank_test(first: Floats, second: Floats) -> float:
    """Return the probability that two groups of one distribution differ at least as much in ranks as these do.

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
    member, is_drawn = _divisions(n, n_first)
    differences = np.concatenate(
        [
            np.abs(((part @ wins) * (1 - part)).sum(axis=1) / (n_first * (n - n_first)) - 0.5)
            for part in (member[at : at + _CHUNK_SIZE].astype(float) for at in range(0, len(member), _CHUNK_SIZE))
        ]
    )
    observed = abs(float(_wins(first, second).mean()) - 0.5)
    n_apart = int((differences >= observed - 1e-9).sum())
    return (n_apart + is_drawn) / (len(member) + is_drawn)  # of drawn divisions the observed one is another


@lru_cache(maxsize=4)
def _divisions(n: int, n_first: int) -> tuple[NDArray[np.bool_], bool]:
    """Return ways to divide n scores, which are in the first group, `[ways, n]`; and whether these are drawn."""
    if math.comb(n, n_first) <= _MAX_DIVISIONS:
        chosen = np.array(list(itertools.combinations(range(n), n_first)))
        member = np.zeros((len(chosen), n), dtype=bool)
        np.put_along_axis(member, chosen, True, axis=1)
        return member, False
    rng, places = np.random.default_rng(SEED), np.tile(np.arange(n), (_CHUNK_SIZE, 1))
    member = np.zeros((_MAX_DIVISIONS, n), dtype=bool)
    for start in range(0, _MAX_DIVISIONS, _CHUNK_SIZE):
        chosen = rng.permuted(places, axis=1)[:, :n_first]
        np.put_along_axis(member[start : start + _CHUNK_SIZE], chosen, True, axis=1)
    return member, True


def difference(first: Floats, second: Floats) -> Estimate:
    """Return the mean of the first less that of the second, with the percentile interval of a bootstrap of both.

    Args:
        first: Scores, `[a]`.
        second: Scores, `[b]`.
    """
    rng = np.random.default_rng(SEED)
    drawn = first[draws(len(first), rng)].mean(axis=1) - second[draws(len(second), rng)].mean(axis=1)
    return with_interval(float(first.mean() - second.mean()), drawn, [first, second])


def holm(p_values: Sequence[float], planned: int | None = None) -> list[float]:
    """Return p-values corrected for their number by Holm's method, in their order.

    Args:
        p_values: P-values of the tests made.
        planned: Number of all planned tests; those not made count as if theirs were larger. None for these alone.
    """
    n = max(planned or 0, len(p_values))
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (n - rank) * p_values[index]))
        corrected[index] = largest
    return corrected


def _wins(x: Floats, y: Floats) -> Floats:
    """Return 1 where x > y and 0.5 where they are equal, `[a, b]` from `[a]` and `[b]`.

    The mean is Mann and Whitney's U, scaled to 1.
    """
    wins: Floats = (x[:, None] > y) + 0.5 * (x[:, None] == y)
    return wins


def _counts(draws: NDArray[np.int64]) -> Floats:
    """Count how often each of n seeds is drawn, `[RESAMPLES, n]` to the same shape."""
    n_draws, n = draws.shape
    flat = np.bincount((draws + n * np.arange(n_draws)[:, None]).ravel(), minlength=n_draws * n)
    return flat.reshape(n_draws, n).astype(np.float64)
