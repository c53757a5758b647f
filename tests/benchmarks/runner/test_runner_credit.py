"""Credit of recorded episodes against a plain recursion, and its picture."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.reports.credit_picture import Rollout, RolloutStep, credit_picture, shade
from benchmarks.runner.credit import credit_of_episode

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


# ---------------------------------------------------------------------- pictures


def _rollout(n_steps: int = 2, observation: str = "A <b>kitchen</b>.") -> Rollout:
    columns = ("POAD", "NTPO", "TWOSOME")
    step = RolloutStep(
        observation, [" chop", "\n", "</s>"], 0.5, [-0.7, 0.0, 0.0], {name: [0.1, 0.2, 0.3] for name in columns},
        {"POAD": [0.5, -1.0, 0.0], "NTPO": [0.25, 0.0, 0.0], "TWOSOME": [0.5, 0.5, 0.5]},
    )  # fmt: skip
    return Rollout("me & you, Kitchen, seed 0", columns, [step] * n_steps)


def test_the_picture_has_the_colours_of_its_tokens_and_grows_with_the_actions() -> None:
    small, large = credit_picture(_rollout(1)), credit_picture(_rollout(3))
    assert large.width == small.width
    assert large.height > small.height
    colours = {tuple(one) for one in np.asarray(small).reshape(-1, 3)}
    assert {shade(value, 1.0) for value in (0.5, -1.0, 0.0, 0.25)} <= colours


def test_of_a_long_episode_the_end_is_drawn() -> None:
    assert credit_picture(_rollout(50), most_steps=3).height == credit_picture(_rollout(3)).height
