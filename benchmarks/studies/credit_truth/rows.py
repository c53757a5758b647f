"""The estimators that are measured, as settings of the strategies that train."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.exact.gradients import Floats
from poad_sb3.credit.estimators import GAE, BiLevelGAE, EpisodeReturn, Estimator, GiGPOSum, ReturnToGo, Rollout

Integers = NDArray[np.integer]
Truth = Literal["run", "one"]

LAMBDA = 0.95
GROUP_SIZES = (2, 4, 8, 16)


class Row(NamedTuple):
    """An estimator whose mean and variance are computed exactly.

    Attributes:
        name: Name in tables.
        strategy: Estimator that trains.
        gamma_token: Discount inside an action of the values given to it; those of the strategy's own problem.
        from_last_token: Whether these values continue from the last token of the next action (ARCHER).
        per_token: Whether to divide the gradient of each action by its number of tokens.
        whitened: Whether to subtract the mean over all actions (or tokens) and divide by the deviation (infinite
            batch).
        anchor: Value of an action in turn GAE of AgileRL: the one before its first or last token, or the mean of all.
    """

    name: str
    strategy: Estimator
    gamma_token: float = 1.0
    from_last_token: bool = False
    per_token: bool = False
    whitened: bool = False
    anchor: Literal["first", "mean", "last"] = "first"


@dataclass(frozen=True)
class Anchored:
    """Action-level GAE whose value of an action is the one before its last token, or the mean over its tokens.

    As AgileRL's turn mode on padded rows, but with the recursion of the strategy.
    """

    strategy: Estimator
    anchor: str

    @property
    def gamma(self) -> float:
        """Discount between actions."""
        return self.strategy.gamma

    def advantages(self, rollout: Rollout) -> Floats:
        """See `Estimator.advantages`."""
        lengths = rollout.lengths[..., None]
        if self.anchor == "last":
            values = np.take_along_axis(rollout.values, lengths - 1, axis=-1)
        else:
            inside = np.arange(rollout.values.shape[-1]) < lengths
            values = np.where(inside, rollout.values, 0.0).sum(axis=-1, keepdims=True) / lengths
        return np.asarray(self.strategy.advantages(rollout._replace(values=values)), dtype=np.float64)


def critic_rows(gamma: float) -> list[Row]:
    """Return the rows with a critic."""
    rows = [Row("action GAE (TWOSOME, turn-PPO)", GAE(gamma, LAMBDA, credit_level="action"))]
    rows += [Row(f"BAD, lambda_token {lam:g}", GAE(gamma, LAMBDA, 1.0, lam)) for lam in (1.0, 0.95, 0.8, 0.0)]
    rows += [Row("BAD, lambda 1, lambda_token 1", GAE(gamma, 1.0, 1.0, 1.0))]
    rows += [
        Row(f"NTPO, lambda_token {lam:g}", GAE(gamma, LAMBDA, gamma, lam), gamma_token=gamma) for lam in (1.0, 0.95)
    ]
    matched = [(lam, f"BAD, traces of NTPO {lam:g}", GAE(gamma, LAMBDA, 1.0, gamma * lam)) for lam in (1.0, 0.95)]
    rows += [Row(name, strategy) for _, name, strategy in matched]
    rows += [
        Row("ARCHER, gamma_token 1", GAE(gamma, LAMBDA, 1.0, 1.0, bootstrap="action")),
        Row(
            "ARCHER",
            GAE(gamma, LAMBDA, gamma, 1.0, bootstrap="action"),
            gamma_token=gamma,
            from_last_token=True,
        ),
    ]
    rows += [
        Row(f"bi-level GAE, lambda_token {lam:g}", BiLevelGAE(gamma, LAMBDA, 1.0, lam)) for lam in (1.0, 0.95, 0.8)
    ]
    rows += [
        Row("bi-level GAE as published (last anchor)", BiLevelGAE(gamma, LAMBDA, 1.0, LAMBDA, bootstrap="action")),
        Row("turn GAE, anchor mean", GAE(gamma, LAMBDA, credit_level="action"), anchor="mean"),
        Row("turn GAE, anchor last", GAE(gamma, LAMBDA, credit_level="action"), anchor="last"),
        Row("BAD, mean over the action's tokens", GAE(gamma, LAMBDA, 1.0, 1.0), per_token=True),
    ]
    return rows


def critic_free_rows(gamma: float) -> list[Row]:
    """Return the rows without a critic whose moments are exact."""
    of_actions = ReturnToGo(gamma, credit_level="action")
    of_tokens = ReturnToGo(gamma, gamma_token=gamma)
    return [
        Row("return to go", of_actions),
        Row("ReBN, infinite batch", of_actions, whitened=True),
        Row("REINFORCE++, infinite batch", of_tokens, gamma_token=gamma, whitened=True),
    ]


class GroupRow(NamedTuple):
    """An estimator that compares the episodes of a group; sampled.

    Attributes:
        name: Name in tables.
        strategy: Estimator that trains.
        truth: Gradient for the comparison: `"run"`, or `"one"` for estimators of whole episodes.
        per_token: Whether to divide the gradient of each episode by its number of tokens.
        is_unbiased: Whether it is unbiased up to a factor, by its closed form; it is never its own control variate.
    """

    name: str
    strategy: Estimator
    truth: Truth
    per_token: bool = False
    is_unbiased: bool = False


def group_rows(gamma: float) -> list[GroupRow]:
    """Return the rows of groups."""
    episode = EpisodeReturn(gamma, baseline="group")
    step = ReturnToGo(gamma, credit_level="action", baseline="state")
    both = GiGPOSum(gamma, baseline="group")
    return [
        GroupRow("RLOO", replace(episode, leave_one_out=True), "one", is_unbiased=True),
        GroupRow("step leave-one-out", replace(step, baseline="step"), "run", is_unbiased=True),
        GroupRow("anchor leave-one-out", replace(step, leave_one_out=True), "run", is_unbiased=True),
        GroupRow("Dr. GRPO", episode, "one", is_unbiased=True),
        GroupRow("GRPO", replace(episode, advantage_scale="cell"), "one"),
        GroupRow("GRPO, mean over the episode's tokens", replace(episode, advantage_scale="cell"), "one", True),
        GroupRow("GiGPO step part, mean", step, "run"),
        GroupRow("GiGPO step part, mean and deviation", replace(step, advantage_scale="cell"), "run"),
        GroupRow("GiGPO, mean", both, "run"),
        GroupRow("GiGPO, mean and deviation", replace(both, advantage_scale="cell"), "run"),
        GroupRow("ReBN, the group as batch", replace(step, baseline="group", advantage_scale="cell"), "run"),
    ]


CONTROLS: Sequence[tuple[str, Truth | None]] = (("return to go", "run"), ("episode return", "one"), ("score", None))
"""Control variates of sampled rows, and their exact means (None: 0)."""
