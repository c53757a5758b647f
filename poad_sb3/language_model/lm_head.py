"""Logits and statistics of a language-model head, without a table `[rows, vocabulary]` that outlives its slice.

Both passes go through the head a slice of rows at a time and write their results in place: with a large vocabulary,
moving tables through memory costs as much as the product that makes them. Logits of the first `MAX_LOGITS` are kept for
the backward pass; those of further slices are computed once more there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from poad_sb3.language_model.packing import moved

Head = Callable[[Tensor], Tensor]
"""Function from hidden states `[n, hidden]` to logits, float32, `[n, vocabulary]`, a new tensor."""

MAX_LOGITS = 1 << 24
"""Maximum number of logits that are kept for the backward pass; those of more rows are computed once more there."""
SLICE_LOGITS = 1 << 22
"""Number of logits that go through the head together. Much fewer waste the product (measured: twice the time at an
eighth)."""
_SOFT_CAPS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")
_MIN_LOG_PROB = -1e4
"""Lower bound on log-probabilities: their exp is 0 already, and times a gradient they do not overflow."""


class Picks(NamedTuple):
    """Tokens to score at each of n rows.

    Attributes:
        tokens: Token ids, flat, row by row, int64 `[m]`.
        counts: Number of tokens at each row, `[n]`.
    """

    tokens: Tensor
    counts: Sequence[int]

    @classmethod
    def of(cls, children: Sequence[Sequence[int]], device: torch.device) -> Picks:
        """Create the picks of the tokens at each row."""
        flat = torch.tensor([token for tokens in children for token in tokens], dtype=torch.int64)
        return cls(moved(flat, device), [len(tokens) for tokens in children])

    def rows(self) -> Tensor:
        """Return the row of each token, int64 `[m]`."""
        rows = torch.arange(len(self.counts)).repeat_interleave(torch.tensor(self.counts, dtype=torch.int64))
        return moved(rows, self.tokens.device)


def adjust_logits(logits: Tensor, config: Any) -> Tensor:
    """Scale and cap the output of a head, as Granite, Cohere and the Gemma models do."""
    # Each of these is a table as large as the vocabulary: not made where a model does not ask for it.
    for name, sign in (("logits_scaling", -1), ("logits_mup_width_multiplier", -1), ("logit_scale", 1)):
        scale = getattr(config, name, None)
        logits = logits * scale**sign if scale else logits
    caps = (getattr(config, name, None) for name in _SOFT_CAPS)
    cap = next((cap for cap in caps if cap is not None), None)
    return logits if cap is None else torch.tanh(logits / cap) * cap


def can_gather(head: Any) -> bool:
    """Return whether a head is a plain product with a matrix of numbers."""
    return type(head) is nn.Linear and head.weight.is_floating_point()


def all_logits(head: Any, hidden: Tensor) -> Tensor:
    """Compute the logits of the whole vocabulary, float32 `[n, vocabulary]`, before an architecture's scaling or caps.

    Args:
        head: Head of the model.
        hidden: Hidden states, `[n, hidden]`.
    """
    weight = head.weight
    typed = hidden.to(weight.dtype) if weight.is_floating_point() else hidden
    logits: Tensor = head(typed).float()
    return logits


def gathered_logits(head: Any, hidden: Tensor, picks: Picks) -> Tensor:
    """Compute the logits of the picks, float32 `[m]`, from their rows of the head only.

    Args:
        head: Head that `can_gather` accepts.
        hidden: Hidden states, `[n, hidden]`.
        picks: Tokens at each row.
    """
    weights = nn.functional.embedding(picks.tokens, head.weight)
    logits: Tensor = (hidden[picks.rows()].float() * weights.float()).sum(-1)
    return logits if head.bias is None else logits + head.bias[picks.tokens].float()


def vocabulary_statistics(
    head: Head,
    vocabulary: int,
    hidden: Tensor,
    picks: Picks,
    temperatures: Tensor | None = None,
    reference: Callable[[slice], Tensor] | None = None,
    least_slices: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute log-probabilities of some tokens under the whole vocabulary, entropies and divergences.

    With logits z, log Z = log sum exp z and p = exp(z - log Z), the gradients are those of
    d log p_k / dz = e_k - p, dH / dz = -p (log p + H), dKL(p, q) / dz = p (log p - log q - KL).

    Args:
        head: Head of the model. Its trained parameters get their gradient in the backward pass, in `.grad`.
        vocabulary: Number of logits that the head gives for a hidden state.
        hidden: Hidden states, `[n, hidden]`.
        picks: Tokens at each row.
        temperatures: Temperatures that divide the logits, `[n]`; 1 by default.
        reference: Function that returns the log-probabilities of another distribution at a slice of the rows, in a new
            tensor.
        least_slices: Minimum number of passes through the head, the last ones without rows: ranks that share the
            weights make the same number.

    Returns:
        Log-probabilities of the picks, `[m]`; entropy of each distribution in nats, `[n]`; and its divergence from the
        reference, `[n]`, 0 without one.
    """
    if torch.is_grad_enabled() and not hidden.requires_grad:
        hidden = hidden.detach().requires_grad_()  # the head alone may be trained
    query = _Query(head, vocabulary, picks, temperatures, reference, least_slices)
    log_probs, entropies, kl = _Statistics.apply(hidden, query)  # type: ignore[no-untyped-call]
    return log_probs, entropies, kl


def n_slices(n_rows: int, vocabulary: int) -> int:
    """Return the number of passes through the head for some rows."""
    return -(-n_rows // max(1, SLICE_LOGITS // vocabulary))


class _Query(NamedTuple):
    """Arguments of `vocabulary_statistics`."""

    head: Head
    vocabulary: int
    picks: Picks
    temperatures: Tensor | None
    reference: Callable[[slice], Tensor] | None
    least_slices: int

    def slices(self) -> Iterator[tuple[slice, Picks, slice]]:
        """Yield slices of the rows whose logits are in memory together, their picks, and the slice of the picks."""
        n_rows, size = len(self.picks.counts), max(1, SLICE_LOGITS // self.vocabulary)
        ends = [0, *itertools.accumulate(self.picks.counts)]
        for number in range(max(n_slices(n_rows, self.vocabulary), self.least_slices)):
            rows = slice(min(number * size, n_rows), min((number + 1) * size, n_rows))
            where = slice(ends[rows.start], ends[rows.stop])
            yield rows, Picks(self.picks.tokens[where], self.picks.counts[rows]), where

    def tempered(self, logits: Tensor, rows: slice) -> Tensor:
        """Divide logits by the temperatures of a slice."""
        return logits if self.temperatures is None else logits / self.temperatures[rows, None]


class _Statistics(torch.autograd.Function):
    """See `vocabulary_statistics`. Tensors of a slice's size are local to their own functions, to be freed early."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, query: _Query) -> tuple[Tensor, Tensor, Tensor]:
        dtype = torch.promote_types(hidden.dtype, torch.float32)
        statistics = hidden.new_zeros(3, len(hidden), dtype=dtype)  # log Z, entropies, divergences
        picked = hidden.new_zeros(len(query.picks.tokens), dtype=dtype)
        ctx.kept, room = {}, MAX_LOGITS if ctx.needs_input_grad[0] else 0
        for number, (rows, picks, where) in enumerate(query.slices()):
            room -= (rows.stop - rows.start) * query.vocabulary
            picked[where], kept = _describe(query, hidden, rows, picks, statistics[:, rows], keep=room >= 0)
            if kept is not None:
                ctx.kept[number] = kept
        norms, entropies, kls = statistics.unbind()
        ctx.save_for_backward(hidden, norms, entropies, kls)
        ctx.query = query
        return picked, entropies, kls

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        of_picks, *of_statistics = gradients
        hidden, *statistics = ctx.saved_tensors
        query: _Query = ctx.query
        result = torch.empty_like(hidden)
        for number, (rows, picks, where) in enumerate(query.slices()):
            leaf, logits = ctx.kept.pop(number, None) or _through(query.head, hidden[rows], with_gradient=True)
            given = [of_picks[where], *(gradient[rows, None] for gradient in of_statistics)]
            _go_back(query, logits, rows, picks, [statistic[rows, None] for statistic in statistics], given)
            assert leaf.grad is not None
            result[rows] = leaf.grad
            del leaf, logits  # before the next are made
        return result, None


def _describe(
    query: _Query,
    hidden: Tensor,
    rows: slice,
    picks: Picks,
    statistics: Tensor,
    *,
    keep: bool,
) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
    """Return log-probabilities of a slice's picks, and its logits to keep; write the rest to `statistics`, `[3, n]`."""
    leaf, raw = _through(query.head, hidden[rows], with_gradient=keep)
    logits = query.tempered(raw.detach(), rows)
    log_probs = logits.log_softmax(-1)
    mode = logits.argmax(-1, keepdim=True)  # where z - log p loses no digits
    statistics[0] = (logits.gather(-1, mode) - log_probs.gather(-1, mode)).squeeze(-1)
    del logits  # a table of its own where there are temperatures
    picked = log_probs[picks.rows(), picks.tokens]
    probs = log_probs.exp()
    log_probs.clamp_(min=_MIN_LOG_PROB)  # 0 times -inf is 0 here
    if query.reference is not None:
        statistics[2] = _gain(log_probs, probs, query.reference(rows)).mul_(probs).sum(-1)
    statistics[1] = -log_probs.mul_(probs).sum(-1)
    return picked, (leaf, raw) if keep else None


def _go_back(
    query: _Query, logits: Tensor, rows: slice, picks: Picks, statistics: Sequence[Tensor], gradients: Sequence[Tensor]
) -> None:
    """Send the gradients of a slice through the head: those of the picks, of entropies and divergences `[n, 1]`."""
    norms, entropies, kls = statistics
    given, of_entropies, of_kls = gradients
    log_probs = query.tempered(logits.detach(), rows) - norms
    probs = log_probs.exp()
    log_probs.clamp_(min=_MIN_LOG_PROB)
    local = picks.rows()
    taken = torch.zeros_like(norms[:, 0]).index_add_(0, local, given)
    gain = None if query.reference is None else _gain(log_probs, probs, query.reference(rows)).sub_(kls)
    slope = log_probs.add_(entropies).mul_(-of_entropies).sub_(taken[:, None])
    if gain is not None:
        slope.addcmul_(gain, of_kls)
    slope.mul_(probs).index_put_((local, picks.tokens), given, accumulate=True)
    del probs, gain
    torch.autograd.backward(logits, query.tempered(slope, rows))


def _gain(log_probs: Tensor, probs: Tensor, reference: Tensor) -> Tensor:
    """Compute `log p - log q` in place of log q; 0 where p is 0, also if q is."""
    return torch.sub(log_probs, reference, out=reference).masked_fill_(probs == 0, 0)


def _through(head: Head, hidden: Tensor, *, with_gradient: bool) -> tuple[Tensor, Tensor]:
    """Return hidden states as a leaf of a graph of their own, and their logits."""
    with torch.set_grad_enabled(with_gradient):
        start = hidden.detach().requires_grad_(with_gradient)
        return start, head(start)
