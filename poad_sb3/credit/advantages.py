"""Credit assignment: token-level generalised advantage estimation, pure functions on numpy arrays.

Notation (docs/algorithms/poad.md): step t has action tokens j = 1..n_t; `values[t, j]` is the value of the
prefix *before* token j, so `values[t, 1]` is the state value. Arrays are `[steps, envs]` or `[steps, envs, tokens]`;
entries beyond an action's length are padding, take no part in anything and may hold NaN.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["bilevel_gae", "gae", "next_action_values", "next_state_values", "token_gae"]

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]


def next_state_values(state_values: Floats, last_values: Floats, episode_ends: Bools, final_values: Floats) -> Floats:
    """Compute the value after each action, used as the bootstrap of its last token.

    Args:
        state_values: Value V of each observation, `[steps, envs]`.
        last_values: Value of the observation after the last step, `[envs]`.
        episode_ends: Whether the episode ended at this step, for any reason, `[steps, envs]`.
        final_values: Value at the end of an episode: 0 after termination, V of the true final observation after
            truncation (a time limit is not a terminal state); ignored where no episode ends. `[steps, envs]`.

    Returns:
        Next values, `[steps, envs]`.
    """
    following = np.concatenate([state_values[1:], last_values[None]])
    return np.where(episode_ends, final_values, following)


def next_action_values(
    values: Floats, lengths: NDArray[np.integer], last_values: Floats, episode_ends: Bools, final_values: Floats
) -> Floats:
    """Compute ARCHER's bootstrap values: before the *last token* of the next action, V[t+1, n_{t+1}].

    After the last step and after a truncation there is no next action; there it is the state value, as in
    `next_state_values`.

    Args:
        values: Value before each token, `[steps, envs, tokens]`.
        lengths: Number of tokens of each action, `[steps, envs]`.
        last_values: Value of the observation after the last step, as in `next_state_values`.
        episode_ends: Ends of episodes, as in `next_state_values`.
        final_values: Values at the ends, as in `next_state_values`.

    Returns:
        Next values, `[steps, envs]`.
    """
    utterance = np.take_along_axis(values, (lengths - 1)[..., None], axis=-1)[..., 0]
    return next_state_values(utterance, last_values, episode_ends, final_values)


def gae(rewards: Floats, values: Floats, next_values: Floats, discounts: Floats, lambdas: Floats) -> Floats:
    """Compute generalized advantage estimates backwards over a sequence, with a discount and a lambda of each entry.

    A[k] = delta[k] + discount[k] lambda[k] A[k+1],   delta[k] = r[k] + discount[k] V'[k] - V[k]

    Episode ends are encoded in the arguments: a terminal entry has V' = 0, and `lambda = 0` ends the recursion, so
    sequences may be laid end to end. The next value V' is an argument because it need not be V[k+1]: not after a
    truncation, and not in ARCHER.

    Args:
        rewards: Rewards r, `[n]`.
        values: Values V, `[n]`.
        next_values: Next values V', `[n]`.
        discounts: Discount of each entry, `[n]`.
        lambdas: Lambda of each entry, `[n]`.

    Returns:
        Advantages, `[n]`, float64.
    """
    deltas = (rewards + discounts * next_values - values).tolist()
    decays = (discounts * lambdas).tolist()
    running, advantages = 0.0, np.empty(len(deltas))
    for k in range(len(deltas) - 1, -1, -1):
        advantages[k] = running = deltas[k] + decays[k] * running
    return advantages


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
    """Compute the advantage of every action token under Bellman backup with Action Decomposition (BAD) and variants.

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
        lengths: Number of tokens of each action, at least 1, `[steps, envs]`.
        next_values: Value after the action (`next_state_values` or `next_action_values`), `[steps, envs]`.
        episode_ends: Whether the episode ended at this step, `[steps, envs]`.
        gamma: Discount between actions; an array `[steps, envs]` if actions take different times.
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

    # Inputs of `gae`: at the last token of an action, and at the tokens before it.
    following = np.concatenate([values[..., 1:], np.zeros_like(values[..., :1])], axis=-1)
    across = np.where(episode_ends, 0.0, gae_lambda)
    across[-1:] = 0.0  # the value after the rollout is unknown
    filled = (
        np.where(last, rewards[..., None], 0.0),
        values,
        np.where(last, next_values[..., None], following),
        np.where(last, np.broadcast_to(gamma, rewards.shape)[..., None], gamma_token),
        np.where(last, across[..., None], gae_lambda_token),
    )
    # One sequence: environment by environment, their steps in order, and of each step its tokens.
    by_env = np.swapaxes(real, 0, 1)
    flat = gae(*(np.swapaxes(entries, 0, 1)[by_env] for entries in filled))
    advantages = np.zeros(by_env.shape)
    advantages[by_env] = flat
    return np.swapaxes(advantages, 0, 1)


def bilevel_gae(
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
    anchor: Literal["first", "last"] = "first",
) -> Floats:
    """Compute the advantage of every action token by GAE over actions, continued inside each action by GAE over tokens.

    U[t]      = r_t + gamma V_next[t] - b[t] + gamma lambda (1 - end_t) U[t+1]       over actions
    A[t, n_t] = U[t] + b[t] - V[t, n_t]                                              at the last token
    A[t, j]   = gamma_token V[t, j+1] - V[t, j] + gamma_token lambda_token A[t, j+1] inside an action

    Unlike in `token_gae`, the trace between actions passes through no tokens: `gae_lambda` counts actions,
    however long their actions. The two are equal with `gamma_token = gae_lambda_token = 1`, with `gae_lambda = 0` and
    with actions of one token.

    Args:
        rewards: Reward of the whole action, `[steps, envs]`.
        values: Value before each token, `[steps, envs, tokens]`.
        lengths: Number of tokens of each action, at least 1, `[steps, envs]`.
        next_values: Value after the action, `[steps, envs]`: `next_state_values` for the first anchor,
            `next_action_values` for the last.
        episode_ends: Whether the episode ended at this step, `[steps, envs]`.
        gamma: Discount between actions; an array `[steps, envs]` if actions take different times.
        gae_lambda: GAE lambda between actions.
        gamma_token: Discount inside an action.
        gae_lambda_token: GAE lambda inside an action.
        anchor: Baseline b[t] of an action: the value before its first token, V[t, 1], or before its last, V[t, n_t]
            (VAGEN's form; its advantages hold the noise of the next action).

    Returns:
        Advantages `[steps, envs, tokens]`, 0 in the padding.

    Raises:
        ValueError: If the anchor is unknown, an action has no token, or shapes do not fit.
    """
    _checked_tokens(rewards, values, lengths)
    if anchor not in ("first", "last"):
        raise ValueError(f"Expected anchor to be 'first' or 'last'; got {anchor!r}.")
    position = np.zeros_like(lengths) if anchor == "first" else lengths - 1
    anchors = np.take_along_axis(values, position[..., None], axis=-1)
    inside = {"gamma_token": gamma_token, "gae_lambda_token": gae_lambda_token}
    decisions = token_gae(
        rewards, anchors, np.ones_like(lengths), next_values, episode_ends, gamma=gamma, gae_lambda=gae_lambda, **inside
    )
    # Each action is then a sequence of its own that ends in the return of the action.
    returns, over = (decisions + anchors)[..., 0], np.ones_like(episode_ends, dtype=bool)
    return token_gae(returns, values, lengths, np.zeros_like(returns), over, gamma=1.0, gae_lambda=0.0, **inside)


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
