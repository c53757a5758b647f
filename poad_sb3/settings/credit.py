"""Settings of credit: the estimation of advantages.

Its discounts and lambdas between and inside actions, arguments of SB3's PPO and beside them, are in `ppo.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, fields
from enum import StrEnum

from poad_sb3.credit.estimators import BASELINES, ESTIMATORS, LEVELS, SCALES, Estimator
from poad_sb3.settings.fields import Choice, Count, Flag, Free, Number, Settings, setting


class CriticKind(StrEnum):
    """Form of the values before the tokens of an action; `common/critics.py` has their networks and targets."""

    TOKEN = "token"
    """One network for all prefixes, that learns returns (the paper's)."""
    STATE = "state"
    """A network of states alone: every prefix of an action has the value of its state."""
    DUELING = "dueling"
    """The value of the state plus the advantage of the prefix, from two networks."""
    MARGINAL = "marginal"
    """Of listed actions: the value of the state plus the expected advantage of the actions that are left."""


@dataclass(frozen=True)
class CreditSettings(Settings):
    """Estimator of advantages: arguments of the algorithms.

    Raises:
        ValueError: If a value is out of range, or the estimator cannot have the baseline.
    """

    estimator: str = setting(
        "gae",
        Choice(words=tuple(ESTIMATORS)),
        "GAE or bi-level GAE with a critic; without one, the return to go, the return of the episode, or GiGPO's sum "
        "of both",
    )
    credit_level: str = setting(
        "token", Choice(words=LEVELS), "values and advantages of tokens, or of whole actions (gae, return_to_go)"
    )
    critic: str = setting(
        CriticKind.TOKEN,
        Choice(words=tuple(CriticKind)),
        "values inside an action: of one network for all prefixes (token), that of the state (state), or with an "
        "advantage over it from a second network, of the prefix (dueling) or of the listed actions that are left under "
        "the policy (marginal)",
    )
    bootstrap: str = setting(
        "state",
        Choice(words=("state", "action")),
        "bootstrap of an action's last token: the value of the next observation (state), or that before the last token "
        "of the next action (action)",
    )
    baseline: str = setting(
        "none",
        Choice(words=BASELINES),
        "subtracted from returns: nothing, their mean in the batch, in the group of episodes with one reset seed, in a "
        "state of the group, or at a step of the group's other episodes",
    )
    leave_one_out: bool = setting(
        False, Flag(), "leave an episode's own return out of the mean of its group or state, which is then unbiased"
    )
    advantage_scale: str = setting(
        "none",
        Choice(words=SCALES),
        "divisor of advantages without a critic: none, the deviation of the returns under the mean (cell), or of all "
        "advantages of the batch",
    )
    omega: float = setting(1.0, Number(), "weight of GiGPO's advantage of a step, beside that of the episode")
    group_size: int = setting(1, Count(), "episodes in a row that begin with the same reset seed")
    state_key: Callable[[str], Hashable] | None = setting(
        None,
        Free(optional=True, described="function of the text"),
        "the state that an observation's text stands for, where baselines compare equal states; None: the text itself",
    )
    drop_truncated: bool = setting(
        False,
        Flag(),
        "without a critic, leave episodes that a time limit cut out of the update (biased: it depends on the outcome)",
    )
    gamma_thought: float | None = setting(
        None, Number(share=True, optional=True), "discount after each token of a thought; None: that of gamma_token"
    )
    gae_lambda_thought: float | None = setting(
        None,
        Number(share=True, optional=True),
        "GAE lambda at the decisions of a thought; None: that of gae_lambda_token",
    )
    gae_alpha_thought: float | None = setting(
        None,
        Number(optional=True, zero=False),
        "alpha of a lambda that adapts to the length L of each thought, 1 - 1 / (alpha L), in place of "
        "gae_lambda_thought (VAPO)",
    )
    thought_penalty: float = setting(
        0.0, Number(), "subtracted from the reward of an action for each token of its thought, in training"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        kind = ESTIMATORS[self.estimator]
        if self.baseline not in kind.baselines and not kind.has_critic:
            raise ValueError(
                f"Expected the baseline of estimator={self.estimator!r} to be one of {list(kind.baselines)}; got "
                f"{self.baseline!r}. Fix: another of either."
            )
        compares_steps = self.baseline in ("state", "step")
        if compares_steps and self.estimator == "return_to_go" and self.credit_level == "token":
            raise ValueError(
                f"Expected credit_level='action' with baseline={self.baseline!r}, which compares whole actions; got "
                "'token'. Fix: credit_level='action', or another baseline."
            )
        if (compares_steps or self.baseline == "group") and self.group_size < 2:
            raise ValueError(
                f"Expected group_size of at least 2 with baseline={self.baseline!r}; got {self.group_size}. "
                "Fix: group_size=8."
            )
        if self.leave_one_out and self.baseline not in ("group", "state"):
            raise ValueError(
                f"Expected baseline='group' or 'state' with leave_one_out; got {self.baseline!r}. "
                "Fix: leave one of them out."
            )
        if self.leave_one_out and self.estimator == "return_to_go" and self.baseline == "group":
            raise ValueError(
                "Expected baseline='step' or 'state', or estimator='episode_return', with leave_one_out: the mean of "
                "the other actions' returns to go holds later ones of the same episode; got estimator='return_to_go', "
                "baseline='group'. Fix: baseline='step', leave_one_out=False."
            )
        if self.advantage_scale == "cell" and (self.baseline in ("none", "step") or self.leave_one_out):
            raise ValueError(
                "Expected a mean that holds the own return with advantage_scale='cell'; got "
                f"baseline={self.baseline!r}, leave_one_out={self.leave_one_out}. Fix: advantage_scale='none'."
            )
        if self.gae_alpha_thought is not None and self.gae_lambda_thought is not None:
            raise ValueError(
                f"Expected gae_lambda_thought or gae_alpha_thought; got {self.gae_lambda_thought} and "
                f"{self.gae_alpha_thought}. Fix: leave one of them out."
            )
        if not (self.state_key is None or callable(self.state_key)):
            raise TypeError(f"Expected state_key to be a function of the text or None; got {self.state_key!r}.")

    def make(self, *, gamma: float, gae_lambda: float, gamma_token: float | None, gae_lambda_token: float) -> Estimator:
        """Make the estimator, with the discounts and lambdas of the training; without `gamma_token` it is `gamma`."""
        return ESTIMATORS[self.estimator](
            gamma=gamma,
            gae_lambda=gae_lambda,
            gamma_token=gamma if gamma_token is None else gamma_token,
            gae_lambda_token=gae_lambda_token,
            **{field.name: getattr(self, field.name) for field in fields(Estimator) if hasattr(self, field.name)},
        )
