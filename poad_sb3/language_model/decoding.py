"""Continuing several prompts token by token: with a key-value cache, or by whole passes where a model has none."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from poad_sb3.language_model.forward import attention_bias, decoder_of
from poad_sb3.language_model.packing import TokenIds, TokenRow, moved, pack


class Decoding(ABC):
    """Prompts that are being continued.

    Attributes:
        hidden: Last hidden state of each prompt, `[n, hidden_size]`.
    """

    hidden: Tensor

    def read(self, rows: Sequence[int], continued: Sequence[TokenRow]) -> Tensor:
        """Compute hidden states behind some of the prompts, which stay as they are; see `LanguageModel.shares_keys`.

        Args:
            rows: Indices of the prompts.
            continued: Prompts with their continuations, sequences or trees; all reads are behind the prompts.

        Returns:
            Hidden states at the reads, `[total reads, hidden_size]`.
        """
        raise NotImplementedError

    @abstractmethod
    def advance(self, keep: Sequence[int], tokens: Sequence[int]) -> None:
        """Append one token to some of the prompts; the rest are finished and dropped.

        Args:
            keep: Indices of the prompts to continue, ascending; they are renumbered from 0.
            tokens: Next token of each prompt that continues.
        """


class CachedDecoding(Decoding):
    """One pass over the prompts, equal ones once, then one position per token.

    Prompts are padded on the left, so that the next token of all of them is in one column; the mask hides the padding
    and positions count from each prompt's own start.

    Args:
        base: Transformers model, with its adapter in the wanted state.
        prompts: Token ids of the prompts, at least one each.
        takes_bias: Whether the model takes the mask of `attention_bias`; else it makes one from the padding at every
            token.
        enter: Function that calls its first argument with the remaining ones, as `LanguageModel` does.
    """

    def __init__(
        self,
        base: Any,
        prompts: Sequence[TokenIds],
        *,
        takes_bias: bool = False,
        enter: Callable[..., Any] = lambda run, *args: run(*args),
    ) -> None:
        self._base, self._takes_bias, self._enter, device = base, takes_bias, enter, base.device
        numbers = {prompt: number for number, prompt in enumerate(dict.fromkeys(prompts))}
        longest = max(map(len, prompts))
        ids = moved(torch.tensor([[*[0] * (longest - len(prompt)), *prompt] for prompt in numbers]), device)
        lengths = moved(torch.tensor([len(prompt) for prompt in numbers]), device)
        self._mask = (torch.arange(longest, device=device) >= longest - lengths[:, None]).long()
        self._cache = DynamicCache(config=base.config.get_text_config())
        self._next = lengths
        positions = (self._mask.cumsum(-1) - 1).clamp(min=0)
        self._run(ids, positions, self._mask)
        if len(numbers) < len(prompts):
            self.hidden = self.hidden[self._select([numbers[prompt] for prompt in prompts])]

    def _select(self, rows: Sequence[int]) -> Tensor:
        kept = moved(torch.tensor(rows), self._mask.device)
        self._cache.batch_select_indices(kept)
        self._mask, self._next = self._mask[kept], self._next[kept]
        return kept

    def advance(self, keep: Sequence[int], tokens: Sequence[int]) -> None:
        """See `Decoding.advance`."""
        if len(keep) < len(self._next):
            self._select(keep)
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(keep), 1)], dim=-1)
        self._step(moved(torch.tensor(tokens), self._mask.device))
        self._next = self._next + 1

    def read(self, rows: Sequence[int], continued: Sequence[TokenRow]) -> Tensor:
        """See `Decoding.read`; a pass of the new tokens alone."""
        device = self._mask.device
        kept = moved(torch.tensor(rows), device)
        packed = pack([_tail(*pair) for pair in zip(continued, self._next[kept].tolist(), strict=True)])
        n, length = packed.ids.shape
        seen = torch.ones(n, length, length).tril() if packed.seen is None else packed.seen
        past = self._mask[kept, None].expand(-1, length, -1).bool()
        bias = attention_bias(torch.cat([past, moved(seen.bool(), device)], dim=-1), self._base)
        cache = copy.copy(self._cache)  # layers get new tensors where they grow or rows are selected
        cache.layers = [*map(copy.copy, cache.layers)]
        if len(rows) < len(self._next):
            cache.batch_select_indices(kept)
        positions = moved(packed.positions, device) + self._next[kept, None]
        hidden: Tensor = self._enter(self._hidden, moved(packed.ids, device), positions, bias, cache)
        return hidden[moved(packed.batch, device), moved(packed.place, device)]

    def _step(self, tokens: Tensor) -> None:
        self._run(tokens[:, None], self._next[:, None], self._bias() if self._takes_bias else self._mask)

    def _bias(self) -> Tensor:
        """Return the additive attention mask of one token of each row, `[n, 1, 1, length]`."""
        return attention_bias(self._mask[:, None].bool(), self._base)

    def _run(self, ids: Tensor, positions: Tensor, mask: Tensor) -> None:
        self.hidden = self._enter(self._hidden, ids, positions, mask, self._cache)[:, -1]

    def _hidden(self, ids: Tensor, positions: Tensor, mask: Tensor, cache: DynamicCache) -> Tensor:
        output = decoder_of(self._base)(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
        )
        hidden: Tensor = output.last_hidden_state
        return hidden


class PlainDecoding(Decoding):
    """Every token by a pass over all before it: slow, and right for every architecture.

    Args:
        hidden_states: Function from rows to the hidden states at their reads.
        prompts: Token ids of the prompts, at least one each.
    """

    def __init__(self, hidden_states: Callable[[Sequence[TokenRow]], Tensor], prompts: Sequence[TokenIds]) -> None:
        self._hidden_states, self._tokens = hidden_states, list(prompts)
        self._run()

    def advance(self, keep: Sequence[int], tokens: Sequence[int]) -> None:
        """See `Decoding.advance`."""
        self._tokens = [(*self._tokens[index], token) for index, token in zip(keep, tokens, strict=True)]
        self._run()

    def _run(self) -> None:
        self.hidden = self._hidden_states([TokenRow(sequence, None, (len(sequence) - 1,)) for sequence in self._tokens])


def _tail(row: TokenRow, start: int) -> TokenRow:
    """Return the tokens of a row from `start` on, before which it does not branch, as a row of their own."""
    parents = None if row.parents is None else tuple(max(parent - start, -1) for parent in row.parents[start:])
    return TokenRow(row.tokens[start:], parents, tuple(read - start for read in row.reads))
