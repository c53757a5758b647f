"""Sampling of a token from the model's logits: temperature, top-k, top-p. Pure functions on tensors.

A token that is drawn from a restricted distribution keeps its *support*, the tokens of that distribution. Old and new
log-probabilities are both normalised over the stored support: with a new support for each update, an update could push
a token out of its own support, and its log-probability to minus infinity.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from poad_sb3.language_model.packing import moved
from poad_sb3.settings.sampling import SamplingSettings

__all__ = ["MAX_SUPPORT", "Support", "draw", "next_token_support"]

MAX_SUPPORT = 1024
"""Maximum number of tokens that are kept where only `top_p` restricts; each drawn token stores its support."""


class Support(NamedTuple):
    """A distribution over the next token for each of n rows.

    Attributes:
        log_probs: Log-probabilities, `[n, k]`, support first, -inf outside it.
        ids: Token ids of the log-probabilities, `[n, k]`; None for the whole vocabulary in its order.
        sizes: Number of tokens in the support of each row, `[n]`.
    """

    log_probs: Tensor
    ids: Tensor | None
    sizes: Tensor


def next_token_support(logits: Tensor, sampling: SamplingSettings) -> Support:
    """Return the distribution that the next token is drawn from.

    As in transformers, temperature comes first, then top-k, then top-p on the rest. A token belongs to the
    nucleus if those before it, the more probable ones, sum to less than p; so the first always does.

    Args:
        logits: Logits of the vocabulary, float32, `[n, vocabulary]`.
        sampling: Sampling settings: `temperature`, `top_k` and `top_p`. With `top_k=0`, the nucleus is among the
            `MAX_SUPPORT` most probable tokens.
    """
    scaled = logits / sampling.temperature
    n, vocabulary = scaled.shape
    if not sampling.restricts_tokens or (sampling.top_k >= vocabulary and sampling.top_p == 1.0):
        return Support(scaled.log_softmax(-1), None, torch.full((n,), vocabulary, device=scaled.device))
    best, ids = scaled.topk(min(sampling.top_k or MAX_SUPPORT, vocabulary), dim=-1)
    probs = best.softmax(-1)
    kept = probs.cumsum(-1) - probs < sampling.top_p
    kept[:, 0] = True
    return Support(best.masked_fill(~kept, -torch.inf).log_softmax(-1), ids, kept.sum(-1))


def draw(support: Support, uniforms: Tensor | None) -> tuple[Tensor, Tensor]:
    """Draw a token for each row, by inverting the cumulative distribution.

    Args:
        support: Distribution of each row, from `next_token_support`.
        uniforms: Random numbers in [0, 1), `[n]`; None for the most probable token.

    Returns:
        Tokens, and their log-probabilities under the distribution, `[n]` each.
    """
    log_probs, ids, sizes = support
    if uniforms is None:
        index = log_probs.argmax(-1)
    else:
        wide = torch.float32 if log_probs.device.type == "mps" else torch.float64  # MPS has no float64
        cumulative = log_probs.exp().cumsum(-1, dtype=wide)
        threshold = moved(uniforms.to(wide), log_probs.device) * cumulative[:, -1]
        index = torch.searchsorted(cumulative, threshold[:, None], right=True).squeeze(-1)
        index = torch.minimum(index, sizes - 1)
    tokens = index if ids is None else ids.gather(-1, index[:, None]).squeeze(-1)
    return tokens, log_probs.gather(-1, index[:, None]).squeeze(-1)
