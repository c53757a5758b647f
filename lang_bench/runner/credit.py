"""Token credit of a recorded episode: each way of assigning credit, applied to the same values and rewards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from poad_sb3.credit.advantages import next_state_values, token_gae

GAMMA, GAE_LAMBDA = 0.95, 0.95
"""Defaults of the algorithms, for each action."""


class CreditRule(NamedTuple):
    """A way to assign credit.

    Attributes:
        gamma_token: Discount inside an action; None for that between actions.
        whole_actions: Whether there is one value before the action and one advantage for all its tokens.
    """

    gamma_token: float | None = 1.0
    whole_actions: bool = False


CREDITS: dict[str, CreditRule] = {
    "POAD": CreditRule(),
    "NTPO": CreditRule(gamma_token=None),
    "TWOSOME": CreditRule(whole_actions=True),
}
"""Rules by the name of the algorithm."""


def credit_of_episode(
    rewards: Sequence[float],
    values: Sequence[Sequence[float]],
    final_value: float = 0.0,
    *,
    gamma: float = GAMMA,
    gae_lambda: float = GAE_LAMBDA,
) -> dict[str, list[list[float]]]:
    """Compute the advantages of all tokens of an episode, by the name of the rule.

    Args:
        rewards: Reward of every action.
        values: Values before each token of every action, at least one.
        final_value: Value of the observation after the last action: 0 where the episode terminated.
        gamma: Discount between actions.
        gae_lambda: GAE lambda between actions; inside actions it is 1.
    """
    advantages_of: dict[str, list[list[float]]] = {}
    for name, rule in CREDITS.items():
        judged = [of_step[:1] if rule.whole_actions else of_step for of_step in values]
        lengths = np.array([[len(of_step)] for of_step in judged])  # [steps, 1]: one environment
        padded = np.zeros((len(judged), 1, int(lengths.max())))
        for row, row_values in zip(padded, judged, strict=True):
            row[0, : len(row_values)] = row_values
        ends = np.arange(len(judged))[:, None] == len(judged) - 1
        final = np.full(1, final_value)
        advantages = token_gae(
            np.array(rewards, dtype=np.float64)[:, None],
            padded,
            lengths,
            next_state_values(padded[..., 0], final, ends, np.broadcast_to(final, ends.shape)),
            ends,
            gamma=gamma,
            gae_lambda=gae_lambda,
            gamma_token=gamma if rule.gamma_token is None else rule.gamma_token,
            gae_lambda_token=1.0,
        )[:, 0].tolist()
        advantages_of[name] = [
            row[:1] * len(of_step) if rule.whole_actions else row[: len(of_step)]
            for row, of_step in zip(advantages, values, strict=True)
        ]
    return advantages_of
