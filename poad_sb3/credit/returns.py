"""Returns without a critic, of episodes, actions and tokens: pure functions on numpy arrays.

Arrays are `[steps, envs]`; episodes follow each other in an environment. A time limit and the end of the arrays end a
return like any other end: without a critic there is no value to bootstrap from.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from poad_sb3.credit.advantages import Bools, Floats, token_gae

__all__ = ["episode_numbers", "episode_returns", "returns_to_go", "token_returns"]

Integers = NDArray[np.integer]


def episode_numbers(episode_ends: Bools) -> NDArray[np.int64]:
    """Return the number of the episode of each step, counted environment by environment in the order of time.

    Args:
        episode_ends: Whether the episode ended at this step, for any reason, `[steps, envs]`.

    Returns:
        Numbers, `[steps, envs]`; 0 to the number of episodes - 1, none twice.
    """
    starts = np.ones_like(episode_ends, dtype=np.int64)
    starts[1:] = episode_ends[:-1]
    return (np.cumsum(starts.T) - 1).reshape(starts.T.shape).T


def episode_returns(rewards: Floats, episodes: Integers) -> Floats:
    """Sum the rewards of each episode, without a discount.

    Args:
        rewards: Rewards, of any shape.
        episodes: Number of the episode of each reward, of the same shape.

    Returns:
        Returns, `[n_episodes]`, float64.
    """
    return np.bincount(episodes.ravel(), weights=np.asarray(rewards, dtype=np.float64).ravel()).astype(np.float64)


def returns_to_go(rewards: Floats, episode_ends: Bools, *, gamma: float | Floats) -> Floats:
    """Compute G[t] = r[t] + gamma G[t+1], ending with the episode.

    Args:
        rewards: Reward of each action, `[steps, envs]`.
        episode_ends: Whether the episode ended at this step, `[steps, envs]`.
        gamma: Discount between actions; an array `[steps, envs]` if actions take different times.

    Returns:
        Returns to go, `[steps, envs]`, float64.
    """
    lengths = np.ones(rewards.shape, dtype=np.int64)
    return token_returns(rewards, lengths, episode_ends, gamma=gamma, gamma_token=1.0)[..., 0]


def token_returns(
    rewards: Floats, lengths: Integers, episode_ends: Bools, *, gamma: float | Floats, gamma_token: float | Floats
) -> Floats:
    """Compute the return of every token: GAE with values of 0 and traces of 1.

    G[t, n_t] = r_t + gamma G[t+1, 1],   G[t, j] = gamma_token G[t, j+1]

    REINFORCE++ (arXiv 2501.03262) discounts once a token: `gamma_token = gamma`.

    Args:
        rewards: Reward of the whole action, `[steps, envs]`.
        lengths: Number of tokens of each action, at least 1, `[steps, envs]`.
        episode_ends: Whether the episode ended at this step, `[steps, envs]`.
        gamma: Discount between actions; an array `[steps, envs]` if actions take different times.
        gamma_token: Discount inside an action, as in `token_gae`.

    Returns:
        Returns, `[steps, envs, tokens]` with as many tokens as the longest action has, 0 in the padding, float64.

    Raises:
        ValueError: If an action has no token, or shapes do not fit.
    """
    values = np.zeros((*rewards.shape, int(lengths.max(initial=1))))
    return token_gae(
        rewards,
        values,
        lengths,
        np.zeros_like(rewards),
        episode_ends,
        gamma=gamma,
        gae_lambda=1.0,
        gamma_token=gamma_token,
        gae_lambda_token=1.0,
    )
