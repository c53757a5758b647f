"""Settings of PPO on tokens."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from poad_sb3.settings.fields import Choice, Count, Flag, Number, Rate, Settings, setting

SHARE = Number(share=True)


class Ratio(StrEnum):
    """Unit of the ratio of new to old probability; the ratio is clipped and multiplied by an advantage."""

    TOKEN = "token"
    """One decision token."""
    ACTION = "action"
    """One whole action: the product of its tokens' ratios (turn-PPO)."""
    ACTION_MEAN = "action_mean"
    """One whole action: the geometric mean over its tokens (ST-PPO)."""
    SEQUENCE = "sequence"
    """All actions of an episode: the geometric mean over their tokens (GSPO)."""
    SEQUENCE_PRODUCT = "sequence_product"
    """All actions of an episode: the product (RLOO in TRL)."""

    @property
    def of_episodes(self) -> bool:
        """Whether a unit is a whole episode."""
        return self in (Ratio.SEQUENCE, Ratio.SEQUENCE_PRODUCT)

    @property
    def of_actions(self) -> bool:
        """Whether a unit is a whole action."""
        return self in (Ratio.ACTION, Ratio.ACTION_MEAN)

    @property
    def is_mean(self) -> bool:
        """Whether log-ratios are averaged over the tokens of a unit, forced ones included; otherwise summed."""
        return self in (Ratio.ACTION_MEAN, Ratio.SEQUENCE)


class Reduction(StrEnum):
    """Reduction of the losses of the units of a minibatch to one number."""

    MEAN = "mean"
    """Mean over the units."""
    SEQUENCE_MEAN = "sequence_mean"
    """Mean over the units of each episode, then over episodes: biased towards short ones (GRPO as published)."""
    CONSTANT = "constant"
    """Sum over the units, divided by `batch_size`: no weight depends on a length (Dr. GRPO)."""


@dataclass(frozen=True)
class PPOSettings(Settings):
    """Rollout, credit and update: arguments of the algorithms, in the order of positional arguments.

    The defaults suit the embedded pocket model; a larger model needs a smaller `learning_rate` (start at 1e-4);
    with the default rate it gives a warning.
    """

    learning_rate: Any = setting(2e-3, Rate(), "rate of the LoRA adapter's AdamW (eps 1e-5, no weight decay)")
    critic_learning_rate: Any = setting(1e-3, Rate(), "rate of the critic's Adam (eps 1e-5)")
    n_steps: int = setting(128, Count(), "steps of each environment in a rollout")
    batch_size: int = setting(64, Count(), "actions in a minibatch")
    n_epochs: int = setting(5, Count(), "passes of the policy over a rollout; target_kl may end them early")
    n_critic_epochs: int = setting(5, Count(), "passes of the critic over a rollout")
    gamma: float = setting(
        0.95, SHARE, "discount between actions; 0.95 keeps delayed rewards from paying (docs, reward farming)"
    )
    gae_lambda: float = setting(0.95, SHARE, "GAE lambda between actions")
    gamma_token: float | None = setting(
        1.0, Number(share=True, optional=True), "discount inside an action: 1 is BAD, None that of gamma (NTPO)"
    )
    gae_lambda_token: float = setting(
        1.0,
        SHARE,
        "GAE lambda at the decisions inside an action; below 1, little reward reaches the first ones of a long action",
    )
    clip_range: Any = setting(0.2, Rate(zero=False), "clip of the ratio")
    clip_range_vf: Any = setting(
        0.2,
        Rate(optional=True, zero=False),
        "clip of the change of a value in an update, in units of the return (of its deviation with normalize_value); "
        "None for none, where returns are beyond about 1",
    )
    ent_coef: float = setting(0.02, Number(), "weight of the entropy at decisions")
    vf_coef: float = setting(0.5, Number(), "weight of the value loss")
    max_grad_norm: float = setting(
        0.5, Number(zero=False), "clip of the gradient norms, of adapter and critic separately"
    )
    target_kl: float | None = setting(
        0.02,
        Number(optional=True, zero=False),
        "the update stops before a step on a minibatch whose KL estimate exceeds this; None for never",
    )
    normalize_advantage: bool = setting(True, Flag(), "normalise advantages over the decisions of a minibatch")
    min_advantage_std: float = setting(
        0.01,
        Number(zero=False),
        "smallest standard deviation they are divided by, in units of reward: where rewards are rare, errors of the "
        "critic are not scaled up to the size of a reward",
    )
    smdp_discount: bool = setting(
        False, Flag(), 'discount by gamma ** duration, the duration of an action in info["primitive_steps"]'
    )
    normalize_value: bool = setting(
        False, Flag(), "let the critic learn returns of zero mean and unit variance, by running statistics"
    )
    n_episodes: int | None = setting(
        None,
        Count(optional=True),
        "whole episodes of each environment in a rollout, each begun by a reset, in place of n_steps; for environments "
        "that end every episode",
    )
    kl_coef: float = setting(0.0, Number(), "weight of the KL divergence from the frozen base model at decisions")
    critic_first: bool = setting(
        True,
        Flag(),
        "train the critic in all its epochs before the policy, so that target_kl never leaves it untrained; False: "
        "both on each minibatch, as in the paper's code",
    )
    ratio: str | None = setting(
        None,
        Choice(words=tuple(Ratio), optional=True),
        "unit of the ratio that is clipped: token, action (the product of its ratios), action_mean (their geometric "
        "mean), sequence (of the episode, GSPO) or sequence_product; None: that of credit_level",
    )
    clip_range_high: Any = setting(
        None, Rate(optional=True, zero=False), "clip of ratios above 1, where it is not clip_range (DAPO)"
    )
    dual_clip: float | None = setting(
        None, Number(optional=True, zero=False), "largest ratio, above 1, that a negative advantage is multiplied by"
    )
    cispo_cap: float | None = setting(
        None,
        Number(optional=True, zero=False),
        "CISPO in place of the clipped surrogate: the ratio, cut at this, is a constant weight of the log-probability",
    )
    loss_reduction: str = setting(
        Reduction.MEAN,
        Choice(words=tuple(Reduction)),
        "mean over the units of a minibatch, over those of each episode and then over episodes (sequence_mean), or "
        "their sum divided by batch_size (constant)",
    )

    micro_batches: int = setting(
        4,
        Count(),
        "parts, a power of two, that a minibatch is cut into and that ranks share; 1 for none. They are cut alike for "
        "any number of ranks, and only where passes are large enough",
    )
    thought_loss_coef: float = setting(
        1.0, Number(), "weight of the tokens of thoughts in the policy's loss, where the unit of the ratio is a token"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.micro_batches & (self.micro_batches - 1):
            raise ValueError(
                "Expected micro_batches to be a power of two, since their gradients are added along a binary tree; "
                f"got {self.micro_batches}. Fix: micro_batches=4."
            )
        if self.dual_clip is not None and self.dual_clip <= 1:
            raise ValueError(f"Expected dual_clip to be None or above 1; got {self.dual_clip}. Fix: dual_clip=3.0.")
        if self.cispo_cap is not None and (self.ratio not in (None, Ratio.TOKEN) or self.dual_clip is not None):
            raise ValueError(
                "Expected cispo_cap with ratio='token' and without dual_clip: it weights log-probabilities of tokens; "
                f"got ratio={self.ratio!r}, dual_clip={self.dual_clip}. Fix: leave one of them out."
            )
