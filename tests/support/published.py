"""Recursions of other frameworks as published, for comparison and tests; not offered as settings of a training.

Each docstring names the source and the defect. Read on the dates in `data/golden/README.md` and re-derived from the
formulas. Arrays are numpy's `[batch, positions]` as in `poad_sb3.credit.padded`, one episode a row; unlike there, the
end of a row is always a termination, also at a time limit: none of the sources bootstraps.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from poad_sb3.credit.advantages import Bools, Floats
from poad_sb3.credit.padded import Turns

__all__ = [
    "bilevel_by_rewards",
    "cut_gae",
    "cut_token_returns",
    "stream_gae",
    "turn_gae",
]

Integers = NDArray[np.integer]


class UndefinedAdvantageError(ValueError):
    """A batch for which a published recursion defines no advantages."""


def stream_gae(
    rewards: Floats,
    values: Floats,
    mask: Bools,
    *,
    gamma: float,
    gae_lambda: float,
    observations: Literal["skip", "through", "zeroed"],
) -> Floats:
    """Compute GAE over the tokens of a row, with one discount and one lambda for each.

    * `observations="skip"`: verl (PR #2337) passes over observation tokens. This is NTPO with lambda_token = lambda.
    * `"through"`: SkyRL runs through observation tokens with the critic's values there, although the critic is trained
      on action tokens only. Credit decays by (gamma lambda)^(q + 1) over q observation tokens.
    * `"zeroed"`: OpenRLHF sets values and rewards of observation tokens to 0 first. With exact values and gamma = 1
      the last token of an action misses (1 - lambda^q) V of the next state: biased for lambda < 1.

    Common defect: each reward is discounted by gamma^(tokens in between), so with gamma < 1 they optimise another
    problem, in which long texts cost. They agree at gamma = lambda = 1.

    Args:
        rewards: Rewards, on the last token of each action.
        values: Value before each token, observation tokens included.
        mask: Whether a position holds an action token.
        gamma: Discount of every token.
        gae_lambda: Lambda of every token.
        observations: Treatment of observation tokens, see above.

    Returns:
        Advantages before whitening, 0 outside the mask.
    """
    mask = np.asarray(mask, dtype=bool)
    tokens = mask if observations == "skip" else np.ones_like(mask)
    if observations == "zeroed":
        rewards, values = np.where(mask, rewards, 0.0), np.where(mask, values, 0.0)
    ends = _row_ends(tokens)
    result = np.zeros(mask.shape)
    result[tokens] = _gae(rewards[tokens], values[tokens], ends, gamma, gae_lambda)
    return np.where(mask, result, 0.0)


def cut_token_returns(rewards: Floats, mask: Bools, *, gamma: float) -> Floats:
    """Compute the token returns of verl's REINFORCE++ before its fix (#7278, PR #7280).

    Defect: the running return was multiplied by the mask, so every observation cut it, and only the last action saw
    the outcome of the episode.
    """
    mask = np.asarray(mask, dtype=bool)
    result = np.zeros(mask.shape)
    result[mask] = _gae(rewards[mask], np.zeros(mask.sum()), _run_ends(mask), gamma, 1.0)
    return result


def cut_gae(
    rewards: Floats, values: Floats, mask: Bools, turn_ids: Integers | None = None, *, gamma: float, gae_lambda: float
) -> Floats:
    """Compute AgileRL's token mode: GAE cut at every observation, the reward of an action paid on each of its tokens.

    Defects: no credit reaches an earlier action, and the reward of an action of n tokens counts n times: a myopic
    objective in which long actions are paid more.
    """
    mask = np.asarray(mask, dtype=bool)
    turns = Turns.of(rewards, mask, turn_ids)
    paid = turns.of_actions(turns.rewards)
    result = np.zeros(mask.shape)
    result[mask] = _gae(paid[mask], values[mask], _run_ends(mask), gamma, gae_lambda)
    return result


def turn_gae(
    rewards: Floats,
    values: Floats,
    mask: Bools,
    turn_ids: Integers | None = None,
    *,
    gamma: float,
    gae_lambda: float,
) -> Floats:
    """Compute AgileRL's turn mode: GAE over actions from the value of the last token.

    That is also VAGEN's `no_concat_gae_last`; AgileRL can take the mean of all values too. Defect: a baseline of an
    action may not depend on its own tokens. With an exact critic the value before the last token knows all tokens but
    one, and the expected gradient is 0 on all of them; with the mean over n tokens, token j gets j/n of its gradient.
    `padded.action_gae` is right.
    """
    turns = Turns.of(rewards, mask, turn_ids, values)
    anchors = np.take_along_axis(turns.values, turns.lengths[..., None] - 1, axis=-1)[..., 0]
    flat = _gae(turns.rewards[:, 0], anchors[:, 0], turns.ends[:, 0], gamma, gae_lambda)
    return np.asarray(turns.of_actions(flat))


def bilevel_by_rewards(
    rewards: Floats, values: Floats, mask: Bools, *, gamma: float, gae_lambda: float, gamma_token: float = 1.0
) -> Floats:
    """Compute RAGEN's bi-level GAE, which takes every token with a reward for the end of a turn.

    Defects: an action that pays 0 is no turn (no discount between turns there); one lambda for both levels; the value
    at a turn is that before its last token, which holds the noise of the action. `padded.bilevel` is corrected.

    Args:
        rewards: Rewards, on the last token of each action.
        values: Value before each token.
        mask: Whether a position holds an action token.
        gamma: Discount between turns.
        gae_lambda: Lambda of turns and of tokens.
        gamma_token: Discount between tokens.

    Returns:
        Advantages before whitening, 0 outside the mask.

    Raises:
        UndefinedAdvantageError: If the last action of an episode pays 0, so that its tokens belong to no turn (the
            source ends in an index error).
    """
    mask = np.asarray(mask, dtype=bool)
    row = np.nonzero(mask)[0]
    r, v, last = rewards[mask], values[mask], _row_ends(mask)
    paid = r != 0
    if not paid[last].all():
        unpaid = row[last & ~paid].tolist()
        raise UndefinedAdvantageError(
            f"Expected a reward other than 0 at the last action token of every row; rows {unpaid} end without one, "
            "and RAGEN's bi-level GAE finds turns by their rewards."
        )
    goals = np.zeros_like(v)
    goals[paid] = _gae(r[paid], v[paid], last[paid], gamma, gae_lambda) + v[paid]
    result = np.zeros(mask.shape)
    result[mask] = _gae(goals, v, paid, gamma_token, gae_lambda)
    return result


def _run_ends(mask: Bools) -> Bools:
    """Mark the last token of each run of action tokens among the action tokens."""
    follows = np.zeros_like(mask)
    follows[:, :-1] = mask[:, 1:]
    ends: Bools = ~follows[mask]
    return ends


def _row_ends(tokens: Bools) -> Bools:
    """Mark the last chosen token of each row among the chosen tokens."""
    row = np.nonzero(tokens)[0]
    return np.append(row[1:] != row[:-1], True)[: len(row)]


def _gae(rewards: Floats, values: Floats, ends: Bools, gamma: float, gae_lambda: float) -> Floats:
    """Compute GAE over sequences laid end to end, each of which terminates."""
    advantages, later = np.zeros(len(values)), 0.0
    for k in reversed(range(len(values))):
        following = 0.0 if ends[k] else values[k + 1] + gae_lambda * later
        advantages[k] = later = rewards[k] + gamma * following - values[k]
    return advantages
