"""How a token is drawn from the model's logits: temperature, top-k, top-p. Pure functions on tensors.

A token that is drawn from a restricted distribution keeps its *support*, the tokens that it was drawn among. Old and
new log-probabilities are both normalised over that stored support: were it chosen anew, an update could push a token
out of its own support, and its log-probability to minus infinity.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["MAX_SUPPORT", "Drawn", "Support", "TokenSampling", "draw", "next_token_support"]

MAX_SUPPORT = 1024
"""Tokens that are kept at most where only `top_p` restricts; each drawn token stores its support."""


class TokenSampling(NamedTuple):
    """Settings of drawing the next token.

    Attributes:
        temperature: Divides the logits.
        top_k: Only the k most probable tokens; 0 for all.
        top_p: Of these, the fewest whose probabilities sum to at least p; 1 for all. (With `top_k=0`, of the
            `MAX_SUPPORT` most probable.)
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    @property
    def restricts(self) -> bool:
        """Whether some tokens cannot be drawn."""
        return self.top_k > 0 or self.top_p < 1.0


class Support(NamedTuple):
    """A distribution over the next token for each of n rows.

    Attributes:
        log_probs: `[n, k]`, -inf outside the support, which comes first.
        ids: Tokens these belong to, `[n, k]`; None for the whole vocabulary in its order.
        sizes: Tokens in the support of each row, `[n]`.
    """

    log_probs: Tensor
    ids: Tensor | None
    sizes: Tensor


class Drawn(NamedTuple):
    """A drawn token for each of n rows.

    Attributes:
        tokens: `[n]`.
        log_probs: Under the distribution it was drawn from, `[n]`.
    """

    tokens: Tensor
    log_probs: Tensor


def next_token_support(logits: Tensor, sampling: TokenSampling) -> Support:
    """The distribution that the next token is drawn from.

    As in transformers, temperature comes first, then top-k, then top-p on what that left. A token belongs to the
    nucleus if those before it, the more probable ones, sum to less than p; so the first always does.

    Args:
        logits: Of the vocabulary, float32, `[n, vocabulary]`.
        sampling: See `TokenSampling`.
    """
    scaled = logits / sampling.temperature
    n, vocabulary = scaled.shape
    if not sampling.restricts or (sampling.top_k >= vocabulary and sampling.top_p == 1.0):
        return Support(scaled.log_softmax(-1), None, torch.full((n,), vocabulary, device=scaled.device))
    best, ids = scaled.topk(min(sampling.top_k or MAX_SUPPORT, vocabulary), dim=-1)
    probs = best.softmax(-1)
    kept = probs.cumsum(-1) - probs < sampling.top_p
    kept[:, 0] = True
    return Support(best.masked_fill(~kept, -torch.inf).log_softmax(-1), ids, kept.sum(-1))


def draw(support: Support, uniforms: Tensor | None) -> Drawn:
    """A token for each row, by inverting the cumulative distribution.

    Args:
        support: `next_token_support`.
        uniforms: Numbers in [0, 1), `[n]`; None for the most probable token.
    """
    log_probs, ids, sizes = support
    if uniforms is None:
        place = log_probs.argmax(-1)
    else:
        wide = torch.float32 if log_probs.device.type == "mps" else torch.float64  # MPS has no float64
        cumulative = log_probs.exp().cumsum(-1, dtype=wide)
        threshold = uniforms.to(log_probs.device, wide) * cumulative[:, -1]
        place = torch.searchsorted(cumulative, threshold[:, None], right=True).squeeze(-1)
        place = torch.minimum(place, sizes - 1)
    tokens = place if ids is None else ids.gather(-1, place[:, None]).squeeze(-1)
    return Drawn(tokens, log_probs.gather(-1, place[:, None]).squeeze(-1))
