"""Settings of PPO on tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from poad_sb3.credit.estimators import ESTIMATORS
from poad_sb3.settings.fields import Choice, Count, Flag, Number, Rate, Settings, setting

SHARE = Number(share=True)


@dataclass(frozen=True)
class PPOSettings(Settings):
    """Rollout, credit and update: arguments of the algorithms, in the order of positional arguments.

    The defaults suit the embedded pocket model; a larger model wants a smaller `learning_rate` (start at 1e-4).
    """

    learning_rate: Any = setting(2e-3, Rate(), "rate of the LoRA adapter's AdamW (eps 1e-5, no weight decay)")
    critic_learning_rate: Any = setting(1e-3, Rate(), "rate of the critic's Adam (eps 1e-5)")
    n_steps: int = setting(128, Count(), "steps of each environment in a rollout")
    batch_size: int = setting(64, Count(), "actions in a minibatch")
    n_epochs: int = setting(5, Count(), "passes of the policy over a rollout; target_kl may end them early")
    n_critic_epochs: int = setting(5, Count(), "passes of the critic over a rollout, before the policy's")
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
        "GAE lambda inside an action; below 1, little reward reaches the first tokens of a long action",
    )
    clip_range: Any = setting(0.2, Rate(zero=False), "clip of the ratio")
    clip_range_vf: Any = setting(0.2, Rate(optional=True, zero=False), "clip of the value change; None for none")
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
    credit_level: str = setting(
        "token",
        Choice(words=tuple(dict.fromkeys(level for level, _ in ESTIMATORS))),
        "values, advantages and ratios of tokens, or of whole actions",
    )
    bootstrap: str = setting(
        "state",
        Choice(words=tuple(dict.fromkeys(bootstrap for _, bootstrap in ESTIMATORS))),
        "bootstrap of an action's last token: the value of the next observation (state), or that before the last token "
        "of the next action (action)",
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
