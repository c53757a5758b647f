from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from stable_baselines3.common.buffers import RolloutBuffer
from toy import properties

from poad_sb3.credit.advantages import next_state_values, token_gae

BAD = {"gamma_token": 1.0, "gae_lambda_token": 1.0}


class Rollout(NamedTuple):
    rewards: np.ndarray
    values: np.ndarray
    lengths: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    final: np.ndarray
    """V of the observation at the time limit; NaN where there was none."""
    last: np.ndarray

    @property
    def ends(self) -> np.ndarray:
        return self.terminated | self.truncated


def random_rollout(seed: int, *, steps: int = 9, envs: int = 4, tokens: int = 7, padding: float = np.nan) -> Rollout:
    rng = np.random.default_rng(seed)
    shape = (steps, envs)
    lengths = rng.integers(1, tokens + 1, shape)
    values = np.where(np.arange(tokens) < lengths[..., None], rng.normal(size=(*shape, tokens)), padding)
    fate = rng.random(shape)
    truncated = fate > 0.85
    return Rollout(
        rewards=rng.normal(size=shape),
        values=values,
        lengths=lengths,
        terminated=fate < 0.15,
        truncated=truncated,
        final=np.where(truncated, rng.normal(size=shape), np.nan),
        last=rng.normal(size=envs),
    )


def fast(rollout: Rollout, **settings: float) -> np.ndarray:
    """The shipped functions, with 0 for the value of a terminal state and NaN where no final value is defined."""
    final = np.where(rollout.terminated, 0.0, rollout.final)
    following = next_state_values(rollout.values[..., 0], rollout.last, rollout.ends, final)
    return token_gae(rollout.rewards, rollout.values, rollout.lengths, following, rollout.ends, **settings)


def sb3_buffer(rollout: Rollout, *, gamma: float, gae_lambda: float) -> RolloutBuffer:
    """SB3's own action-level GAE on the first-token values, time limits handled as its algorithms do."""
    steps, envs = rollout.rewards.shape
    box, discrete = spaces.Box(-1, 1, (1,)), spaces.Discrete(2)
    buffer = RolloutBuffer(steps, box, discrete, device="cpu", gamma=gamma, gae_lambda=gae_lambda, n_envs=envs)
    starts = np.vstack([np.ones((1, envs), dtype=bool), rollout.ends])
    bonus = np.where(rollout.truncated, gamma * rollout.final, 0.0)
    for t in range(steps):
        buffer.add(
            np.zeros((envs, 1)),
            np.zeros((envs, 1)),
            rollout.rewards[t] + bonus[t],
            starts[t],
            torch.from_numpy(rollout.values[t, :, 0]),
            torch.zeros(envs),
        )
    buffer.compute_returns_and_advantage(torch.from_numpy(rollout.last), rollout.ends[-1])
    return buffer


@properties
@given(seed=st.integers(0, 2**32 - 1), gamma=st.floats(0, 1), gae_lambda=st.floats(0, 1))
def test_bad_leaves_the_action_level_problem_unchanged(seed: int, gamma: float, gae_lambda: float) -> None:
    """Discrepancy theorem as credit: without a discount inside actions their token values telescope away."""
    rollout = random_rollout(seed)
    steps, envs = rollout.rewards.shape
    expected = np.zeros((steps, envs))
    for env in range(envs):
        later = 0.0
        for t in reversed(range(steps)):
            following = rollout.last[env] if t == steps - 1 else rollout.values[t + 1, env, 0]
            if rollout.ends[t, env]:
                following, later = (0.0 if rollout.terminated[t, env] else rollout.final[t, env]), 0.0
            delta = rollout.rewards[t, env] + gamma * following - rollout.values[t, env, 0]
            later = expected[t, env] = delta + gamma * gae_lambda * later
    advantages = fast(rollout, gamma=gamma, gae_lambda=gae_lambda, **BAD)
    np.testing.assert_allclose(advantages[..., 0], expected, rtol=0, atol=1e-6)


@properties
@given(seed=st.integers(0, 2**32 - 1), padding=st.floats(allow_nan=True, allow_infinity=True))
def test_padding_changes_no_advantage(seed: int, padding: float) -> None:
    settings = {"gamma": 0.9, "gae_lambda": 0.95, "gamma_token": 0.8, "gae_lambda_token": 0.7}
    clean, dirty = random_rollout(seed, padding=0.0), random_rollout(seed, padding=padding)
    advantages = fast(dirty, **settings)
    np.testing.assert_array_equal(advantages, fast(clean, **settings))
    assert (advantages[np.arange(7) >= clean.lengths[..., None]] == 0).all()


def test_next_state_values_ignores_final_values_inside_an_episode() -> None:
    ends = np.array([[False], [True], [False]])
    final = np.array([[np.nan], [5.0], [np.nan]])
    following = next_state_values(np.array([[1.0], [2.0], [3.0]]), np.array([4.0]), ends, final)
    np.testing.assert_array_equal(following, [[2.0], [5.0], [4.0]])


def test_inputs_are_not_changed() -> None:
    rollout = random_rollout(seed=4)
    before = [array.copy() for array in rollout]
    fast(rollout, gamma=0.9, gae_lambda=0.9, gamma_token=0.9, gae_lambda_token=0.9)
    for array, old in zip(rollout, before, strict=True):
        np.testing.assert_array_equal(array, old)


@pytest.mark.parametrize("length", [0, 8])
def test_impossible_lengths_are_refused(length: int) -> None:
    rollout = random_rollout(seed=5)
    rollout.lengths[2, 1] = length
    with pytest.raises(ValueError, match=r"Expected every action to have 1 to 7 tokens; got .*end-of-action token"):
        fast(rollout, gamma=1.0, gae_lambda=1.0, **BAD)


@pytest.mark.parametrize("field", ["rewards", "values", "lengths"])
def test_shapes_that_do_not_fit_are_refused(field: str) -> None:
    arrays = {"rewards": np.zeros((3, 2)), "values": np.zeros((3, 2, 4)), "lengths": np.ones((3, 2), dtype=int)}
    arrays[field] = arrays[field][:, 0]
    ends = np.zeros((3, 2), dtype=bool)
    with pytest.raises(ValueError, match=r"Expected values \[steps, envs, tokens\].*Fix: pad"):
        token_gae(**arrays, next_values=np.zeros((3, 2)), episode_ends=ends, gamma=1.0, gae_lambda=1.0, **BAD)
