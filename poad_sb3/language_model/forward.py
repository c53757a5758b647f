"""A forward pass of packed rows through a decoder, and the division of rows into passes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from poad_sb3.language_model.packing import Group, Packed, moved


def passes_of(groups: Sequence[Group], limit: int) -> Iterator[list[Group]]:
    """Group rows of similar sizes: at most `limit` tokens with padding, at least one row in each group."""
    ordered = sorted(groups, key=lambda group: group.size, reverse=True)
    start = 0
    while start < len(ordered):
        count = max(1, limit // ordered[start].size)
        yield ordered[start : start + count]
        start += count


def parts_of(sizes: Sequence[int], n_parts: int, min_size: int) -> list[list[int]]:
    """Cut work into parts of about the same size, in its order; the cut does not depend on the ranks that do them.

    Where parts would be smaller than `min_size`, only every second is filled, or every fourth, and so on: a small pass
    costs almost as much as a large one.

    Args:
        sizes: Size of each piece of work.
        n_parts: Number of parts, a power of two.
        min_size: Minimum size that is worth a part of its own.

    Returns:
        Indices of the pieces in each part.
    """
    ends = list(itertools.accumulate(sizes))
    n_filled = n_parts
    while n_filled > 1 and (not ends or ends[-1] < n_filled * min_size):
        n_filled //= 2
    parts: list[list[int]] = [[] for _ in range(n_parts)]
    for index, end in enumerate(ends):
        middle = end - sizes[index] / 2
        parts[int(middle * n_filled / ends[-1]) * (n_parts // n_filled)].append(index)
    return parts


def decoder_of(base: Any) -> Any:
    """Return the decoder of a model; `get_decoder` returns Llama 4 itself, and the head of ModernBERT."""
    decoder = base.get_decoder()
    return base.model if decoder is base or decoder is base.get_output_embeddings() else decoder


def decoder_pass(model: Any, packed: Packed) -> Tensor:
    """Return the last hidden states at the positions that are read, `[reads, hidden_size]`.

    Args:
        model: Transformers model.
        packed: Rows of the pass.
    """
    output = decoder_of(model)(
        input_ids=moved(packed.ids, model.device),
        attention_mask=None if packed.seen is None else attention_bias(packed.seen, model),
        position_ids=moved(packed.positions, model.device),
        use_cache=False,
    )
    read = moved(torch.stack([packed.batch, packed.place]), model.device)
    hidden: Tensor = output.last_hidden_state[read[0], read[1]]
    return hidden


def attention_bias(visible: Tensor, model: Any) -> Tensor:
    """Return the additive attention mask, `[rows, 1, queries, keys]`: 0 where visible, the least number elsewhere.

    Args:
        visible: Whether a query sees a key, bool `[rows, queries, keys]`.
        model: Model that determines dtype and device of the mask.
    """
    unseen = ~moved(visible, model.device)[:, None]
    mask = torch.zeros(unseen.shape, dtype=model.dtype, device=model.device)
    return mask.masked_fill_(unseen, torch.finfo(model.dtype).min)
