"""Token rows: what goes through the model in one pass, as sequences or as packed trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Packed", "TokenRow", "pack", "path_to"]

TokenIds = tuple[int, ...]


class TokenRow(NamedTuple):
    """Tokens for one pass through the model.

    Attributes:
        tokens: Token ids.
        parents: Position each token follows; None for an ordinary sequence, where that is the one before it. With a
            branching row, several continuations share one prefix: every token attends to its ancestors only.
        reads: Positions whose hidden states are wanted.
    """

    tokens: TokenIds
    parents: TokenIds | None
    reads: TokenIds


class Packed(NamedTuple):
    """Rows as tensors, right-padded.

    Attributes:
        ids: Token ids, `[rows, longest]`.
        positions: Position of each token in its own sequence, `[rows, longest]`.
        seen: Which positions each position attends to, bool `[rows, longest, longest]`; None for plain causal rows.
        deepest: Tokens of the longest sequence.
    """

    ids: Tensor
    positions: Tensor
    seen: Tensor | None
    deepest: int


def pack(rows: Sequence[TokenRow]) -> Packed:
    """Rows as tensors.

    Behind a causal mask right padding cannot be seen from any real position, so ordinary rows need no mask. Their
    padding goes on counting positions: a position that starts anew would look like a second, packed sequence.
    """
    longest = max(len(row.tokens) for row in rows)
    ids = torch.tensor([[*row.tokens, *[0] * (longest - len(row.tokens))] for row in rows])
    if all(row.parents is None for row in rows):
        return Packed(ids, torch.arange(longest).expand(len(rows), -1), None, longest)
    depths = [_depths(row) for row in rows]
    positions = torch.tensor([[*depth, *[0] * (longest - len(depth))] for depth in depths])
    seen = torch.stack([_ancestors(row, longest) for row in rows])
    return Packed(ids, positions, seen, max(map(max, depths)) + 1)


def path_to(row: TokenRow, read: int) -> TokenRow:
    """An ordinary row that ends at one read of a branching one."""
    tokens: list[int] = []
    place = read
    while place >= 0:
        tokens.append(row.tokens[place])
        place = place - 1 if row.parents is None else row.parents[place]
    return TokenRow(tuple(reversed(tokens)), None, (len(tokens) - 1,))


def _depths(row: TokenRow) -> list[int]:
    if row.parents is None:
        return list(range(len(row.tokens)))
    depths: list[int] = []
    for parent in row.parents:
        depths.append(depths[parent] + 1 if parent >= 0 else 0)
    return depths


def _ancestors(row: TokenRow, longest: int) -> Tensor:
    """Boolean `[longest, longest]`: which positions each position attends to (itself and what it follows)."""
    if row.parents is None:
        return torch.ones(longest, longest, dtype=torch.bool).tril()
    seen = torch.eye(longest, dtype=torch.bool)
    for position, parent in enumerate(row.parents):
        if parent >= 0:
            seen[position] |= seen[parent]
    return seen
