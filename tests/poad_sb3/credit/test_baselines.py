from __future__ import annotations

import numpy as np
import pytest

from poad_sb3.credit.baselines import centred, whitened

EIGHT = np.array([1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0])
"""Returns of a bandit with three successes in eight, the worked example of the facts."""
ONE_CELL = np.zeros(8, dtype=int)


@pytest.mark.parametrize(
    ("settings", "success", "failure"),
    [({}, 0.625, -0.375), ({"leave_one_out": True}, 5 / 7, -3 / 7), ({"eps": 0.0}, 1.2076, -0.7246)],
)
def test_centred_on_the_bandit(settings: dict[str, float], success: float, failure: float) -> None:
    np.testing.assert_allclose(centred(EIGHT, ONE_CELL, **settings), np.where(EIGHT, success, failure), atol=5e-5)


@pytest.mark.parametrize("settings", [{}, {"eps": 0.0}, {"leave_one_out": True}])
def test_equal_returns_have_no_advantage(settings: dict[str, float]) -> None:
    for value, count in ((0.1, 3), (-1e9, 7), (0.7, 1)):
        advantages = centred(np.array([*[value] * count, 1.0, 2.0]), np.array([5] * count + [6] * 2), **settings)
        assert (advantages[:count] == 0).all()
        assert (advantages[count:] != 0).all()


def test_whitening() -> None:
    values = np.array([1.0, 2.0, 4.0, 9.0])
    np.testing.assert_allclose(whitened(values, 1e-8), (values - 4) / np.sqrt(values.var(ddof=1) + 1e-8))
    for few in ([], [3.0], [0.1] * 3):
        assert (whitened(np.array(few), 1e-8) == 0).all()
