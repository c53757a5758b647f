from __future__ import annotations

import numpy as np

from poad_sb3.credit.returns import episode_numbers, episode_returns, returns_to_go, token_returns

ENDS = np.array([[False, True], [True, False], [False, False]])
"""Two environments: episodes of 2 and 1 steps, and of 1 and 2 steps; the last of each is cut by the rollout."""


def test_episodes_are_numbered_environment_by_environment() -> None:
    numbers = episode_numbers(ENDS)
    np.testing.assert_array_equal(numbers, [[0, 2], [0, 3], [1, 3]])
    rewards = np.array([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0]])
    np.testing.assert_array_equal(episode_returns(rewards, numbers), [3.0, 4.0, 10.0, 60.0])


def test_returns_end_with_the_episode_and_take_a_discount_for_each_step() -> None:
    rewards = np.array([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0]])
    np.testing.assert_allclose(returns_to_go(rewards, ENDS, gamma=0.5), [[2, 10], [2, 40], [4, 40]])
    durations = np.array([[1, 1], [1, 2], [1, 1]])
    np.testing.assert_allclose(returns_to_go(rewards, ENDS, gamma=0.5**durations), [[2, 10], [2, 30], [4, 40]])


def test_token_returns_are_discounted_inside_actions_and_0_in_the_padding() -> None:
    rewards, ends = np.array([[1.0], [8.0]]), np.array([[False], [True]])
    lengths = np.array([[1], [3]])
    actual = token_returns(rewards, lengths, ends, gamma=0.5, gamma_token=0.5)
    np.testing.assert_array_equal(actual[:, 0], [[2.0, 0.0, 0.0], [2.0, 4.0, 8.0]])
    undiscounted = token_returns(rewards, lengths, ends, gamma=0.5, gamma_token=1.0)
    np.testing.assert_array_equal(undiscounted[:, 0], [[5.0, 0.0, 0.0], [8.0, 8.0, 8.0]])


def test_no_steps_have_no_returns() -> None:
    empty = np.zeros((0, 2))
    assert returns_to_go(empty, empty.astype(bool), gamma=0.9).shape == (0, 2)
    assert episode_numbers(empty.astype(bool)).shape == (0, 2)
