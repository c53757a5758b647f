"""Credit assignment: token-level generalised advantage estimation, pure functions on numpy arrays.

Notation (docs/algorithms/poad.md): decision step t has action tokens j = 1..n_t; `values[t, j]` is the value of the
prefix *before* token j, so `values[t, 1]` is the state value. Arrays are `[steps, envs]` or `[steps, envs, tokens]`;
entries beyond an action's length are padding, take no part in anything and may hold NaN.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["next_action_values", "next_state_values", "token_gae"]

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]


def next_state_values(state_values: Floats, last_values: Floats, episode_ends: Bools, final_values: Floats) -> Floats:
    """Value of what follows each decision, as the last token bootstraps from it.

    Args:
        state_values: V of each observation, `[steps, envs]`.
        last_values: V of the observation after the last step, `[envs]`.
        episode_ends: Whether the episode ended at this step, for any reason, `[steps, envs]`.
        final_values: Where it ended: 0 after termination, V of the true final observation after truncation
            (a time limit is not a terminal state); ignored elsewhere. `[steps, envs]`.

    Returns:
        `[steps, envs]`.
    """
    following = np.concatenate([state_values[1:], last_values[None]])
    return np.where(episode_ends, final_values, following)


def next_action_values(
    values: Floats, lengths: NDArray[np.integer], last_values: Floats, episode_ends: Bools, final_values: Floats
) -> Floats:
    """The same as ARCHER bootstraps: value before the *last token* of the next action, V[t+1, n_{t+1}].

    After the last step and after a truncation there is no next action; there it is the state value, as in
    `next_state_values`.

    Args:
        values: Value before each token, `[steps, envs, tokens]`.
        lengths: Tokens of each action, `[steps, envs]`.
        last_values: As in `next_state_values`.
        episode_ends: As in `next_state_values`.
        final_values: As in `next_state_values`.

    Returns:
        `[steps, envs]`.
    """
    utterance = np.take_along_axis(values, (lengths - 1)[..., None], axis=-1)[..., 0]
    return next_state_values(utterance, last_values, episode_ends, final_values)


def token_gae(
    rewards: Floats,
    values: Floats,
    lengths: NDArray[np.integer],
    next_values: Floats,
    episode_ends: Bools,
    *,
    gamma: float | Floats,
    gae_lambda: float,
    gamma_token: float,
    gae_lambda_token: float,
) -> Floats:
    """Advantages of every action token under the Bellman backup with Action Decomposition (BAD) and its relatives.

    delta[t, j]   = gamma_token V[t, j+1] - V[t, j]                      inside an action, j < n_t
    delta[t, n_t] = r_t + gamma V_next[t] - V[t, n_t]                    at its last token
    A[t, j]       = delta[t, j] + gamma_token lambda_token A[t, j+1]     inside an action
    A[t, n_t]     = delta[t, n_t] + gamma lambda (1 - end_t) A[t+1, 1]   across actions

    With `gamma_token = 1` this is BAD (POAD, arXiv 2405.15821 eq. 13-14); with `gamma_token = gamma`, naive
    token-level credit (NTPO), and with `next_action_values` as well, ARCHER. With actions of one token, or with
    `gamma_token = gae_lambda_token = 1`, A[t, 1] is action-level GAE.

    Args:
        rewards: Reward of the whole action, `[steps, envs]`.
        values: Value before each token, `[steps, envs, tokens]`.
        lengths: Tokens of each action, at least 1, `[steps, envs]`.
        next_values: Value after the action (`next_state_values` or `next_action_values`), `[steps, envs]`.
        episode_ends: Whether the episode ended at this step, `[steps, envs]`.
        gamma: Discount between actions; `[steps, envs]` where they take different times.
        gae_lambda: GAE lambda between actions.
        gamma_token: Discount inside an action.
        gae_lambda_token: GAE lambda inside an action.

    Returns:
        Advantages `[steps, envs, tokens]`, 0 in the padding. `advantages + values` are the returns.

    Raises:
        ValueError: If an action has no token, or shapes do not fit.
    """
    n_tokens = _checked_tokens(rewards, values, lengths)
    position = np.arange(n_tokens)
    real = position < lengths[..., None]
    last = position == lengths[..., None] - 1
    decay = gamma_token * gae_lambda_token
    discounts = np.broadcast_to(np.asarray(gamma, dtype=np.float64), rewards.shape)

    clean = np.where(real, values, 0.0)
    following = np.concatenate([clean[..., 1:], np.zeros_like(clean[..., :1])], axis=-1)
    target = np.where(last, (rewards + discounts * next_values)[..., None], gamma_token * following)
    within = np.where(real, target - clean, 0.0)
    for j in range(n_tokens - 2, -1, -1):  # discounted sum of the deltas up to the end of the same action
        within[..., j] += decay * within[..., j + 1]

    # What flows back from the next action enters at the last token and decays on its way to the first.
    carried = np.zeros_like(rewards)
    first = np.zeros_like(rewards[0])
    for t in range(len(rewards) - 1, -1, -1):
        carried[t] = discounts[t] * gae_lambda * np.where(episode_ends[t], 0.0, first)
        first = within[t, :, 0] + decay ** (lengths[t] - 1) * carried[t]
    distance = np.where(real, lengths[..., None] - 1 - position, 0)
    advantages: Floats = np.where(real, within + decay**distance * carried[..., None], 0.0)
    return advantages


def _checked_tokens(rewards: Floats, values: Floats, lengths: NDArray[np.integer]) -> int:
    if values.ndim != 3 or rewards.shape != values.shape[:2] or lengths.shape != rewards.shape:
        raise ValueError(
            "Expected values [steps, envs, tokens] with rewards and lengths [steps, envs]; got "
            f"{values.shape}, {rewards.shape} and {lengths.shape}. Fix: pad the tokens of each action."
        )
    n_tokens = int(values.shape[2])
    if lengths.size and (lengths.min() < 1 or lengths.max() > n_tokens):
        raise ValueError(
            f"Expected every action to have 1 to {n_tokens} tokens; got {lengths.min()} to {lengths.max()}. "
            "Fix: append the end-of-action token, so that no action is empty."
        )
    return n_tokens
