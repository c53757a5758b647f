"""Statistics against closed forms and brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from lang_bench.reports.rank_tests import difference, holm, probability_of_improvement, rank_test
from lang_envs.report.statistics import estimate, interquartile_mean, learning_curve, mean, wilson_interval


def _arrays(*rows: list[float]) -> list[np.ndarray]:
    return [np.array(row, dtype=float) for row in rows]


@pytest.mark.parametrize("n", [1, 3, 4, 11])
def test_the_interquartile_mean_leaves_out_a_quarter_at_either_end(n: int) -> None:
    scores = np.random.default_rng(n).normal(size=n)
    kept = sorted(scores)[n // 4 : n - n // 4]
    assert interquartile_mean(scores) == pytest.approx(sum(kept) / len(kept))


@pytest.mark.parametrize(("n_successes", "n"), [(0, 1), (5, 5), (40, 100)])
def test_the_interval_of_a_rate_is_that_of_scipy(n_successes: int, n: int) -> None:
    expected = stats.binomtest(n_successes, n).proportion_ci(method="wilson")
    assert wilson_interval(n_successes, n) == pytest.approx(tuple(expected), abs=1e-12)


def test_resampling_stays_within_tasks() -> None:
    """Two tasks without any spread: pooled resampling would mix 0 and 1, the stratified one cannot."""
    found = estimate(_arrays([0, 0, 0], [1, 1, 1]), mean)
    assert found == (0.5, 0.5, 0.5)


def test_the_bootstrap_of_three_seeds_is_that_of_all_resamples() -> None:
    scores = np.array([0.0, 1.0, 4.0])
    every = [np.mean(drawn) for drawn in itertools.product(scores, repeat=3)]
    found = estimate([scores], mean)
    low, high = np.quantile(every, (0.025, 0.975), method="inverted_cdf")
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


def test_one_seed_has_no_interval_and_the_same_call_the_same_one() -> None:
    assert estimate(_arrays([3.0], [5.0])) == (4.0, None, None)
    scores = _arrays([0.1, 0.5, 0.2, 0.9])
    assert estimate(scores) == estimate(scores)


def test_the_probability_of_improvement_is_that_of_mann_and_whitney() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(0.5, 1, 7).round(1), rng.normal(0, 1, 5).round(1)
    brute = np.mean([(a > b) + 0.5 * (a == b) for a in x for b in y])
    found = probability_of_improvement([x], [y])
    assert found.value == pytest.approx(brute)
    assert found.value == pytest.approx(stats.mannwhitneyu(x, y).statistic / (len(x) * len(y)))
    assert found.low < found.value < found.high
    assert probability_of_improvement([y], [x]).value == pytest.approx(1 - brute)


def test_tasks_count_alike_in_the_probability_of_improvement_and_ties_half() -> None:
    found = probability_of_improvement(_arrays([1, 1, 1, 1], [5]), _arrays([0, 0], [5]))
    assert found.value == 0.75


@pytest.mark.parametrize("strata", [[], [np.array([])]])
def test_without_scores_there_is_no_estimate(strata: list[np.ndarray]) -> None:
    with pytest.raises(ValueError, match="at least one score for every task"):
        estimate(strata)


# ---------------------------------------------------------------------- learning curves


def test_a_curve_is_the_statistic_at_every_step() -> None:
    evaluations = {seed: [(step, float(seed * step)) for step in (0, 10, 20)] for seed in range(4)}
    curve = learning_curve(evaluations, mean)
    assert list(curve.steps) == [0, 10, 20]
    assert list(curve.values) == [0, 15, 30]
    assert (curve.low <= curve.values).all()
    assert (curve.high >= curve.values).all()
    assert curve.low[0] == curve.high[0] == 0
    assert curve.by_seed.shape == (4, 3)


def test_seeds_evaluated_elsewhere_are_read_between_their_steps_and_the_shortest_ends_the_curve() -> None:
    curve = learning_curve({0: [(0, 0.0), (10, 1.0), (20, 2.0)], 1: [(5, 0.0), (15, 10.0)]}, mean)
    assert list(curve.steps) == [10]
    assert list(curve.values) == [3.0]


@pytest.mark.parametrize("pairs", [[], [(1, 0.0), (1, 1.0)]])
def test_steps_that_do_not_rise_are_refused(pairs: list[tuple[float, float]]) -> None:
    with pytest.raises(ValueError, match="rising steps"):
        learning_curve({0: pairs})


# ---------------------------------------------------------------------- may it be chance?


@pytest.mark.parametrize("sizes", [(2, 5), (5, 5)])
def test_without_ties_the_rank_test_is_that_of_scipy(sizes: tuple[int, int]) -> None:
    first, second = (np.random.default_rng(sum(sizes)).normal(size=n) for n in sizes)
    found = stats.mannwhitneyu(first, second + 0.8, method="exact").pvalue
    assert rank_test(first, second + 0.8) == pytest.approx(found)
    assert rank_test(second + 0.8, first) == pytest.approx(found)


def test_three_seeds_against_three_cannot_settle_anything() -> None:
    assert rank_test(np.arange(3.0), np.arange(3.0) + 10) == pytest.approx(0.1)


def test_many_divisions_are_sampled() -> None:
    first, second = (np.random.default_rng(n).normal(size=12) for n in (1, 2))
    found = stats.permutation_test((first, second + 0.3), lambda x, y: (x[:, None] > y).mean() - 0.5, rng=0).pvalue
    assert rank_test(first, second + 0.3) == pytest.approx(found, abs=0.02)


def test_holm_multiplies_by_the_number_of_hypotheses_left() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []
    assert holm([0.01, 0.04], planned=4) == pytest.approx([0.04, 0.12])


def test_the_difference_of_means_has_an_interval_around_it() -> None:
    first, second = np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0])
    found = difference(first, second)
    assert found.value == pytest.approx(1.5)
    assert found.low < 1.5 < found.high
    assert difference(np.array([1.0]), np.array([0.5])) == (0.5, None, None)


def test_drawn_divisions_give_no_p_of_0() -> None:
    first, second = np.arange(12.0), np.arange(12.0) + 100
    assert rank_test(first, second) == pytest.approx(1 / 200_001)
