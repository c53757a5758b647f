"""The PPO update on tokens: policy on the decisions, critic on every token."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from poad_sb3.common.buffers import TokenRolloutBuffer
from poad_sb3.common.policies import LLMPolicy
from poad_sb3.common.rollout_types import TokenRolloutSamples
from poad_sb3.credit.losses import cispo_loss, clipped_policy_loss, clipped_value_loss, kl_k3, normalize
from poad_sb3.credit.mismatch import gate, measure_mismatch
from poad_sb3.distributed.gradient_tree import GradientTree
from poad_sb3.distributed.sharding import whole
from poad_sb3.distributions.base import TokenPath
from poad_sb3.errors import MismatchError
from poad_sb3.language_model.packing import moved
from poad_sb3.settings import PPOSettings
from poad_sb3.settings.ppo import Ratio, Reduction

Surrogate = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Function from each unit's log-probability now, its log-probability at sampling and its advantage to its loss."""


class Clips(NamedTuple):
    """Present values of the clips.

    Attributes:
        low: Lower clip range, for ratios below 1.
        values: Clip range for the change of a value; None for no clip.
        high: Upper clip range, for ratios above 1.
    """

    low: float
    values: float | None
    high: float


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
    clips: Clips | None = None,
) -> dict[str, float]:
    """Improve critic and policy on one rollout.

    The critic goes first: its loss does not involve the policy, so a KL bound that ends the policy's epochs early must
    not leave it untrained. The first minibatch whose KL estimate exceeds `target_kl` (or is not finite) ends the whole
    update, before any step is taken on it.

    In 16 bits or less, passes of another shape give other numbers, and so does another engine. The log-probabilities
    stored at sampling are then computed again by the passes of the update, so that ratios compare like with like.

    Args:
        policy: Policy with its critic.
        buffer: Full rollout with advantages.
        settings: Settings of the update.
        rng: Random generator for the order of minibatches.
        clips: Present values of the clip ranges, where the settings hold schedules.

    Returns:
        Values to log: means over minibatches, and the error of the very first ratio (0 if on-policy).

    Raises:
        MismatchError: If the stored log-probabilities differ by more than rounding; no step is taken.
    """
    log = _Log()
    once = {"early_stop": 0.0, **_fit_of_values(buffer)}
    if policy.distribution.samples_elsewhere or not policy.lm.is_full_precision:
        once |= _score_again(policy, buffer)
    ratio = Ratio(settings.ratio or buffer.estimator.credit_level)
    if clips is None:
        high = settings.clip_range if settings.clip_range_high is None else settings.clip_range_high
        clips = Clips(settings.clip_range, settings.clip_range_vf, high)
    clip_range_vf = clips.values
    surrogate: Surrogate = partial(
        clipped_policy_loss, clip_range=clips.low, clip_range_high=clips.high, dual_clip=settings.dual_clip
    )
    if settings.cispo_cap is not None:
        surrogate = partial(cispo_loss, cap=settings.cispo_cap)
    if policy.critic is not None and settings.normalize_value:
        flat = buffer.all_samples()
        is_state = flat.is_state[flat.feature_of[flat.has_target]]
        if policy.critic.observe_targets(flat.targets[flat.has_target], is_state):
            clip_range_vf = None  # the first scale moves every value, so there is no old value to clip to
    n_critic_epochs = 0 if policy.critic is None else settings.n_critic_epochs
    whole_episodes = ratio.of_episodes or settings.loss_reduction == Reduction.SEQUENCE_MEAN
    batches = partial(buffer.get, settings.batch_size, rng, whole_episodes=whole_episodes)
    critic, actor = [True] * n_critic_epochs, [True] * settings.n_epochs
    # Whether each epoch trains the critic, and the policy.
    if settings.critic_first:
        epochs = [*((True, False) for _ in critic), *((False, True) for _ in actor)]
    else:
        epochs = [*itertools.zip_longest(critic, actor, fillvalue=False)]
    for of_critic, of_policy in epochs:
        for batch in batches():
            if of_critic:
                _value_step(policy, batch, settings, clip_range_vf, log)
            if of_policy and not _policy_step(policy, batch, settings, ratio, surrogate, clips, log, once):
                once["early_stop"] = 1.0
                return {**log.means(), **once}
    return {**log.means(), **once}


class _Units(NamedTuple):
    """Units of the ratio in a minibatch.

    Attributes:
        unit_of: Unit of each decision, int64 `[D]`.
        old_log_prob: Log-probability at sampling, summed over a unit's decisions, `[U]`.
        advantages: Advantage, averaged over the unit's tokens, `[U]`.
        n_tokens: Divisor of the unit's log-ratio: 1, or its number of tokens, `[U]`.
        episodes: Episode of each unit, int64 `[U]`.
    """

    unit_of: Tensor
    old_log_prob: Tensor
    advantages: Tensor
    n_tokens: Tensor
    episodes: Tensor


def _units(batch: TokenRolloutSamples, ratio: Ratio) -> _Units:
    chosen, device = batch.is_decision, batch.is_decision.device
    lengths = torch.tensor([len(path.action) for path in batch.paths])
    action_of = moved(torch.repeat_interleave(torch.arange(len(lengths)), lengths), device)
    old = batch.old_log_prob[chosen]
    if ratio == Ratio.TOKEN:
        episodes = batch.episodes[action_of[chosen]]
        unit_of = torch.arange(len(old), device=device)
        return _Units(unit_of, old, batch.advantages[chosen], torch.ones_like(old), episodes)
    owner = batch.episodes[action_of] if ratio.of_episodes else action_of
    decided, unit_of = torch.unique(owner[chosen], return_inverse=True)
    n_owners = int(owner.max()) + 1
    n_tokens = torch.bincount(owner, minlength=n_owners)
    # Their mean as the first one and the mean difference from it: equal advantages keep every bit.
    first = torch.full((n_owners,), len(owner), device=device)
    first = first.scatter_reduce(0, owner, torch.arange(len(owner), device=device), "amin").clamp(max=len(owner) - 1)
    start = batch.advantages[first]
    rest = torch.zeros_like(start).index_add(0, owner, batch.advantages - start[owner])
    return _Units(
        unit_of,
        old.new_zeros(len(decided)).index_add(0, unit_of, old),
        (start + rest / n_tokens)[decided],
        n_tokens[decided] if ratio.is_mean else torch.ones_like(decided),
        decided if ratio.of_episodes else batch.episodes[decided],
    )


class _Reduction:
    """The loss of a minibatch from terms of its units, chunk by chunk; see `Reduction`."""

    def __init__(self, episodes: Tensor, settings: PPOSettings, weights: Tensor | None = None) -> None:
        self._counts: Tensor | None = None
        self._weights = weights
        self.denominator = settings.batch_size if settings.loss_reduction == Reduction.CONSTANT else len(episodes)
        if settings.loss_reduction == Reduction.SEQUENCE_MEAN:
            _, of, counts = torch.unique(episodes, return_inverse=True, return_counts=True)
            self._counts, self.denominator = counts[of], len(counts)

    def total(self, terms: Tensor, units: Tensor | slice = slice(None)) -> Tensor:
        """Sum terms of some units, still to be divided by `denominator`."""
        terms = terms if self._weights is None else self._weights[units] * terms
        return (terms if self._counts is None else terms / self._counts[units]).sum()


def _policy_step(
    policy: LLMPolicy,
    batch: TokenRolloutSamples,
    settings: PPOSettings,
    ratio: Ratio,
    surrogate: Surrogate,
    clips: Clips,
    log: _Log,
    once: dict[str, float],
) -> bool:
    """Update the adapter once; return False if the KL bound ended the update. Without decisions there is no step."""
    chosen = batch.is_decision
    if not chosen.any():
        return True
    units = _units(batch, ratio)
    advantages = units.advantages
    if settings.normalize_advantage:
        advantages = normalize(advantages, settings.min_advantage_std)
    # Scores come by decision or by action: these are the units, unless a unit is an episode.
    old = batch.old_log_prob[chosen] if ratio.of_episodes else units.old_log_prob
    weights = None
    if settings.thought_loss_coef != 1 and ratio == Ratio.TOKEN:
        of_thought = [position < path.n_thought for path in batch.paths for position in range(len(path.action))]
        weights = 1.0 + (settings.thought_loss_coef - 1.0) * moved(torch.tensor(of_thought), chosen.device)[chosen]
    reduction = _Reduction(units.episodes[units.unit_of] if ratio.of_episodes else units.episodes, settings, weights)
    evaluate = partial(policy.evaluate_actions, batch.paths, whole_actions=ratio.of_actions)

    def of_units(log_probs: Tensor) -> Tensor:
        """Add log-probabilities as scored up to those of the units."""
        return units.old_log_prob.new_zeros(len(advantages)).index_add(0, units.unit_of, log_probs)

    def losses(log_probs: Tensor, indices: Tensor | slice = slice(None)) -> Tensor:
        """Compute the policy loss of some units, given their log-probabilities."""
        n = units.n_tokens[indices]
        return surrogate(log_probs / n, units.old_log_prob[indices] / n, advantages[indices])

    slope = None
    if ratio.of_episodes:  # a chunk is a part of an episode: the slopes of all its tokens come from a pass before
        sought = _scored(policy, batch.paths, old, whole_actions=ratio.of_actions).requires_grad_()
        by_episode = _Reduction(units.episodes, settings)
        loss = by_episode.total(losses(of_units(sought))) / by_episode.denominator
        (slope,) = torch.autograd.grad(loss * reduction.denominator, sought)
    policy.optimizer.zero_grad()
    features = batch.features[batch.feature_of[chosen]] if settings.kl_coef else None
    # Gradients accumulate chunk by chunk; the whole minibatch under the present weights is kept for the log.
    new, entropy, base_kl = torch.zeros_like(old), torch.zeros_like(old), torch.zeros_like(old)
    gradient = GradientTree(policy.adapter_parameters(), policy.lm.micro_batches, policy.lm.ranks)
    for part in evaluate(base_features=features):
        gradient.begin(part.micro_batch)
        indices = part.units
        if slope is None:
            loss = reduction.total(losses(part.log_prob, indices), indices)
        else:
            loss = (slope[indices] * part.log_prob).sum()
        loss = loss - settings.ent_coef * reduction.total(part.entropy, indices)
        if part.kl_to_base is not None:
            loss = loss + settings.kl_coef * reduction.total(part.kl_to_base, indices)
            base_kl[indices] = part.kl_to_base.detach()
        (loss / reduction.denominator).backward()  # type: ignore[no-untyped-call]
        new[indices], entropy[indices] = part.log_prob.detach(), part.entropy.detach()
    gradient.finish()
    new, entropy, base_kl = policy.lm.ranks.union(new, entropy, base_kl)
    new_units = of_units(new) if ratio.of_episodes else new
    off = ((new_units - units.old_log_prob) / units.n_tokens).exp() - 1
    # Of scores, not of units: the product over an episode would add up their rounding, and a mean would hide errors.
    once.setdefault("first_ratio_error", float((new - old).expm1().abs().max()))
    kl = float(kl_k3(new, old).mean())
    log.add(approx_kl=kl, entropy=float(entropy.mean()), decisions=float(len(old)))
    if settings.kl_coef:
        log.add(kl_to_base=float(base_kl.mean()))
    # On GPUs the old scores of actions and episodes are sums without a fixed order, which may differ between ranks.
    bound = settings.target_kl
    if bound is not None and not policy.lm.ranks.on_rank_zero("the KL bound", lambda: kl <= bound):
        policy.optimizer.zero_grad()
        return False
    norm = optimizer_step(policy.optimizer, policy.adapter_parameters(), settings.max_grad_norm, "policy")
    loss = losses(new_units).mean()
    outside = (off > clips.high) | (off < -clips.low)
    log.add(policy_gradient_loss=float(loss), clip_fraction=float(outside.float().mean()), policy_grad_norm=norm)
    return True


@torch.no_grad()
def _scored(policy: LLMPolicy, paths: Sequence[TokenPath], like: Tensor, *, whole_actions: bool = False) -> Tensor:
    """Compute the log-probabilities of all units of some actions, without gradient."""
    log_probs = torch.zeros_like(like)
    for part in policy.evaluate_actions(paths, whole_actions=whole_actions):
        log_probs[part.units] = part.log_prob
    return policy.lm.ranks.union(log_probs)[0]


def _score_again(policy: LLMPolicy, buffer: TokenRolloutBuffer) -> dict[str, float]:
    """Replace the log-probabilities stored at sampling, unless the gate refuses them; return their mismatch."""
    rollout = buffer.all_samples()
    sampled = rollout.old_log_prob[rollout.is_decision]
    if not len(sampled):
        return {"sampling_mismatch": 0.0}
    rescored = _scored(policy, rollout.paths, sampled)
    mismatch = measure_mismatch(sampled.cpu(), rescored.cpu(), [len(path.decisions) for path in rollout.paths])
    clean = policy.distribution.clean_mismatch(rollout.paths)
    if clean is not None and (reason := gate(mismatch, clean)):
        raise MismatchError(reason)
    rollout.old_log_prob[rollout.is_decision] = rescored
    logged = {name: float(getattr(mismatch, name)) for name in ("mean", "std", "largest")}
    return {
        "sampling_mismatch": mismatch.ratio_error,
        **{f"sampling_mismatch_{name}": value for name, value in logged.items()},
    }


def _value_step(
    policy: LLMPolicy, batch: TokenRolloutSamples, settings: PPOSettings, clip_range_vf: float | None, log: _Log
) -> None:
    assert policy.critic is not None
    assert policy.critic_optimizer is not None
    learned, rows = batch.has_target, batch.feature_of[batch.has_target]
    outputs = policy.critic.outputs(batch.features, batch.is_state)[rows]
    unit = policy.critic.units(batch.is_state[rows])  # 1 unless values are normalised
    old, target = batch.old_outputs[learned] / unit, batch.targets[learned] / unit
    loss = clipped_value_loss(outputs / unit, old, target, clip_range_vf).mean()
    policy.critic_optimizer.zero_grad()
    (settings.vf_coef * loss).backward()  # type: ignore[no-untyped-call]
    norm = optimizer_step(policy.critic_optimizer, list(policy.critic.parameters()), settings.max_grad_norm, "critic")
    log.add(value_loss=float(loss.detach()), critic_grad_norm=norm)


def optimizer_step(
    optimizer: torch.optim.Optimizer, parameters: list[torch.nn.Parameter], max_norm: float, name: str
) -> float:
    """Clip the gradient norm and take a step; return the norm before.

    Raises:
        FloatingPointError: If the norm is not finite; no step is taken.
    """
    norm = float(whole(torch.nn.utils.clip_grad_norm_(parameters, max_norm)))
    if not np.isfinite(norm):
        optimizer.zero_grad()
        raise FloatingPointError(
            f"Expected a finite gradient of the {name}; got norm {norm}. No step was taken. "
            "Fix: lower the learning rate and continue from a checkpoint."
        )
    optimizer.step()
    if optimizer.defaults.get("fused"):  # its kernel leaves the version counters, by which caches see new weights
        torch.autograd.graph.increment_version(parameters)
    return norm


def _fit_of_values(buffer: TokenRolloutBuffer) -> dict[str, float]:
    """Compute the share of the targets' variance that the critic explained at sampling, for each of its networks."""
    flat, shares = buffer.all_samples(), {}
    parts = {"explained_variance": flat.has_target}
    if buffer.critic.n_networks == 2 and len(flat.features):
        is_state = flat.is_state[flat.feature_of]
        parts = {"explained_variance": flat.has_target & is_state}
        parts["advantage_explained_variance"] = flat.has_target & ~is_state
    for name, learned in parts.items():
        if learned.any():
            outputs, targets = flat.old_outputs[learned].cpu().numpy(), flat.targets[learned].cpu().numpy()
            variance = float(np.var(targets))
            shares[name] = float("nan") if variance == 0 else 1 - float(np.var(targets - outputs)) / variance
    return shares
