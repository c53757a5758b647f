"""Losses: pure functions on tensors, one entry per unit, no reduction hidden inside.

A unit is a token, an action or an episode. Its log-probability is that of its tokens, summed, or averaged for the
geometric mean of their ratios (GSPO). Callers divide sums by the number of *real* units of the minibatch, so the
result does not depend on its chunks.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = [
    "cispo_loss",
    "clipped_policy_loss",
    "clipped_value_loss",
    "kl_k3",
    "normalize",
    "segment_entropy",
    "segment_log_softmax",
    "segment_logsumexp",
]


_LARGEST_LOG_RATIO = 80.0
"""Upper bound of log-ratios: beyond 88 float32 overflows, and infinity times an advantage or gradient of 0 is NaN."""


def clipped_policy_loss(
    log_prob: Tensor,
    old_log_prob: Tensor,
    advantages: Tensor,
    clip_range: float,
    clip_range_high: float | None = None,
    dual_clip: float | None = None,
) -> Tensor:
    """Compute PPO's clipped surrogate, `[n]`: -min(ratio A, clip(ratio, 1 - low, 1 + high) A) for each unit.

    Args:
        log_prob: Log-probability of each unit, `[n]`.
        old_log_prob: Log-probability of each unit at sampling, `[n]`.
        advantages: Advantage of each unit, `[n]`.
        clip_range: Clip range low, and high unless `clip_range_high` is given.
        clip_range_high: Clip range high (DAPO's "clip higher", arXiv 2503.14476).
        dual_clip: Upper bound c > 1 of the loss of a negative advantage, -c A (arXiv 1912.09729).
    """
    ratio = torch.exp((log_prob - old_log_prob).clamp(max=_LARGEST_LOG_RATIO))
    clipped = ratio.clamp(1.0 - clip_range, 1.0 + (clip_range if clip_range_high is None else clip_range_high))
    loss = -torch.min(ratio * advantages, clipped * advantages)
    if dual_clip is None:
        return loss
    return torch.where(advantages < 0, torch.min(loss, -dual_clip * advantages), loss)


def cispo_loss(log_prob: Tensor, old_log_prob: Tensor, advantages: Tensor, cap: float) -> Tensor:
    """Compute the CISPO loss (arXiv 2506.13585), `[n]`: -min(ratio, cap) A log pi, the weight without gradient.

    The ratio is capped, not the gradient: every token keeps one.

    Args:
        log_prob: Log-probability of each unit, `[n]`.
        old_log_prob: Log-probability of each unit at sampling, `[n]`.
        advantages: Advantage of each unit, `[n]`.
        cap: Largest weight, absolute (TRL's `epsilon_high`; SkyRL and verl write 1 + high).
    """
    weight = torch.exp(log_prob - old_log_prob).clamp(max=cap).detach()
    return -weight * advantages * log_prob


def clipped_value_loss(values: Tensor, old_values: Tensor, returns: Tensor, clip_range: float | None) -> Tensor:
    """Compute the squared error, `[n]`; with a clip range, the larger of it and the error of the clipped prediction."""
    loss = (values - returns).square()
    if clip_range is None:
        return loss
    clipped = old_values + (values - old_values).clamp(-clip_range, clip_range)
    return torch.max(loss, (clipped - returns).square())


def kl_k3(log_prob: Tensor, old_log_prob: Tensor) -> Tensor:
    """Estimate KL(old || new) from samples of old, `[n]`: (ratio - 1) - log ratio, never negative."""
    log_ratio = log_prob - old_log_prob
    return torch.expm1(log_ratio) - log_ratio


def normalize(advantages: Tensor, min_std: float) -> Tensor:
    """Subtract the mean, and divide by the standard deviation or by `min_std` if that is larger.

    Where rewards are rare most minibatches hold none; divided by their own tiny deviation, the errors of the critic
    would weigh as much as a reward. Fewer than two entries are left alone.

    Args:
        advantages: Advantage of each unit, `[n]`.
        min_std: Smallest divisor, positive, in units of reward.
    """
    if advantages.numel() < 2:
        return advantages
    centred = advantages - advantages.mean()
    centred = centred - centred.mean()  # in float32 the mean of equal numbers is not quite that number
    return centred / centred.std().clamp(min=min_std)


def segment_log_softmax(logits: Tensor, segments: Tensor, n_segments: int) -> Tensor:
    """Compute the log-softmax inside each segment of a flat vector.

    Args:
        logits: Logits of all segments, flat `[n]`.
        segments: Segment of each entry, int64 `[n]`; every segment in `range(n_segments)` has an entry.
        n_segments: Number of segments.

    Returns:
        Log-probabilities, `[n]`; their exp sums to 1 in each segment.
    """
    return logits - segment_logsumexp(logits, segments, n_segments)[segments]


def segment_logsumexp(values: Tensor, segments: Tensor, n_segments: int) -> Tensor:
    """Compute the log of the sum of exp in each segment, `[n_segments]`.

    Args:
        values: Values of all segments, flat `[n]`.
        segments: Segment of each entry, int64 `[n]`; every segment in `range(n_segments)` has an entry.
        n_segments: Number of segments.
    """
    # The maximum only shifts the exponent, so its gradient cancels and need not be computed.
    peak = values.new_full((n_segments,), -torch.inf).scatter_reduce(0, segments, values.detach(), "amax")
    total = values.new_zeros(n_segments).index_add(0, segments, (values - peak[segments]).exp())
    return total.log() + peak


def segment_entropy(log_probs: Tensor, segments: Tensor, n_segments: int) -> Tensor:
    """Compute the entropy of each segment's distribution in nats, `[n_segments]`."""
    finite = log_probs.clamp(min=torch.finfo(log_probs.dtype).min)  # probability 0 times -inf is 0 here
    return log_probs.new_zeros(n_segments).index_add(0, segments, -log_probs.exp() * finite)
