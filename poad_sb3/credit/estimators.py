"""Estimators of advantages as strategies: each fills the one recursion of `advantages.gae` in its own way.

An estimator defines the units with a value and an advantage (tokens, or whole actions), and computes the advantages of
a rollout. `ESTIMATORS` is the only place that knows them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from poad_sb3.credit.advantages import Bools, Floats, next_action_values, next_state_values, token_gae

__all__ = ["ESTIMATORS", "ActionGAE", "TokenGAE", "UtteranceGAE", "make_estimator"]


@dataclass(frozen=True)
class TokenGAE:
    """Token-level GAE: with `gamma_token = 1` the Bellman backup with Action Decomposition (POAD), else NTPO.

    Attributes:
        gamma: Discount between actions.
        gae_lambda: GAE lambda between actions.
        gamma_token: Discount inside an action.
        gae_lambda_token: GAE lambda inside an action.
    """

    gamma: float
    gae_lambda: float
    gamma_token: float = 1.0
    gae_lambda_token: float = 1.0

    whole_actions: ClassVar[bool] = False
    """Whether a unit of credit is a whole action: one value, one advantage and one ratio for all of its tokens."""
    ignores: ClassVar[tuple[str, ...]] = ()
    """Arguments of an algorithm that have no effect."""

    def n_units(self, n_tokens: int) -> int:
        """Return the number of units of an action of `n_tokens`."""
        return n_tokens

    def unit_log_probs(self, log_probs: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the log-probability of each unit, given those of the tokens."""
        return log_probs

    def is_decision(self, n_tokens: int, decisions: list[int]) -> NDArray[np.bool_]:
        """Return the mask of units that are decisions, given the positions of the decision tokens."""
        chosen = np.zeros(n_tokens, dtype=bool)
        chosen[decisions] = True
        return chosen

    def advantages(
        self,
        rewards: Floats,
        values: Floats,
        lengths: NDArray[np.integer],
        episode_ends: Bools,
        last_values: Floats,
        final_values: Floats,
        durations: Floats,
    ) -> Floats:
        """Compute the advantage of every unit of a rollout.

        Args:
            rewards: Reward of each action, `[steps, envs]`.
            values: Value before each unit, `[steps, envs, units]`.
            lengths: Units of each action, `[steps, envs]`.
            episode_ends: Whether the episode ended at this step, for any reason, `[steps, envs]`.
            last_values: Value of the observation after the last step, `[envs]`.
            final_values: Value of the true final observation where a time limit cut an episode, 0 elsewhere,
                `[steps, envs]`.
            durations: Time that each action took, in units of `gamma`, `[steps, envs]`.

        Returns:
            `[steps, envs, units]`, 0 in the padding; `advantages + values` are the returns.
        """
        return token_gae(
            rewards,
            values,
            lengths,
            self.next_values(values, lengths, last_values, episode_ends, final_values),
            episode_ends,
            gamma=self.gamma**durations,
            gae_lambda=self.gae_lambda,
            gamma_token=self.gamma_token,
            gae_lambda_token=self.gae_lambda_token,
        )

    def next_values(
        self,
        values: Floats,
        lengths: NDArray[np.integer],
        last_values: Floats,
        episode_ends: Bools,
        final_values: Floats,
    ) -> Floats:
        """Return the bootstrap value of the last token of each action, `[steps, envs]`."""
        return next_state_values(values[..., 0], last_values, episode_ends, final_values)


class UtteranceGAE(TokenGAE):
    """ARCHER: the last token of an action bootstraps from the value before the last token of the next action."""

    def next_values(
        self,
        values: Floats,
        lengths: NDArray[np.integer],
        last_values: Floats,
        episode_ends: Bools,
        final_values: Floats,
    ) -> Floats:
        """See `TokenGAE.next_values`."""
        return next_action_values(values, lengths, last_values, episode_ends, final_values)


class ActionGAE(TokenGAE):
    """TWOSOME: GAE of whole actions, as ordinary PPO has it."""

    whole_actions = True
    ignores = ("gamma_token", "gae_lambda_token", "bootstrap")

    def n_units(self, n_tokens: int) -> int:
        """See `TokenGAE.n_units`."""
        return 1

    def unit_log_probs(self, log_probs: NDArray[np.float32]) -> NDArray[np.float32]:
        """See `TokenGAE.unit_log_probs`."""
        return np.array([log_probs.sum()], dtype=np.float32)

    def is_decision(self, n_tokens: int, decisions: list[int]) -> NDArray[np.bool_]:
        """See `TokenGAE.is_decision`."""
        return np.array([bool(decisions)])


ESTIMATORS: dict[tuple[str, str], type[TokenGAE]] = {
    ("token", "state"): TokenGAE,
    ("token", "action"): UtteranceGAE,
    ("action", "state"): ActionGAE,
    ("action", "action"): ActionGAE,
}
"""Estimators by `credit_level` (unit of values, advantages and ratios) and `bootstrap` (of an action's last token)."""


def make_estimator(
    credit_level: str, bootstrap: str, *, gamma: float, gae_lambda: float, gamma_token: float, gae_lambda_token: float
) -> TokenGAE:
    """Make the estimator of `credit_level` and `bootstrap`.

    Raises:
        ValueError: If there is none.
    """
    for place, (name, value) in enumerate((("credit_level", credit_level), ("bootstrap", bootstrap))):
        known = list(dict.fromkeys(key[place] for key in ESTIMATORS))
        if value not in known:
            raise ValueError(f"Expected {name} to be one of {known}; got {value!r}.")
    return ESTIMATORS[credit_level, bootstrap](gamma, gae_lambda, gamma_token, gae_lambda_token)
