"""Estimators of advantages: from the rewards, values and ends of a rollout to an advantage of each token.

`ESTIMATORS` is the only place that knows them all. Their recursions and baselines are the pure functions of
`advantages`, `returns` and `baselines`; docs/algorithms/estimators.md compares them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from poad_sb3.credit.advantages import (
    Bools,
    Floats,
    bilevel_gae,
    next_action_values,
    next_state_values,
    token_gae,
)
from poad_sb3.credit.baselines import centred, state_leave_one_out, step_leave_one_out
from poad_sb3.credit.returns import episode_numbers, episode_returns, returns_to_go, token_returns

__all__ = ["BASELINES", "ESTIMATORS", "GAE", "LEVELS", "SCALES", "BiLevelGAE", "EpisodeReturn", "Estimator", "GiGPOSum"]
__all__ += ["ReturnToGo", "Rollout"]

Integers = NDArray[np.integer]

LEVELS = ("token", "action")
BASELINES = ("none", "batch", "group", "state", "step")
SCALES = ("none", "cell", "batch")
_EPS = {"cell": 1e-6, "batch": 1e-8}
"""Number added to a deviation before the division, as published: GRPO and GiGPO; ReBN and REINFORCE++."""

# Arguments that some estimators do not read; see `Estimator.ignores`.
_OF_THOUGHTS = ("gamma_thought", "gae_lambda_thought", "gae_alpha_thought")
_OF_A_CRITIC = (
    "critic",
    "gae_lambda",
    "gae_lambda_token",
    "gae_lambda_thought",
    "gae_alpha_thought",
    "bootstrap",
    "critic_learning_rate",
    "n_critic_epochs",
    "critic_first",
    "clip_range_vf",
    "vf_coef",
    "normalize_value",
)


class Rollout(NamedTuple):
    """Data of a rollout that advantages are computed from.

    Attributes:
        rewards: Reward of each action, `[steps, envs]`.
        lengths: Number of tokens of each action, at least 1, `[steps, envs]`.
        episode_ends: Whether the episode ended at this step, for any reason, `[steps, envs]`.
        counted: Whether the step belongs to the rollout, `[steps, envs]`; other steps have reward 0 and follow an end.
        values: Value before each token, `[steps, envs, tokens]`, or before each action, `[steps, envs, 1]`; no entries
            without a critic.
        last_values: Value of the observation after the last step, `[envs]`.
        final_values: Value of the true final observation if a time limit cut the episode at this step, 0 elsewhere,
            `[steps, envs]`.
        durations: Time that each action took, in units of `gamma`, `[steps, envs]`.
        groups: Number of each step's group of episodes with one reset seed, `[steps, envs]`.
        states: Number of the state that each action was chosen in, equal for equal ones, `[steps, envs]`.
        decisions: Whether a token had alternatives, `[steps, envs, tokens]`; None where all had.
        thought_lengths: Number of the first tokens of each action that are a thought, `[steps, envs]`; None for none.
    """

    rewards: Floats
    lengths: Integers
    episode_ends: Bools
    counted: Bools
    values: Floats
    last_values: Floats
    final_values: Floats
    durations: Floats
    groups: Integers
    states: Integers
    decisions: Bools | None = None
    thought_lengths: Integers | None = None


@dataclass(frozen=True)
class Estimator(ABC):
    """An estimator of advantages.

    Attributes:
        gamma: Discount between actions.
        gae_lambda: GAE lambda between actions.
        gamma_token: Discount inside an action.
        gae_lambda_token: GAE lambda at the decisions inside an action.
        credit_level: `"token"`, or `"action"` for one value and one advantage of all tokens of an action.
        bootstrap: `"state"`, or `"action"` for the value before the last token of the next action.
        baseline: Baseline to subtract from returns; one of `baselines`.
        leave_one_out: Whether to leave an episode's own return out of the mean of its group or state.
        advantage_scale: Divisor of advantages without a critic, one of `SCALES`.
        omega: Weight of GiGPO's advantage of a step.
        gamma_thought: Discount after each token of a thought; None for `gamma_token`.
        gae_lambda_thought: GAE lambda at the decisions of a thought; None for `gae_lambda_token`.
        gae_alpha_thought: Alpha of a lambda that adapts to the number L of a thought's tokens, 1 - 1 / (alpha L), in
            place of `gae_lambda_thought`; None for none.
    """

    gamma: float
    gae_lambda: float = 0.95
    gamma_token: float = 1.0
    gae_lambda_token: float = 1.0
    credit_level: str = "token"
    bootstrap: str = "state"
    baseline: str = "none"
    leave_one_out: bool = False
    advantage_scale: str = "none"
    omega: float = 1.0
    gamma_thought: float | None = None
    gae_lambda_thought: float | None = None
    gae_alpha_thought: float | None = None

    has_critic: ClassVar[bool] = False
    """Whether the estimator needs values; it is then a subclass of `GAE`, whose `state_returns` some critics learn.

    Without values a rollout is whole episodes, as there is no value to bootstrap from where an episode is cut off.
    """
    baselines: ClassVar[tuple[str, ...]] = ("none",)
    """Baselines that the estimator supports."""

    @property
    def described(self) -> str:
        """Return the estimator's name and unit."""
        name = next(name for name, kind in ESTIMATORS.items() if kind is type(self))
        return f"{name} of {self.credit_level}s" if "credit_level" not in self.ignores else name

    @property
    def compares_states(self) -> bool:
        """Whether the baseline needs the states of a rollout."""
        return self.baseline == "state"

    @property
    def credits_thoughts_apart(self) -> bool:
        """Whether thoughts have a discount or a lambda of their own."""
        return not (self.gamma_thought is self.gae_lambda_thought is self.gae_alpha_thought is None)

    def without_traces(self) -> Self:
        """Return the estimator with lambdas of 1: its returns are those of the rewards alone where values are 0."""
        return replace(self, gae_lambda=1.0, gae_lambda_token=1.0, gae_lambda_thought=None, gae_alpha_thought=None)

    def discount_and_trace(self, rollout: Rollout) -> tuple[float | Floats, float | Floats]:
        """Return discount and GAE lambda inside actions; of each token, `[steps, envs, tokens]`, if thoughts differ."""
        if rollout.thought_lengths is None or not self.credits_thoughts_apart:
            return self.gamma_token, self.gae_lambda_token
        lengths = rollout.thought_lengths[..., None]
        gamma = self.gamma_token if self.gamma_thought is None else self.gamma_thought
        trace: float | Floats = self.gae_lambda_token if self.gae_lambda_thought is None else self.gae_lambda_thought
        if self.gae_alpha_thought is not None:
            trace = np.maximum(0.0, 1.0 - 1.0 / (self.gae_alpha_thought * np.maximum(lengths, 1)))
        of_thought = np.arange(int(rollout.lengths.max(initial=1))) < lengths
        return np.where(of_thought, gamma, self.gamma_token), np.where(of_thought, trace, self.gae_lambda_token)

    def n_values(self, n_tokens: int) -> int:
        """Return the number of tokens of an action, from the first on, before which a value is needed."""
        if not self.has_critic:
            return 0
        return 1 if self.credit_level == "action" else n_tokens

    @abstractmethod
    def advantages(self, rollout: Rollout) -> Floats:
        """Compute the advantage of every token, `[steps, envs, tokens]`; entries in the padding have no meaning.

        Where a unit of credit is a whole action, the last axis may have one entry, that of all tokens.
        """

    @property
    @abstractmethod
    def ignores(self) -> tuple[str, ...]:
        """Arguments of an algorithm that have no effect with this estimator."""


class GAE(Estimator):
    """Generalized advantage estimation, of tokens or of whole actions.

    Over tokens: with `gamma_token = 1` the Bellman backup with Action Decomposition (POAD); with `gamma_token = gamma`
    NTPO, and with `bootstrap="action"` as well, ARCHER. Over whole actions: that of ordinary PPO (TWOSOME, turn-PPO).
    """

    has_critic = True

    def advantages(self, rollout: Rollout) -> Floats:
        """See `Estimator.advantages`. `advantages + values` are the returns."""
        of_tokens = self.credit_level == "token"
        gamma_token, gae_lambda_token = self.discount_and_trace(rollout) if of_tokens else (1.0, 1.0)
        return self._recursion(
            rollout.rewards,
            rollout.values,
            self._lengths(rollout),
            self._next_values(rollout),
            rollout.episode_ends,
            gamma=self.gamma**rollout.durations,
            gae_lambda=self.gae_lambda,
            gamma_token=gamma_token,
            gae_lambda_token=gae_lambda_token,
            decisions=rollout.decisions if of_tokens else None,
        )

    @property
    def _recursion(self) -> Callable[..., Floats]:
        return token_gae

    def state_returns(self, rollout: Rollout) -> Floats:
        """Compute the lambda-return of each observation, `[steps, envs]`: traces pass over whole actions.

        From the values before the first tokens alone; with `gamma_token` of 1 it is that of action-level GAE.
        """
        inside = self._discount_inside(rollout, 1)
        advantages = token_gae(
            inside[..., 0] * rollout.rewards,
            rollout.values[..., :1],
            np.ones_like(rollout.lengths),
            self._next_values(rollout),
            rollout.episode_ends,
            gamma=inside[..., 0] * self.gamma**rollout.durations,
            gae_lambda=self.gae_lambda,
            gamma_token=1.0,
            gae_lambda_token=1.0,
        )
        return (advantages + rollout.values[..., :1])[..., 0]

    def one_step_advantages(self, rollout: Rollout) -> Floats:
        """Compute the sampled advantage of each prefix over its observation, `[steps, envs, tokens]`.

        d[t, j] = gamma_token^(n_t - j) (r_t + gamma V_next[t]) - V[t, 1],   V_next = 0 after a terminal state

        with `gamma_thought` in place of `gamma_token` for each token of a thought.

        Its expectation, given the prefix, is the advantage of the prefix where V is the value of the policy.
        """
        paid = rollout.rewards + self.gamma**rollout.durations * self._next_values(rollout)
        inside = self._discount_inside(rollout, rollout.values.shape[-1])
        return inside * paid[..., None] - rollout.values[..., :1]

    def _discount_inside(self, rollout: Rollout, n_tokens: int) -> Floats:
        """Compute the discount from each of the first tokens to the last of its action, `[steps, envs, n_tokens]`."""
        positions = np.arange(n_tokens)
        later = (self._lengths(rollout)[..., None] - 1 - positions).clip(min=0)
        if self.gamma_thought is None or rollout.thought_lengths is None or self.credit_level == "action":
            return np.asarray(self.gamma_token**later, dtype=np.float64)
        of_thought = (rollout.thought_lengths[..., None] - positions).clip(min=0)
        inside: Floats = self.gamma_thought**of_thought * self.gamma_token ** (later - of_thought)
        return inside

    def _lengths(self, rollout: Rollout) -> Integers:
        """Return the number of units of credit of each action, `[steps, envs]`."""
        return rollout.lengths if self.credit_level == "token" else np.ones_like(rollout.lengths)

    def _next_values(self, rollout: Rollout) -> Floats:
        ends = (rollout.last_values, rollout.episode_ends, rollout.final_values)
        if self.bootstrap == "action":
            return next_action_values(rollout.values, self._lengths(rollout), *ends)
        return next_state_values(rollout.values[..., 0], *ends)

    @property
    def ignores(self) -> tuple[str, ...]:
        """See `Estimator.ignores`."""
        of_tokens = ("gamma_token", "gae_lambda_token", "bootstrap", *_OF_THOUGHTS)
        others = ("baseline", "leave_one_out", "advantage_scale", "omega", "drop_truncated")
        return others if self.credit_level == "token" else (*of_tokens, *others)


class BiLevelGAE(GAE):
    """GAE between actions, and another inside each that starts from its result: `gae_lambda` counts actions only.

    With `bootstrap="state"` an action is anchored at the value before its first token (the corrected form), with
    `"action"` at that before its last token, as published (VAGEN).
    """

    @property
    def _recursion(self) -> Callable[..., Floats]:
        return partial(bilevel_gae, anchor="last" if self.bootstrap == "action" else "first")


class ReturnToGo(Estimator):
    """The discounted return from an action, or from a token, on: REINFORCE, ReBN, REINFORCE++."""

    baselines = ("none", "batch", "group", "state", "step")

    def advantages(self, rollout: Rollout) -> Floats:
        """See `Estimator.advantages`."""
        discounts = self.gamma**rollout.durations
        if self.credit_level == "token":
            gamma_token, _ = self.discount_and_trace(rollout)
            returns = token_returns(
                rollout.rewards, rollout.lengths, rollout.episode_ends, gamma=discounts, gamma_token=gamma_token
            )
        else:
            returns = returns_to_go(rollout.rewards, rollout.episode_ends, gamma=discounts)[..., None]
        real = (np.arange(returns.shape[-1]) < rollout.lengths[..., None]) & rollout.counted[..., None]
        step, env, _ = np.nonzero(real)
        advantages = np.zeros(returns.shape)
        advantages[real] = self.compared(returns[real], rollout, (step, env))
        return advantages

    def compared(self, returns: Floats, rollout: Rollout, at: tuple[NDArray[np.intp], NDArray[np.intp]]) -> Floats:
        """Subtract the baseline of returns, and divide them by their scale.

        Args:
            returns: Returns of the entries, `[n]`.
            rollout: Rollout of the returns.
            at: Indices of step and environment of each return.
        """
        groups = rollout.groups[at]
        eps = _EPS["cell"] if self.advantage_scale == "cell" else None
        if self.baseline == "step":
            episodes = episode_numbers(rollout.episode_ends)[at]
            first = np.full(int(episodes.max()) + 1, len(rollout.rewards))
            np.minimum.at(first, episodes, at[0])
            advantages = step_leave_one_out(returns, groups, episodes, at[0] - first[episodes])
        elif self.baseline == "state" and self.leave_one_out:
            episodes = episode_numbers(rollout.episode_ends)[at]
            advantages = state_leave_one_out(returns, _pairs(groups, rollout.states[at]), episodes)
        elif self.baseline == "none":
            advantages = returns
        else:
            cells = {
                "batch": np.zeros_like(groups),
                "group": groups,
                "state": _pairs(groups, rollout.states[at]),
            }[self.baseline]
            advantages = centred(returns, cells, leave_one_out=self.leave_one_out, eps=eps)
        if self.advantage_scale != "batch":
            return advantages
        return _scaled(advantages, of_variance=self.credit_level == "token")

    @property
    def ignores(self) -> tuple[str, ...]:
        """See `Estimator.ignores`."""
        return (*_OF_A_CRITIC, "omega", *(() if self.credit_level == "token" else ("gamma_token", "gamma_thought")))


class EpisodeReturn(Estimator):
    """The undiscounted return of the episode, one number for all of its tokens: GRPO, Dr. GRPO, RLOO."""

    baselines = ("none", "batch", "group")

    def advantages(self, rollout: Rollout) -> Floats:
        """See `Estimator.advantages`."""
        episodes = _renumbered(episode_numbers(rollout.episode_ends), rollout.counted)
        n_episodes = int(episodes.max()) + 1
        returns = episode_returns(rollout.rewards[rollout.counted], episodes[rollout.counted])
        groups = np.zeros(n_episodes, dtype=np.int64)
        groups[episodes[rollout.counted]] = rollout.groups[rollout.counted]
        if self.baseline == "none":
            advantages = returns
        else:
            cells = groups if self.baseline == "group" else np.zeros_like(groups)
            eps = _EPS["cell"] if self.advantage_scale == "cell" else None
            advantages = centred(returns, cells, leave_one_out=self.leave_one_out, eps=eps)
        if self.advantage_scale == "batch":
            advantages = _scaled(advantages)
        of_tokens = np.zeros((*episodes.shape, 1))
        of_tokens[rollout.counted] = advantages[episodes[rollout.counted], None]
        return of_tokens

    @property
    def ignores(self) -> tuple[str, ...]:
        """See `Estimator.ignores`."""
        return (*_OF_A_CRITIC, "gamma", "gamma_token", "gamma_thought", "smdp_discount", "credit_level", "omega")


class GiGPOSum(Estimator):
    """Advantage of the episode in its group, plus `omega` times that of the step among the group's visits to its state.

    With `leave_one_out` both parts leave the own return out, and the mean of a state is over first visits.
    """

    baselines = ("group",)
    compares_states = True

    @property
    def parts(self) -> tuple[EpisodeReturn, ReturnToGo]:
        """Return the estimators of the episode and of the step."""
        shared = {
            "gamma": self.gamma,
            "leave_one_out": self.leave_one_out,
            "advantage_scale": self.advantage_scale,
        }
        of_episode = EpisodeReturn(baseline="group", **shared)  # type: ignore[arg-type]
        of_step = ReturnToGo(credit_level="action", baseline="state", **shared)  # type: ignore[arg-type]
        return of_episode, of_step

    def advantages(self, rollout: Rollout) -> Floats:
        """See `Estimator.advantages`."""
        of_episode, of_step = self.parts
        return of_episode.advantages(rollout) + self.omega * of_step.advantages(rollout)

    @property
    def ignores(self) -> tuple[str, ...]:
        """See `Estimator.ignores`."""
        return (*_OF_A_CRITIC, "gamma_token", "gamma_thought", "credit_level", "baseline")


ESTIMATORS: dict[str, type[Estimator]] = {
    "gae": GAE,
    "bilevel_gae": BiLevelGAE,
    "return_to_go": ReturnToGo,
    "episode_return": EpisodeReturn,
    "gigpo": GiGPOSum,
}
"""Estimators by name."""


def _pairs(first: Integers, second: Integers) -> Integers:
    """Return a number for each pair of numbers, equal for equal pairs."""
    return first * (int(second.max(initial=0)) + 1) + second


def _renumbered(numbers: Integers, counted: Bools) -> Integers:
    """Renumber the counted entries from 0 on, without gaps; uncounted ones are 0."""
    dense = np.zeros(numbers.shape, dtype=np.int64)
    dense[counted] = np.unique(numbers[counted], return_inverse=True)[1]
    return dense


def _scaled(advantages: Floats, *, of_variance: bool = False) -> Floats:
    """Divide by the deviation over the batch; equal advantages, and fewer than two, are left alone.

    A small number is added to the deviation (ReBN), or to the variance (REINFORCE++).
    """
    if len(advantages) < 2 or (advantages == advantages[0]).all():
        return advantages
    eps, variance = _EPS["batch"], advantages.var(ddof=1)
    scaled: Floats = advantages / (np.sqrt(variance + eps) if of_variance else np.sqrt(variance) + eps)
    return scaled
