from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toy import properties

from poad_sb3.credit.losses import (
    clipped_policy_loss,
    clipped_value_loss,
    kl_k3,
    normalize,
    segment_entropy,
    segment_log_softmax,
)

# Segments of 3, 1, 2 and 4 entries, not in order: the code must not rely on neighbours.
SEGMENTS = torch.tensor([2, 0, 3, 0, 1, 3, 2, 0, 3, 3])


def random_logits(scale: float = 3.0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return scale * torch.randn(len(SEGMENTS), generator=torch.Generator().manual_seed(0), dtype=dtype)


def per_segment(logits: torch.Tensor) -> torch.Tensor:
    expected = torch.empty_like(logits)
    for segment in range(4):
        expected[segment == SEGMENTS] = torch.log_softmax(logits[segment == SEGMENTS], 0)
    return expected


def test_policy_loss_is_the_clipped_surrogate() -> None:
    cases = list(itertools.product((0.5, 0.79, 0.81, 1.0, 1.19, 1.21, 3.0), (-2.0, -0.5, 0.0, 0.7), (-1.3, 0.0)))
    expected, slopes = [], []
    for ratio, advantage, _ in cases:
        clipped = min(max(ratio, 0.8), 1.2)
        expected.append(-min(ratio * advantage, clipped * advantage))
        active = ratio * advantage <= clipped * advantage
        slopes.append(-ratio * advantage if active else 0.0)
    old = torch.tensor([old for _, _, old in cases], dtype=torch.float64)
    new = old + torch.tensor([math.log(ratio) for ratio, _, _ in cases], dtype=torch.float64)
    new.requires_grad_(True)
    advantages = torch.tensor([advantage for _, advantage, _ in cases], dtype=torch.float64)
    loss = clipped_policy_loss(new, old, advantages, 0.2)
    loss.sum().backward()
    np.testing.assert_allclose(loss.detach(), expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(new.grad, slopes, rtol=0, atol=1e-12)


@pytest.mark.parametrize("clip", [None, 0.2])
def test_value_loss_takes_the_larger_of_two_squares(clip: float | None) -> None:
    cases = list(itertools.product((-1.0, -0.1, 0.0, 0.15, 2.0), (-0.5, 0.0, 1.0), (-3.0, 0.05, 4.0)))
    expected = []
    for value, old, target in cases:
        clipped = value if clip is None else old + min(max(value - old, -clip), clip)
        expected.append(max((value - target) ** 2, (clipped - target) ** 2))
    values, old_values, returns = torch.tensor(cases, dtype=torch.float64).unbind(1)
    np.testing.assert_allclose(clipped_value_loss(values, old_values, returns, clip), expected, rtol=0, atol=1e-12)


@properties
@given(seed=st.integers(0, 2**32 - 1))
def test_k3_averages_to_the_divergence_of_old_from_new(seed: int) -> None:
    """Weighted by the old probabilities; the other direction, and the mean of -log ratio squared, would differ."""
    old, new = torch.log(torch.from_numpy(np.random.default_rng(seed).dirichlet(np.ones(5), size=2)).clamp_min(1e-9))
    old, new = torch.log_softmax(old, 0), torch.log_softmax(new, 0)
    divergence = (old.exp() * (old - new)).sum()
    torch.testing.assert_close((old.exp() * kl_k3(new, old)).sum(), divergence, rtol=1e-9, atol=1e-12)


def test_normalize() -> None:
    advantages = torch.tensor([3.0, 0.0, -1.0, 0.0, 5.0])
    normal = normalize(advantages, 0.05)
    assert float(normal.mean()) == pytest.approx(0, abs=1e-6)
    assert float(normal.std()) == pytest.approx(1, abs=1e-6)
    assert normal[1] == normal[3] != 0, "an advantage of exactly 0 is an advantage like any other"


@pytest.mark.parametrize("entries", [[], [2.5]])
def test_normalize_leaves_fewer_than_two_entries(entries: list[float]) -> None:
    assert normalize(torch.tensor(entries), 0.05).tolist() == entries


def test_normalize_only_centres_equal_entries() -> None:
    """Rounding of the mean must not be blown up into advantages of size 1."""
    assert normalize(torch.full((61,), -123.4), 0.05).abs().max() < 1e-4


@pytest.mark.parametrize("std", [1e-9, 0.0499, 0.0501, 1e4])
def test_normalize_divides_by_at_least_the_smallest_standard_deviation(std: float) -> None:
    advantages = torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64)
    advantages *= std / advantages.std()
    torch.testing.assert_close(normalize(advantages, 0.05), advantages / max(std, 0.05))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [3.0, 1e4])
def test_segment_log_softmax_is_log_softmax_of_each_segment(scale: float, dtype: torch.dtype) -> None:
    logits = random_logits(scale, dtype)
    log_probs = segment_log_softmax(logits, SEGMENTS, 4)
    assert torch.isfinite(log_probs).all()
    torch.testing.assert_close(log_probs, per_segment(logits), rtol=1e-6, atol=1e-6)
    assert log_probs[SEGMENTS == 1].item() == 0, "an only child is certain"


def test_segment_gradients() -> None:
    logits = random_logits().requires_grad_(True)
    weights = torch.arange(1.0, len(SEGMENTS) + 1, dtype=torch.float64)
    (ours,) = torch.autograd.grad((weights * segment_log_softmax(logits, SEGMENTS, 4)).sum(), logits)
    (expected,) = torch.autograd.grad((weights * per_segment(logits)).sum(), logits)
    torch.testing.assert_close(ours, expected)
    assert torch.autograd.gradcheck(lambda x: segment_log_softmax(x, SEGMENTS, 4), logits)
    assert torch.autograd.gradcheck(lambda x: segment_entropy(segment_log_softmax(x, SEGMENTS, 4), SEGMENTS, 4), logits)


@pytest.mark.parametrize("scale", [0.0, 3.0, 1e4])
def test_segment_entropy_is_that_of_each_distribution(scale: float) -> None:
    log_probs = per_segment(random_logits(scale))
    expected = [
        torch.distributions.Categorical(logits=log_probs[segment == SEGMENTS]).entropy() for segment in range(4)
    ]
    torch.testing.assert_close(segment_entropy(log_probs, SEGMENTS, 4), torch.stack(expected), rtol=1e-9, atol=1e-9)


def test_an_impossible_child_has_no_probability_and_no_entropy() -> None:
    logits = random_logits()
    logits[7] = -torch.inf
    log_probs = segment_log_softmax(logits, SEGMENTS, 4)
    torch.testing.assert_close(log_probs, per_segment(logits))
    assert log_probs[7] == -torch.inf
    possible = torch.arange(len(SEGMENTS)) != 7
    expected = segment_entropy(log_probs[possible], SEGMENTS[possible], 4)
    torch.testing.assert_close(segment_entropy(log_probs, SEGMENTS, 4), expected)


# ---------------------------------------------------------------------- clips and ratios of critic-free methods


@pytest.mark.parametrize("advantages", [[1.0, 1.0], [1.0, 0.0], [1.0, -1.0]])
def test_a_ratio_beyond_all_floats_is_clipped(advantages: list[float]) -> None:
    log_prob = torch.tensor([0.0, 100.0], requires_grad=True)
    loss = clipped_policy_loss(log_prob, torch.zeros(2), torch.tensor(advantages), 0.2)
    loss[0].backward(retain_graph=True)
    loss[1].backward()
    assert torch.isfinite(loss).all()
    assert log_prob.grad is not None
    assert log_prob.grad.tolist() == [-1.0, 0.0]
