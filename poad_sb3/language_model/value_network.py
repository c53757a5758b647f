"""The network of a critic: an MLP on whitened hidden states of the frozen base model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

__all__ = ["FeatureWhitening", "ReturnScale", "ValueNetwork"]

_CLIP = 10.0
_MIN_DEVIATION = 1e-4
"""Lower bound on the deviation of returns; avoids amplifying the critic's errors where returns hardly differ."""
_RIDGE = 1e-3
"""Share of the largest variance; directions with less are noise and are not amplified."""
_CONSTANT = 1e-10
"""Share of the squared mean; features with at most this variance are equal up to float32 rounding."""


class FeatureWhitening(nn.Module):
    """Maps features to zero mean and unit covariance (ZCA), by running statistics.

    Directions with less than a thousandth of the largest variance come out smaller. Where one feature is far larger
    than the rest, as in some large models, these have a small deviation, and the critic may need a larger rate.

    A language model's last hidden states vary mostly with the position in the sentence. The difference between
    situations is small beside that, and an MLP behind raw or standardised features learns it last. Measured on the
    pocket model (docs/development/decisions/algorithms.md): after 300 steps the explained variance of state values was
    0.03 standardised and 0.37 whitened, of 0.40 possible.

    The map is renewed whenever the number of features seen has doubled, so it settles down and costs
    O(log n) eigendecompositions. ZCA, unlike PCA, keeps the axes, so a renewal moves the critic's input little.

    Args:
        width: Number of features.
    """

    mean: Tensor
    covariance: Tensor
    count: Tensor
    renewed_at: Tensor
    center: Tensor
    transform: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("covariance", torch.eye(width))
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("renewed_at", torch.zeros(()))
        self.register_buffer("center", torch.zeros(width))
        self.register_buffer("transform", torch.eye(width))

    @torch.no_grad()
    def observe(self, features: Tensor) -> None:
        """Add `[n, width]` features to the statistics (Chan et al.'s parallel update), and renew the map if due."""
        n = len(features)
        total = self.count + n
        mean = features.mean(0)
        delta = mean - self.mean
        scatter = (features - mean).T @ (features - mean)
        between = torch.outer(delta, delta) * self.count * n / total
        self.covariance.copy_((self.covariance * self.count + scatter + between) / total)
        self.mean.add_(delta * n / total)
        self.count.copy_(total)
        if total >= 2 * self.renewed_at:
            self._renew()

    def _renew(self) -> None:
        variance, axes = torch.linalg.eigh(self.covariance.cpu().double())
        variance = variance.clamp(min=0)
        if variance.max() <= _CONSTANT * self.mean.cpu().double().square().sum():
            return  # there is one situation so far: centred, its features would be 0, and the MLP has no bias
        scale = torch.rsqrt(variance + _RIDGE * variance.max() + torch.finfo(torch.float32).tiny)
        self.transform.copy_((axes * scale) @ axes.T)
        self.center.copy_(self.mean)
        self.renewed_at.copy_(self.count)

    def forward(self, features: Tensor) -> Tensor:
        """Whiten features `[n, width]`, and clip them to 10 standard deviations."""
        return ((features - self.center) @ self.transform).clamp(-_CLIP, _CLIP)


class ReturnScale(nn.Module):
    """Running mean and deviation of returns, in whose units a critic may learn (PopArt, arXiv 1602.07714).

    Values are `deviation * (output + shift) + mean`. A caller that renews the statistics rescales the last layer by
    `renew`'s factor; `shift` is renewed with them, so that no value changes but at the first renewal of outputs of 0.
    """

    mean: Tensor
    deviation: Tensor
    count: Tensor
    shift: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name, start in (("mean", 0.0), ("deviation", 1.0), ("count", 0.0), ("shift", 0.0)):
            self.register_buffer(name, torch.tensor(start))

    @torch.no_grad()
    def renew(self, returns: Tensor, *, has_outputs: bool = True) -> Tensor:
        """Update the statistics; return the factor for the last layer's weights.

        Args:
            returns: Returns `[n]`.
            has_outputs: Whether some output is not 0. Before that every output stays 0, and stands for the mean.
        """
        total = self.count + len(returns)
        delta = returns.mean() - self.mean
        squares = self.deviation.square() * self.count
        spread = (returns - returns.mean()).square().sum() + delta.square() * self.count * len(returns) / total
        mean = self.mean + delta * len(returns) / total
        deviation = ((squares + spread) / total).sqrt().clamp(min=_MIN_DEVIATION)
        factor = self.deviation / deviation
        if self.count > 0 or has_outputs:
            self.shift.copy_((self.shift * self.deviation + self.mean - mean) / deviation)
        for old, new in ((self.mean, mean), (self.deviation, deviation), (self.count, total)):
            old.copy_(new)
        return factor

    def forward(self, outputs: Tensor) -> Tensor:
        """Convert the outputs of a critic to values, `[n]`."""
        return self.deviation * (outputs + self.shift) + self.mean


class ValueNetwork(nn.Module):
    """A number for each hidden state: hidden -> 1024 -> 512 -> 1, ReLU, no bias (the paper's), on whitened features.

    Args:
        width: Hidden size of the language model.
        hidden: Widths of the hidden layers.
        whitening: Whether to whiten the features; without it they are used unchanged.
        init: Initialisation of the last layer: `"zero"` for zeros, `"default"` for PyTorch's.
    """

    def __init__(
        self, width: int, hidden: Sequence[int] = (1024, 512), *, whitening: bool = True, init: str = "zero"
    ) -> None:
        super().__init__()
        self.whitening = FeatureWhitening(width) if whitening else None
        layers: list[nn.Module] = []
        for wide in hidden:
            layers += [nn.Linear(width, wide, bias=False), nn.ReLU()]
            width = wide
        last = nn.Linear(width, 1, bias=False)
        if init == "zero":  # before the first reward every value and advantage is 0, not noise that moves the policy
            nn.init.zeros_(last.weight)
        self.mlp = nn.Sequential(*layers, last, nn.Flatten(0))
        self.scale = ReturnScale()

    def observe_features(self, features: Tensor) -> None:
        """Add features to the statistics of the whitening; once for each rollout, before it is valued.

        Raises:
            FloatingPointError: If the features are not finite; the statistics stay as they are.
        """
        if not torch.isfinite(features).all():
            raise FloatingPointError(
                "Expected finite hidden states of the base model; got NaN or infinity. Nothing was learned from this "
                "rollout. Fix: check the model's weights and its dtype, and continue from a checkpoint."
            )
        if self.whitening is not None:
            self.whitening.observe(features)

    @torch.no_grad()
    def observe_returns(self, returns: Tensor) -> bool:
        """Learn in units of these returns `[n]` and those before; return whether these are the first.

        No value changes, but at the first time those of a critic that has learned nothing: to the mean return.
        """
        is_first = bool(self.scale.count == 0)
        last = self.mlp[-2]
        assert isinstance(last, nn.Linear)
        last.weight.mul_(self.scale.renew(returns, has_outputs=bool(last.weight.any())))
        return is_first

    def forward(self, features: Tensor) -> Tensor:
        """Compute the numbers `[n]` of features `[n, width]`."""
        whitened = features if self.whitening is None else self.whitening(features)
        numbers: Tensor = self.scale(self.mlp(whitened))
        return numbers
