"""The statistics of the mismatch against closed forms, and each bound of the gate on both sides."""

from __future__ import annotations

import numpy as np
import pytest

from poad_sb3.credit.mismatch import MARGIN, CleanMismatch, Mismatch, gate, measure_mismatch

CLEAN = CleanMismatch(std=0.01, response_std=0.002, largest=0.06)


def test_statistics_of_two_responses() -> None:
    mismatch = measure_mismatch([-1.0, -2.0, -3.0], [-1.1, -2.0, -2.7], [2, 0, 1])
    assert mismatch == pytest.approx(
        Mismatch(
            n_responses=2,
            n_tokens=3,
            mean=-0.2 / 3,
            std=np.std([0.1, 0.0, -0.3]),
            response_std=np.std([0.05, -0.3]),
            largest=0.3,
            ratio_error=np.exp(0.3) - 1,
        )
    )


@pytest.mark.parametrize("lengths", [[3], [1], []])
def test_tokens_must_be_the_same(lengths: list[int]) -> None:
    with pytest.raises(ValueError, match=r"as many sampled as scored .* Fix: keep the sampled ids"):
        measure_mismatch([-1.0, -1.0, -1.0], [-1.0, -1.0], lengths)


def test_the_mean_of_a_cut_support_is_its_lost_mass_at_every_token() -> None:
    probabilities = np.array([0.4, 0.3, 0.2, 0.1])
    kept = probabilities[:2]
    drawn = np.random.default_rng(0).choice(2, 1000, p=kept / kept.sum())
    mismatch = measure_mismatch(np.log(kept / kept.sum())[drawn], np.log(probabilities)[drawn], [1000])
    assert mismatch.mean == pytest.approx(-np.log(0.7))
    assert mismatch.std == pytest.approx(0, abs=1e-12)


def test_bounds_in_closed_form() -> None:
    bounds = CLEAN.bounds(n_responses=4, n_tokens=100)
    assert bounds["largest"] == pytest.approx(MARGIN * 0.06)
    assert bounds["mean"] == pytest.approx(MARGIN * 4 * np.sqrt(0.01**2 / 100 + 0.002**2 / 4))
    assert bounds["std"] == pytest.approx(np.sqrt((MARGIN * 0.01) ** 2 + (MARGIN * 0.06) ** 2 / 100))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("name", ["std", "mean", "largest"])
def test_a_batch_beyond_one_bound_is_refused(name: str, sign: int) -> None:
    bound = CLEAN.bounds(64, 2048)[name]
    usual = Mismatch(64, 2048, mean=0.0, std=0.01, response_std=0.002, largest=0.06, ratio_error=0.06)
    at = {name: 0.999 * bound * (sign if name == "mean" else 1)}
    assert gate(usual._replace(**at), CLEAN) == ""
    assert gate(usual._replace(**{name: 1.5 * at[name]}), CLEAN)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_log_probabilities_that_are_no_numbers_are_refused(value: float) -> None:
    with np.errstate(all="ignore"):
        assert gate(measure_mismatch([-1.0, value], [-1.0, -1.0], [2]), CLEAN)


def test_the_clean_mismatch_is_never_below_that_of_other_kernels() -> None:
    exact = CleanMismatch.of(measure_mismatch([-1.0, -2.0], [-1.0, -2.0], [2]))
    assert exact == CleanMismatch(std=1e-3, response_std=0.0, largest=6e-3)
    measured = Mismatch(64, 2048, mean=0.0, std=0.01, response_std=0.003, largest=0.09, ratio_error=0.09)
    assert CleanMismatch.of(measured) == CleanMismatch(0.01, 0.003, 0.09)
