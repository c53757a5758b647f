"""Credit of recorded episodes against a plain recursion."""

from __future__ import annotations

import pytest

from lang_bench.runner.credit import credit_of_episode

REWARDS = [0.0, -0.1, 1.0]
VALUES = [[0.2, 0.3, 0.1], [0.4], [0.5, 0.9]]
GAMMA, LAMBDA = 0.9, 0.8


def _recursion(rewards: list[float], values: list[list[float]], final: float, inside: float) -> list[list[float]]:
    """Token GAE as one writes it down, token after token from the end; lambda is 1 inside actions."""
    following, advantage, found = final, 0.0, []
    for reward, row in zip(reversed(rewards), reversed(values), strict=True):
        advantages = []
        for place in reversed(range(len(row))):
            if place == len(row) - 1:
                advantage = reward + GAMMA * following - row[place] + GAMMA * LAMBDA * advantage
            else:
                advantage = inside * row[place + 1] - row[place] + inside * advantage
            advantages.append(advantage)
        following = row[0]
        found.append(advantages[::-1])
    return found[::-1]


@pytest.mark.parametrize("final", [0.0, 0.7])
def test_advantages_are_those_of_the_recursion(final: float) -> None:
    found = credit_of_episode(REWARDS, VALUES, final, gamma=GAMMA, gae_lambda=LAMBDA)
    whole = _recursion(REWARDS, [row[:1] for row in VALUES], final, 1.0)
    expected = {
        "POAD": _recursion(REWARDS, VALUES, final, 1.0),
        "NTPO": _recursion(REWARDS, VALUES, final, GAMMA),
        "TWOSOME": [row * len(values) for row, values in zip(whole, VALUES, strict=True)],
    }
    assert found.keys() == expected.keys()
    for name, rows in expected.items():
        for got, row in zip(found[name], rows, strict=True):
            assert got == pytest.approx(row), name
