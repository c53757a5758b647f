"""The PPO update on tokens: policy on the decisions, critic on every token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from poad_sb3.buffers import TokenPath, TokenRolloutBuffer, TokenRolloutSamples
from poad_sb3.losses import clipped_policy_loss, clipped_value_loss, kl_k3, normalize
from poad_sb3.policies import LLMPolicy
from poad_sb3.rows import DecisionRow, decision_row

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
    """Decisions of a minibatch under the present weights, detached, in the order of the minibatch."""

    log_prob: Tensor
    entropy: Tensor


class _Slots(NamedTuple):
    """Where each decision of a minibatch is found among the rows: row, decision in the row, choice, all `[D]`."""

    row: Tensor
    decision: Tensor
    choice: Tensor


def update(
    policy: LLMPolicy, buffer: TokenRolloutBuffer, settings: UpdateSettings, rng: np.random.Generator
) -> dict[str, float]:
    """Improve critic and policy on one rollout.

    The critic goes first: its loss does not involve the policy, so a KL bound that ends the policy's epochs early must
    not leave it untrained. The first minibatch whose KL estimate exceeds `target_kl` (or is not finite) ends the whole
    update, before any step is taken on it.

    Returns:
        What to log: means over minibatches, and the error of the very first ratio (on-policy: 1).
    """
    log = _Log()
    once = {"early_stop": 0.0, **_fit_of_values(buffer)}
    for _ in range(settings.n_critic_epochs):
        for batch in buffer.get(settings.batch_size, rng):
            _value_step(policy, batch, settings, log)
    for _ in range(settings.n_epochs):
        for batch in buffer.get(settings.batch_size, rng):
            if not _policy_step(policy, batch, settings, log, once):
                once["early_stop"] = 1.0
                return {**log.means(), **once}
    return {**log.means(), **once}


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
    scored = _backward(policy, batch.paths, old, advantages, settings)
    ratio_error = (scored.log_prob - old).exp().sub(1).abs()
    once.setdefault("first_ratio_error", float(ratio_error.max()))
    kl = float(kl_k3(scored.log_prob, old).mean())
    log.add(approx_kl=kl, entropy=float(scored.entropy.mean()), decisions=float(len(old)))
    if settings.target_kl is not None and not kl <= settings.target_kl:
        policy.optimizer.zero_grad()
        return False
    norm = _step(policy.optimizer, policy.adapter_parameters(), settings.max_grad_norm, "policy")
    loss = clipped_policy_loss(scored.log_prob, old, advantages, settings.clip_range).mean()
    clipped = (ratio_error > settings.clip_range).float().mean()
    log.add(policy_gradient_loss=float(loss), clip_fraction=float(clipped), policy_grad_norm=norm)
    return True


def _backward(
    policy: LLMPolicy, paths: Sequence[TokenPath], old: Tensor, advantages: Tensor, settings: UpdateSettings
) -> _Scored:
    """Accumulate the gradient of the policy loss, chunk by chunk; equal rows go through the model once."""
    rows, slots = _share_rows(paths, old.device)
    log_prob, entropy = torch.empty_like(old), torch.empty_like(old)
    for chunk in policy.lm.chunks([row.row for row in rows]):
        log_probs, starts, entropies = policy.evaluate_rows([rows[index] for index in chunk])
        offsets = torch.full((len(rows),), -1, device=old.device)
        sizes = torch.tensor([len(rows[index].children) for index in chunk], device=old.device)
        offsets[chunk] = sizes.cumsum(0) - sizes
        here = (offsets[slots.row] >= 0).nonzero().squeeze(-1)
        node = offsets[slots.row[here]] + slots.decision[here]
        new = log_probs[starts[node] + slots.choice[here]]
        loss = clipped_policy_loss(new, old[here], advantages[here], settings.clip_range).sum()
        loss = (loss - settings.ent_coef * entropies[node].sum()) / len(old)
        loss.backward()  # type: ignore[no-untyped-call]
        log_prob[here], entropy[here] = new.detach(), entropies[node].detach()
    return _Scored(log_prob, entropy)


def _share_rows(paths: Sequence[TokenPath], device: torch.device) -> tuple[list[DecisionRow], _Slots]:
    """Distinct rows of the paths, and where each decision is found among them."""
    number: dict[DecisionRow, int] = {}
    slots: list[tuple[int, int, int]] = []
    for path in paths:
        row = decision_row(path)
        if row is not None:
            index = number.setdefault(row, len(number))
            slots += [(index, k, decision.choice) for k, decision in enumerate(path.decisions)]
    table = torch.tensor(slots, device=device)
    return list(number), _Slots(*table.unbind(1))


def _value_step(policy: LLMPolicy, batch: TokenRolloutSamples, settings: UpdateSettings, log: _Log) -> None:
    values = policy.critic(batch.features)[batch.feature_of]
    loss = clipped_value_loss(values, batch.old_values, batch.returns, settings.clip_range_vf).mean()
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
