"""Losses: pure functions on tensors, one entry per token, no reduction hidden inside.

Callers divide sums by the number of *real* tokens of the minibatch, so the result does not depend on its chunks.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = [
    "clipped_policy_loss",
    "clipped_value_loss",
    "kl_k3",
    "normalize",
    "segment_entropy",
    "segment_log_softmax",
    "segment_logsumexp",
]


def clipped_policy_loss(log_prob: Tensor, old_log_prob: Tensor, advantages: Tensor, clip_range: float) -> Tensor:
    """PPO's clipped surrogate, `[n]` each: -min(ratio A, clip(ratio, 1 - c, 1 + c) A)."""
    ratio = torch.exp(log_prob - old_log_prob)
    clipped = ratio.clamp(1.0 - clip_range, 1.0 + clip_range)
    return -torch.min(ratio * advantages, clipped * advantages)


def clipped_value_loss(values: Tensor, old_values: Tensor, returns: Tensor, clip_range: float | None) -> Tensor:
    """Squared error, `[n]` each; with a clip range, the larger of the error and that of the clipped prediction."""
    loss = (values - returns).square()
    if clip_range is None:
        return loss
    clipped = old_values + (values - old_values).clamp(-clip_range, clip_range)
    return torch.max(loss, (clipped - returns).square())


def kl_k3(log_prob: Tensor, old_log_prob: Tensor) -> Tensor:
    """Estimator of KL(old || new) from samples of old, `[n]`: (ratio - 1) - log ratio, never negative."""
    log_ratio = log_prob - old_log_prob
    return torch.expm1(log_ratio) - log_ratio


def normalize(advantages: Tensor, min_std: float) -> Tensor:
    """Zero mean, divided by the standard deviation or by `min_std` if that is larger.

    Where rewards are rare most minibatches hold none; divided by their own tiny deviation, the errors of the critic
    would weigh as much as a reward. Fewer than two entries are left alone.

    Args:
        advantages: `[n]`.
        min_std: Positive, in units of reward.
    """
    if advantages.numel() < 2:
        return advantages
    centred = advantages - advantages.mean()
    centred = centred - centred.mean()  # in float32 the mean of equal numbers is not quite that number
    return centred / centred.std().clamp(min=min_std)


def segment_log_softmax(logits: Tensor, segments: Tensor, n_segments: int) -> Tensor:
    """Log-softmax inside each segment of a flat vector.

    Args:
        logits: `[n]`.
        segments: Segment of each entry, int64 `[n]`; every segment in `range(n_segments)` has an entry.
        n_segments: Number of segments.

    Returns:
        `[n]`; exp of it sums to 1 in each segment.
    """
    return logits - segment_logsumexp(logits, segments, n_segments)[segments]


def segment_logsumexp(values: Tensor, segments: Tensor, n_segments: int) -> Tensor:
    """Log of the sum of exp in each segment, `[n_segments]`.

    Args:
        values: `[n]`.
        segments: Segment of each entry, int64 `[n]`; every segment in `range(n_segments)` has an entry.
        n_segments: Number of segments.
    """
    # The maximum only shifts the exponent, so its gradient cancels and need not be computed.
    peak = values.new_full((n_segments,), -torch.inf).scatter_reduce(0, segments, values.detach(), "amax")
    total = values.new_zeros(n_segments).index_add(0, segments, (values - peak[segments]).exp())
    return total.log() + peak


def segment_entropy(log_probs: Tensor, segments: Tensor, n_segments: int) -> Tensor:
    """Entropy of each segment's distribution in nats, `[n_segments]`."""
    finite = log_probs.clamp(min=torch.finfo(log_probs.dtype).min)  # probability 0 times -inf is 0 here
    return log_probs.new_zeros(n_segments).index_add(0, segments, -log_probs.exp() * finite)
