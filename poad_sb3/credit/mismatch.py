"""Mismatch of the policy that sampled and the policy that learns: statistics of a batch, and a gate.

For a token x drawn with log-probability log p(x) and scored again by the learner as log q(x), let d = log p(x) -
log q(x). Rounding makes d small, without direction and alike for all tokens. Three statistics of a batch separate
faults from it:

* standard deviation: independent noise of deviation s beside a clean c gives sqrt(c^2 + s^2);
* mean: its expectation is KL(p || q), of second order for rounding (c^2 / 2). Where p is q cut to a support of mass m
  and normalised, d = -log m > 0 at every token;
* largest absolute difference: one word with other token ids moves a few tokens by whole nats, and the mean by little.

Log-probabilities alone do not show a support that was cut if they are those before the cut: then d is clean, although
tokens were drawn from another distribution. Shifts shared by all tokens that stay below the bounds are not seen either.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["ROUNDED", "CleanMismatch", "Mismatch", "gate", "measure_mismatch"]

MARGIN = 2.5
"""Largest allowed ratio of a deviation to the clean one: about half way, on a logarithmic scale, to the ratio sqrt(26)
that noise of five times the clean deviation gives."""
_ERRORS_OF_MEAN = 4.0
_MIN_STD = 1e-3
"""Deviation that is allowed in any dtype: the clipped ratio hides it, and kernels of float32 differ too."""
_MIN_LARGEST_PER_STD = 6.0
"""Least bound of the largest difference, in deviations.

It is the largest of a normal variable in some hundred million draws, more than a small calibration shows.
"""


class Mismatch(NamedTuple):
    """Differences d of a batch, sampled minus scored.

    Attributes:
        n_responses: Number of responses with a token.
        n_tokens: Number of their tokens.
        mean: Mean of d.
        std: Standard deviation of d.
        response_std: Standard deviation of the responses' means of d.
        largest: Largest absolute d.
        ratio_error: Largest error of a ratio that is computed with the sampled log-probabilities, |exp(-d) - 1|.
    """

    n_responses: int
    n_tokens: int
    mean: float
    std: float
    response_std: float
    largest: float
    ratio_error: float


@dataclass(frozen=True)
class CleanMismatch:
    """Mismatch of a sampler without a fault, of the same model in the same dtype.

    Attributes:
        std: Standard deviation of d over tokens.
        response_std: Standard deviation of the responses' means.
        largest: Largest absolute d.
    """

    std: float
    response_std: float
    largest: float

    @classmethod
    def of(cls, mismatch: Mismatch) -> CleanMismatch:
        """Take a measured batch as clean; figures below those of unavoidable rounding are raised to them."""
        std = max(mismatch.std, _MIN_STD)
        return cls(std, mismatch.response_std, max(mismatch.largest, _MIN_LARGEST_PER_STD * std))

    def bounds(self, n_responses: int, n_tokens: int) -> dict[str, float]:
        """Return the bounds of a batch: of its standard deviation, absolute mean and largest absolute difference.

        A sampler may be `MARGIN` times as far off as the clean one. The mean is then within four standard errors, for
        tokens whose errors are independent and for responses whose tokens share theirs; and the variance of a few
        tokens may hold one of the largest differences.
        """
        largest = MARGIN * self.largest
        error = math.sqrt(self.std**2 / n_tokens + self.response_std**2 / n_responses)
        return {
            "largest": largest,
            "mean": MARGIN * _ERRORS_OF_MEAN * error,
            "std": math.sqrt((MARGIN * self.std) ** 2 + largest**2 / n_tokens),
        }


ROUNDED = CleanMismatch(std=0.026, response_std=0.026, largest=0.4)
"""Mismatch assumed for 16-bit models that were not measured: the largest error of a token seen in bfloat16, and, as a
difference, the error of a ratio that is accepted when a model is loaded, 0.5."""


_CAUSES = {
    "largest": ("largest difference", "token ids other than the sampled ones, as after encoding a text again"),
    "mean": ("mean difference", "a support cut by top-k, top-p or min-p, or other weights"),
    "std": (
        "standard deviation of the differences",
        "other weights, another temperature, or a dtype of less precision",
    ),
}


def measure_mismatch(sampled: ArrayLike, scored: ArrayLike, lengths: ArrayLike) -> Mismatch:
    """Compare log-probabilities of a batch of responses.

    Args:
        sampled: Log-probability of each token at sampling, responses laid end to end, `[N]`.
        scored: Log-probability of each token by the learner, `[N]`.
        lengths: Number of tokens of each response; responses without a token are left out.

    Raises:
        ValueError: If the numbers of tokens differ, or there are no tokens.
    """
    old, new, counts = np.asarray(sampled, float), np.asarray(scored, float), np.asarray(lengths, int)
    counts = counts[counts > 0]
    if not (len(old) == len(new) == counts.sum() > 0):
        raise ValueError(
            f"Expected as many sampled as scored log-probabilities, and as many as the lengths add up to; got "
            f"{len(old)}, {len(new)} and {counts.sum()}. Fix: keep the sampled ids; a text encoded again has others."
        )
    differences = old - new
    means = np.add.reduceat(differences, np.cumsum(counts) - counts) / counts
    return Mismatch(
        n_responses=len(counts),
        n_tokens=len(old),
        mean=float(differences.mean()),
        std=float(differences.std()),
        response_std=float(means.std()),
        largest=float(np.abs(differences).max()),
        ratio_error=float(np.abs(np.expm1(-differences)).max()),
    )


def gate(mismatch: Mismatch, clean: CleanMismatch) -> str:
    """Return why a batch may not be learned from, one sentence and the fix; empty for a batch that may.

    Args:
        mismatch: Mismatch of the batch.
        clean: Mismatch of a sampler without a fault, measured on other responses.
    """
    failed = [
        (name, abs(getattr(mismatch, name)), bound)
        for name, bound in clean.bounds(mismatch.n_responses, mismatch.n_tokens).items()
        if not abs(getattr(mismatch, name)) <= bound  # NaN fails
    ]
    if not failed:
        return ""
    # A fault moves several statistics; its own one is the farthest beyond its bound.
    name, value, bound = max(
        failed, key=lambda failure: failure[1] / failure[2] if math.isfinite(failure[1]) else math.inf
    )
    statistic, cause = _CAUSES[name]
    return (
        f"Expected sampled log-probabilities that the learner reproduces, with a {statistic} of at most {bound:.2g}; "
        f"got {value:.2g} over {mismatch.n_tokens} tokens. Likely cause: {cause}. Fix: let the sampler use the "
        "learner's weights, dtype, token ids and whole distribution."
    )
