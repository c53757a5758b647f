"""The PPO update on tokens: policy on the decisions, critic on every token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from poad_sb3.buffers import TokenRolloutBuffer
from poad_sb3.decisions import Taken
from poad_sb3.losses import clipped_policy_loss, clipped_value_loss, kl_k3, normalize
from poad_sb3.paths import TokenPath
from poad_sb3.policies import LLMPolicy
from poad_sb3.rollouts import CreditLevel, TokenRolloutSamples
from poad_sb3.scoring import taken_by_chunk

__all__ = ["UpdateSettings", "update"]


@dataclass(frozen=True)
class UpdateSettings:
    """Numbers of the update, named as the arguments of `POAD`, where they are explained."""

    n_epochs: int
    n_critic_epochs: int
    batch_size: int
    clip_range: float
    clip_range_vf: float | None
    ent_coef: float
    vf_coef: float
    max_grad_norm: float
    target_kl: float | None
    normalize_advantage: bool
    min_advantage_std: float
    credit_level: CreditLevel = CreditLevel.TOKEN
    normalize_value: bool = False
    kl_coef: float = 0.0


@dataclass
class _Log:
    """Values of each minibatch; their means are logged."""

    values: dict[str, list[float]] = field(default_factory=dict)

    def add(self, **values: float) -> None:
        for name, value in values.items():
            self.values.setdefault(name, []).append(value)

    def means(self) -> dict[str, float]:
        return {name: float(np.mean(values)) for name, values in self.values.items()}


class _Scored(NamedTuple):
    """Decisions (or whole actions) of a minibatch under the present weights, detached, in its order."""

    log_prob: Tensor
    entropy: Tensor
    base_kl: Tensor


def update(
    policy: LLMPolicy, buffer: TokenRolloutBuffer, settings: UpdateSettings, rng: np.random.Generator
) -> dict[str, float]:
    """Improve critic and policy on one rollout.

    The critic goes first: its loss does not involve the policy, so a KL bound that ends the policy's epochs early must
    not leave it untrained. The first minibatch whose KL estimate exceeds `target_kl` (or is not finite) ends the whole
    update, before any step is taken on it.

    In 16 bits or less, passes of another shape give other numbers. What was stored at sampling is then scored once more
    by the passes of the update, so that ratios compare like with like.

    Returns:
        What to log: means over minibatches, and the error of the very first ratio (on-policy: 1).
    """
    log = _Log()
    once = {"early_stop": 0.0, **_fit_of_values(buffer)}
    if not policy.lm.is_exact:
        once["sampling_mismatch"] = _score_again(policy, buffer, settings.credit_level)
    if settings.normalize_value:
        settings = _renew_scale(policy, buffer, settings)
    for _ in range(settings.n_critic_epochs):
        for batch in buffer.get(settings.batch_size, rng):
            _value_step(policy, batch, settings, log)
    for _ in range(settings.n_epochs):
        for batch in buffer.get(settings.batch_size, rng):
            if not _policy_step(policy, batch, settings, log, once):
                once["early_stop"] = 1.0
                return {**log.means(), **once}
    return {**log.means(), **once}


def _renew_scale(policy: LLMPolicy, buffer: TokenRolloutBuffer, settings: UpdateSettings) -> UpdateSettings:
    """Let the critic learn in units of these returns too; the settings to learn by."""
    first = policy.critic.scale.count == 0
    policy.critic.observe_returns(torch.from_numpy(buffer.values_and_returns()[1]).to(policy.device))
    return replace(settings, clip_range_vf=None) if first else settings  # it moves every value: nothing to clip to


def _policy_step(
    policy: LLMPolicy, batch: TokenRolloutSamples, settings: UpdateSettings, log: _Log, once: dict[str, float]
) -> bool:
    """One step of the adapter; False if the KL bound ended the update. Without decisions there is no step."""
    chosen = batch.is_decision
    if not chosen.any():
        return True
    advantages = batch.advantages[chosen]
    if settings.normalize_advantage:
        advantages = normalize(advantages, settings.min_advantage_std)
    old = batch.old_log_prob[chosen]
    policy.optimizer.zero_grad()
    features = batch.features[batch.feature_of[chosen]] if settings.kl_coef else None
    scored = _backward(policy, batch.paths, old, advantages, settings, features)
    ratio_error = (scored.log_prob - old).exp().sub(1).abs()
    once.setdefault("first_ratio_error", float(ratio_error.max()))
    kl = float(kl_k3(scored.log_prob, old).mean())
    log.add(approx_kl=kl, entropy=float(scored.entropy.mean()), decisions=float(len(old)))
    if settings.kl_coef:
        log.add(kl_to_base=float(scored.base_kl.mean()))
    if settings.target_kl is not None and not kl <= settings.target_kl:
        policy.optimizer.zero_grad()
        return False
    norm = _step(policy.optimizer, policy.adapter_parameters(), settings.max_grad_norm, "policy")
    loss = clipped_policy_loss(scored.log_prob, old, advantages, settings.clip_range).mean()
    clipped = (ratio_error > settings.clip_range).float().mean()
    log.add(policy_gradient_loss=float(loss), clip_fraction=float(clipped), policy_grad_norm=norm)
    return True


def _backward(
    policy: LLMPolicy,
    paths: Sequence[TokenPath],
    old: Tensor,
    advantages: Tensor,
    settings: UpdateSettings,
    features: Tensor | None,
) -> _Scored:
    """Accumulate the gradient of the policy loss, chunk by chunk; equal rows go through the model once.

    Args:
        policy: Whose adapter gets the gradient.
        paths: The actions.
        old: Log-probability at sampling of each unit, `[U]`.
        advantages: Of each unit, `[U]`.
        settings: Of the update.
        features: Frozen-trunk features before each decision, `[D, hidden]`, for the divergence from the base model.
    """
    log_prob, entropy, base_kl = torch.empty_like(old), torch.empty_like(old), torch.zeros_like(old)
    for taken, units, of in taken_by_chunk(policy.lm, paths, old.device, settings.credit_level, features):
        new = _sum_in(taken.log_prob, of, len(units))
        entropies = _unit_entropies(taken, of, len(units), settings.credit_level)
        loss = clipped_policy_loss(new, old[units], advantages[units], settings.clip_range).sum()
        loss = loss - settings.ent_coef * entropies.sum()
        if taken.kl_to_base is not None:
            loss = loss + settings.kl_coef * taken.kl_to_base.sum()
            base_kl[units] = _sum_in(taken.kl_to_base.detach(), of, len(units))
        loss = loss / len(old)
        loss.backward()  # type: ignore[no-untyped-call]
        log_prob[units], entropy[units] = new.detach(), entropies.detach()
    return _Scored(log_prob, entropy, base_kl)


@torch.no_grad()
def _score_again(policy: LLMPolicy, buffer: TokenRolloutBuffer, level: CreditLevel) -> float:
    """Replace the log-probabilities stored at sampling; the largest error of a ratio that they would have caused."""
    rollout = buffer.everything()
    sampled = rollout.old_log_prob[rollout.is_decision]
    if not len(sampled):
        return 0.0
    again = torch.empty_like(sampled)
    for taken, units, of in taken_by_chunk(policy.lm, rollout.paths, sampled.device, level, None):
        again[units] = _sum_in(taken.log_prob, of, len(units))
    rollout.old_log_prob[rollout.is_decision] = again
    return float((again - sampled).exp().sub(1).abs().max())


def _sum_in(values: Tensor, of: Tensor, n_units: int) -> Tensor:
    return values.new_zeros(n_units).index_add(0, of, values)


def _unit_entropies(taken: Taken, of: Tensor, n_units: int, level: CreditLevel) -> Tensor:
    """Entropy of each unit: of its decision, or of the whole action.

    Where a row does not know that of the action, it is estimated by the sum over the sampled path (chain rule).
    """
    if level == CreditLevel.TOKEN or taken.action_entropy is None:
        return _sum_in(taken.entropy, of, n_units)
    counts = _sum_in(torch.ones_like(taken.entropy), of, n_units)
    return _sum_in(taken.action_entropy, of, n_units) / counts


def _value_step(policy: LLMPolicy, batch: TokenRolloutSamples, settings: UpdateSettings, log: _Log) -> None:
    values = policy.critic(batch.features)[batch.feature_of]
    unit = policy.critic.scale.deviation  # 1 unless values are normalised
    loss = clipped_value_loss(
        values / unit, batch.old_values / unit, batch.returns / unit, settings.clip_range_vf
    ).mean()
    policy.critic_optimizer.zero_grad()
    (settings.vf_coef * loss).backward()  # type: ignore[no-untyped-call]
    norm = _step(policy.critic_optimizer, list(policy.critic.parameters()), settings.max_grad_norm, "critic")
    log.add(value_loss=float(loss.detach()), critic_grad_norm=norm)


def _step(optimizer: torch.optim.Optimizer, parameters: list[torch.nn.Parameter], max_norm: float, name: str) -> float:
    norm = float(torch.nn.utils.clip_grad_norm_(parameters, max_norm))
    if not np.isfinite(norm):
        optimizer.zero_grad()
        raise FloatingPointError(
            f"Expected a finite gradient of the {name}; got norm {norm}. No step was taken. "
            "Fix: lower the learning rate and continue from a checkpoint."
        )
    optimizer.step()
    return norm


def _fit_of_values(buffer: TokenRolloutBuffer) -> dict[str, float]:
    """Share of the returns' variance that the values at sampling explained."""
    values, returns = buffer.values_and_returns()
    variance = float(np.var(returns))
    return {"explained_variance": float("nan") if variance == 0 else 1 - float(np.var(returns - values)) / variance}
