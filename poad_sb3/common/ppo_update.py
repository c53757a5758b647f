"""The PPO update on tokens: policy on the decisions, critic on every token."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from poad_sb3.common.buffers import TokenRolloutBuffer
from poad_sb3.common.policies import LLMPolicy
from poad_sb3.common.type_aliases import TokenRolloutSamples
from poad_sb3.credit.losses import clipped_policy_loss, clipped_value_loss, kl_k3, normalize
from poad_sb3.settings import PPOSettings


@dataclass
class _Log:
    """Values of each minibatch; their means are logged."""

    values: dict[str, list[float]] = field(default_factory=dict)

    def add(self, **values: float) -> None:
        for name, value in values.items():
            self.values.setdefault(name, []).append(value)

    def means(self) -> dict[str, float]:
        return {name: float(np.mean(values)) for name, values in self.values.items()}


def update(
    policy: LLMPolicy,
    buffer: TokenRolloutBuffer,
    settings: PPOSettings,
    rng: np.random.Generator,
    clips: tuple[float, float | None] | None = None,
) -> dict[str, float]:
    """Improve critic and policy on one rollout.

    The critic goes first: its loss does not involve the policy, so a KL bound that ends the policy's epochs early must
    not leave it untrained. The first minibatch whose KL estimate exceeds `target_kl` (or is not finite) ends the whole
    update, before any step is taken on it.

    In 16 bits or less, passes of another shape give other numbers. The log-probabilities stored at sampling are then
    computed again by the passes of the update, so that ratios compare like with like.

    Args:
        policy: The policy, and its critic.
        buffer: A full rollout with advantages.
        settings: Of the update.
        rng: Orders the minibatches.
        clips: Present values of `clip_range` and `clip_range_vf`, where the settings hold schedules.

    Returns:
        Values to log: means over minibatches, and the error of the very first ratio (on-policy: 1).
    """
    log = _Log()
    once = {"early_stop": 0.0, **_fit_of_values(buffer)}
    if not policy.lm.is_full_precision:
        once["sampling_mismatch"] = _score_again(policy, buffer)
    clip_range, clip_range_vf = clips or (settings.clip_range, settings.clip_range_vf)
    if settings.normalize_value:
        if policy.critic.scale.count == 0:
            clip_range_vf = None  # the first scale moves every value, so there is no old value to clip to
        policy.critic.observe_returns(torch.from_numpy(buffer.values_and_returns()[1]).to(policy.device))
    for _ in range(settings.n_critic_epochs):
        for batch in buffer.get(settings.batch_size, rng):
            _value_step(policy, batch, settings, clip_range_vf, log)
    for _ in range(settings.n_epochs):
        for batch in buffer.get(settings.batch_size, rng):
            if not _policy_step(policy, batch, settings, clip_range, buffer.estimator.whole_actions, log, once):
                once["early_stop"] = 1.0
                return {**log.means(), **once}
    return {**log.means(), **once}


def _policy_step(
    policy: LLMPolicy,
    batch: TokenRolloutSamples,
    settings: PPOSettings,
    clip_range: float,
    whole_actions: bool,
    log: _Log,
    once: dict[str, float],
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
    # Gradients accumulate chunk by chunk; the whole minibatch under the present weights is kept for the log.
    new, entropy, base_kl = torch.empty_like(old), torch.empty_like(old), torch.zeros_like(old)
    for part in policy.evaluate_actions(batch.paths, whole_actions=whole_actions, base_features=features):
        units = part.units
        loss = clipped_policy_loss(part.log_prob, old[units], advantages[units], clip_range).sum()
        loss = loss - settings.ent_coef * part.entropy.sum()
        if part.kl_to_base is not None:
            loss = loss + settings.kl_coef * part.kl_to_base.sum()
            base_kl[units] = part.kl_to_base.detach()
        (loss / len(old)).backward()  # type: ignore[no-untyped-call]
        new[units], entropy[units] = part.log_prob.detach(), part.entropy.detach()
    ratio_error = (new - old).exp().sub(1).abs()
    once.setdefault("first_ratio_error", float(ratio_error.max()))
    kl = float(kl_k3(new, old).mean())
    log.add(approx_kl=kl, entropy=float(entropy.mean()), decisions=float(len(old)))
    if settings.kl_coef:
        log.add(kl_to_base=float(base_kl.mean()))
    if settings.target_kl is not None and not kl <= settings.target_kl:
        policy.optimizer.zero_grad()
        return False
    norm = _step(policy.optimizer, policy.adapter_parameters(), settings.max_grad_norm, "policy")
    loss = clipped_policy_loss(new, old, advantages, clip_range).mean()
    clipped = (ratio_error > clip_range).float().mean()
    log.add(policy_gradient_loss=float(loss), clip_fraction=float(clipped), policy_grad_norm=norm)
    return True


@torch.no_grad()
def _score_again(policy: LLMPolicy, buffer: TokenRolloutBuffer) -> float:
    """Replace the log-probabilities stored at sampling; return the largest ratio error they would have caused."""
    rollout = buffer.all_samples()
    sampled = rollout.old_log_prob[rollout.is_decision]
    if not len(sampled):
        return 0.0
    again = torch.empty_like(sampled)
    for part in policy.evaluate_actions(rollout.paths, whole_actions=buffer.estimator.whole_actions):
        again[part.units] = part.log_prob
    rollout.old_log_prob[rollout.is_decision] = again
    return float((again - sampled).exp().sub(1).abs().max())


def _value_step(
    policy: LLMPolicy, batch: TokenRolloutSamples, settings: PPOSettings, clip_range_vf: float | None, log: _Log
) -> None:
    values = policy.critic(batch.features)[batch.feature_of]
    unit = policy.critic.scale.deviation  # 1 unless values are normalised
    loss = clipped_value_loss(values / unit, batch.old_values / unit, batch.returns / unit, clip_range_vf).mean()
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
