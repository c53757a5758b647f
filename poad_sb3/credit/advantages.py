"""Credit assignment: token-level generalised advantage estimation, pure functions on numpy arrays.

Notation (docs/algorithms/poad.md): step t has action tokens j = 1..n_t; `values[t, j]` is the value of the
prefix *before* token j, so `values[t, 1]` is the state value. Arrays are `[steps, envs]` or `[steps, envs, tokens]`;
entries beyond an action's length are padding, take no part in anything and may hold NaN.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["bilevel_gae", "next_action_values", "next_state_values", "token_gae"]

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


def token_gae(
    rewards: Floats,
    values: Floats,
    lengths: NDArray[np.integer],
    next_values: Floats,
    episode_ends: Bools,
    *,
    gamma: float | Floats,
    gae_lambda: float,
    gamma_token: float | Floats,
    gae_lambda_token: float | Floats,
    decisions: Bools | None = None,
) -> Floats:
    """Compute the advantage of every action token under Bellman backup with Action Decomposition (BAD) and variants.

    delta[t, j]   = gamma_token V[t, j+1] - V[t, j]                      inside an action, j < n_t
    delta[t, n_t] = r_t + gamma V_next[t] - V[t, n_t]                    at its last token
    A[t, j]       = delta[t, j] + gamma_token lambda_token A[t, j+1]     inside an action
    A[t, n_t]     = delta[t, n_t] + gamma lambda (1 - end_t) A[t+1, 1]   across actions

    With `gamma_token = 1` this is BAD (POAD, arXiv 2405.15821 eq. 13-14); with `gamma_token = gamma`, naive
    token-level credit (NTPO), and with `next_action_values` as well, ARCHER. With actions of one token, or with
    `gamma_token = gae_lambda_token = 1`, A[t, 1] is action-level GAE.

    A token without an alternative changes nothing: j+1 above is the next decision, the values before forced tokens
    are not read, and the trace does not decay at them. (The first token always counts, since the action before
    bootstraps from its value; if it is forced, the trace does not decay there.)

    Args:
        rewards: Reward of the whole action, `[steps, envs]`.
        values: Value before each token, `[steps, envs, tokens]`.
        lengths: Number of tokens of each action, at least 1, `[steps, envs]`.
        next_values: Value after the action (`next_state_values` or `next_action_values`), `[steps, envs]`.
        episode_ends: Whether the episode ended at this step, `[steps, envs]`.
        gamma: Discount between actions; an array `[steps, envs]` if actions take different times.
        gae_lambda: GAE lambda between actions.
        gamma_token: Discount inside an action, from a token to the next; an array `[steps, envs, tokens]` if it differs
            between tokens (thoughts).
        gae_lambda_token: GAE lambda at each decision inside an action but the last; an array, as `gamma_token`.
        decisions: Whether a token had alternatives, `[steps, envs, tokens]`; None where all had.

    Returns:
        Advantages `[steps, envs, tokens]`, 0 in the padding. `advantages + values` are the returns; a forced token has
        that of the next decision.

    Raises:
        ValueError: If an action has no token, or shapes do not fit.
    """
    _check_tokens(rewards, values, lengths)
    advantages = np.zeros(values.shape)
    across = np.where(episode_ends, 0.0, gae_lambda)
    across[-1:] = 0.0  # the value after the rollout is unknown
    of_actions = [
        column.T.tolist() for column in (lengths, rewards, np.broadcast_to(gamma, rewards.shape), next_values, across)
    ]
    gammas, lambdas = (np.broadcast_to(inside, values.shape) for inside in (gamma_token, gae_lambda_token))
    for env, columns in enumerate(zip(*of_actions, strict=True)):
        of_next_action = 0.0
        for step, (n, reward, discount, next_value, decay) in reversed([*enumerate(zip(*columns, strict=True))]):
            tokens, credits = values[step, env, :n].tolist(), [0.0] * n
            next_advantage, is_last_decision = of_next_action, True
            decided = [True] * n if decisions is None else decisions[step, env, :n].tolist()
            gamma_of, lambda_of = (inside[step, env, :n].tolist() for inside in (gammas, lambdas))
            for j in reversed(range(n)):
                if not is_last_decision:
                    decay = lambda_of[j] if decided[j] else 1.0
                advantage = reward + discount * next_value - tokens[j] + discount * decay * next_advantage
                credits[j] = advantage
                gamma_before = gamma_of[j - 1]  # from the token before to this one; not used at the first
                if decided[j]:
                    reward, discount, next_value, next_advantage = 0.0, gamma_before, tokens[j], advantage
                    is_last_decision = False
                else:
                    reward, discount = gamma_before * reward, gamma_before * discount
            advantages[step, env, :n], of_next_action = credits, credits[0]
    return advantages


def bilevel_gae(
    rewards: Floats,
    values: Floats,
    lengths: NDArray[np.integer],
    next_values: Floats,
    episode_ends: Bools,
    *,
    gamma: float | Floats,
    gae_lambda: float,
    gamma_token: float | Floats,
    gae_lambda_token: float | Floats,
    decisions: Bools | None = None,
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
        gamma_token: Discount inside an action, as in `token_gae`.
        gae_lambda_token: GAE lambda at each decision inside an action but the last, as in `token_gae`.
        decisions: Whether a token had alternatives, as in `token_gae`.
        anchor: Baseline b[t] of an action: the value before its first token, V[t, 1], or before its last, V[t, n_t]
            (VAGEN's form; its advantages hold the noise of the next action).

    Returns:
        Advantages `[steps, envs, tokens]`, 0 in the padding.

    Raises:
        ValueError: If the anchor is unknown, an action has no token, or shapes do not fit.
    """
    _check_tokens(rewards, values, lengths)
    if anchor not in ("first", "last"):
        raise ValueError(f"Expected anchor to be 'first' or 'last'; got {anchor!r}.")
    position = np.zeros_like(lengths) if anchor == "first" else lengths - 1
    anchors = np.take_along_axis(values, position[..., None], axis=-1)
    of_actions = token_gae(
        rewards,
        anchors,
        np.ones_like(lengths),
        next_values,
        episode_ends,
        gamma=gamma,
        gae_lambda=gae_lambda,
        gamma_token=1.0,
        gae_lambda_token=1.0,
    )
    # Each action is then a sequence of its own that ends in the return of the action.
    returns, over = (of_actions + anchors)[..., 0], np.ones_like(episode_ends, dtype=bool)
    nothing = np.zeros_like(returns)
    return token_gae(
        returns,
        values,
        lengths,
        nothing,
        over,
        gamma=1.0,
        gae_lambda=0.0,
        gamma_token=gamma_token,
        gae_lambda_token=gae_lambda_token,
        decisions=decisions,
    )


def _check_tokens(rewards: Floats, values: Floats, lengths: NDArray[np.integer]) -> None:
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
