"""One pass of packed rows through a decoder, and which rows share one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from poad_sb3.models.last_layer import decoder_of, last_layer_of, reading_only
from poad_sb3.models.packing import Group, Packed, moved

__all__ = ["attention_bias", "decoder_pass", "passes_of"]


def passes_of(groups: Sequence[Group], limit: int) -> Iterator[list[Group]]:
    """Groups that go through a model together: of similar sizes, `limit` tokens with their padding, at least one."""
    ordered = sorted(groups, key=lambda group: group.size, reverse=True)
    start = 0
    while start < len(ordered):
        count = max(1, limit // ordered[start].size)
        yield ordered[start : start + count]
        start += count


def decoder_pass(model: Any, packed: Packed, *, trim: bool) -> Tensor:  # noqa: ANN401 - transformers has no types
    """Last hidden states at the positions that are read, `[reads, hidden_size]`.

    Args:
        model: A transformers model.
        packed: What goes through it.
        trim: Whether the last layer may compute only what is read; it does where that is at most half.
    """
    place = packed.place
    trimmed: AbstractContextManager[None] = nullcontext()
    if trim and 0 < 2 * packed.most_reads() <= packed.ids.shape[1]:
        at, place = packed.reads()
        seen = attention_bias(packed.seen_from(at), model)
        trimmed = reading_only(last_layer_of(model), moved(at, model.device), seen)
    with trimmed:
        output = decoder_of(model)(
            input_ids=moved(packed.ids, model.device),
            attention_mask=None if packed.seen is None else attention_bias(packed.seen, model),
            position_ids=moved(packed.positions, model.device),
            use_cache=False,
        )
    read = moved(torch.stack([packed.batch, place]), model.device)
    hidden: Tensor = output.last_hidden_state[read[0], read[1]]
    return hidden


def attention_bias(seen: Tensor, model: Any) -> Tensor:  # noqa: ANN401 - as above
    """What is added to attention scores, `[rows, 1, ...]`: 0 where something is seen, the least number elsewhere.

    Args:
        seen: Which tokens see which, bool `[rows, queries, keys]`.
        model: Whose dtype and device it shall have.
    """
    unseen = ~moved(seen, model.device)[:, None]
    mask = torch.zeros(unseen.shape, dtype=model.dtype, device=model.device)
    return mask.masked_fill_(unseen, torch.finfo(model.dtype).min)
