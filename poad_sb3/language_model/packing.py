"""Token rows: the input of one forward pass, as sequences or as packed trees.

Prompts of an episode, and actions after one prompt, begin alike. A transformer with a mask over ancestors computes such
a beginning once, and in the backward pass sums the gradients of all continuations there. `groups_of` decides on the
rows to merge, `pack` merges them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

TokenIds = tuple[int, ...]
Ints = NDArray[np.int64]

_WIDTHS_PER_TOKEN = 6
"""Number of attended tokens that double the cost of a token, in widths h of a layer: a token costs 24 h^2 operations in
the matrices of the layer (4 h^2 weights of attention, 8 h^2 of the MLP, two operations each), and attention 4 h for
each token that it may look at: as much again if these are 6 h."""


class TokenRow(NamedTuple):
    """Tokens for one pass through the model.

    Attributes:
        tokens: Token ids.
        parents: Position that each token follows; None for an ordinary sequence, each after the one before. With a
            branching row, several continuations share one prefix: every token attends to its ancestors only.
        reads: Positions whose hidden states are wanted.
    """

    tokens: TokenIds
    parents: TokenIds | None
    reads: TokenIds


class Packed(NamedTuple):
    """Rows as tensors, right-padded.

    Attributes:
        ids: Token ids, `[groups, longest]`.
        positions: Position of each token in its own sequence, `[groups, longest]`.
        seen: Whether a position attends to another, bool `[groups, longest, longest]`; None for plain causal rows.
        deepest: Number of tokens of the longest sequence.
        batch: Group of each read, in the order of the rows and their reads.
        place: Position of each read in its group.
    """

    ids: Tensor
    positions: Tensor
    seen: Tensor | None
    deepest: int
    batch: Tensor
    place: Tensor


class Group(NamedTuple):
    """Rows that are merged into one tree.

    Attributes:
        rows: Numbers of the rows, sorted by tokens.
        shared: Number of first tokens that each row shares with the row before it.
        size: Number of tokens of the tree.
    """

    rows: list[int]
    shared: list[int]
    size: int


def groups_of(rows: Sequence[TokenRow], width: int, limit: int) -> list[Group]:
    """Merge rows that begin alike, as far as it pays.

    In a tree of n tokens each is compared with all, so a tree costs n (1 + n / 6 h) where h is the width of the model.
    Rows are taken in the order of their tokens; one joins the tree before it if that is cheaper than to stand alone.

    Args:
        rows: Rows to merge, sequences or trees.
        width: Hidden size of the model; 0 if it cannot attend to trees, so that every row stands alone.
        limit: Maximum number of tokens of a tree that more rows may join.

    Returns:
        Groups of rows; each row is in one group.
    """
    if not width:
        return [Group([index], [0], len(row.tokens)) for index, row in enumerate(rows)]
    order = sorted(range(len(rows)), key=lambda index: rows[index].tokens)
    groups: list[Group] = []
    for number, index in enumerate(order):
        length = len(rows[index].tokens)
        shared = _shared(rows[order[number - 1]], rows[index]) if number else 0
        if shared:
            rows_there, shares, size = groups[-1]
            grown = size + length - shared
            if grown <= limit and _cost(grown, width) < _cost(size, width) + _cost(length, width):
                groups[-1] = Group([*rows_there, index], [*shares, shared], grown)
                continue
        groups.append(Group([index], [0], length))
    return groups


def _cost(n_tokens: int, width: int) -> float:
    return n_tokens * (1 + n_tokens / (_WIDTHS_PER_TOKEN * width))


def _shared(first: TokenRow, second: TokenRow) -> int:
    """Return the number of tokens that two rows begin with alike, before either of them branches."""
    longest = min(_unbranched(first), _unbranched(second))
    left, right = (np.fromiter(row.tokens[:longest], np.int64, longest) for row in (first, second))
    different = np.flatnonzero(left != right)
    return int(different[0]) if len(different) else longest


def _unbranched(row: TokenRow) -> int:
    """Return the number of tokens before the first that does not follow the one before it."""
    if row.parents is None:
        return len(row.tokens)
    steps = np.fromiter(row.parents, np.int64, len(row.parents)) != np.arange(-1, len(row.parents) - 1)
    return int(steps.argmax()) if steps.any() else len(row.parents)


def pack(rows: Sequence[TokenRow], groups: Sequence[Group] | None = None) -> Packed:
    """Convert rows to tensors.

    Behind a causal mask right padding cannot be seen from any real position, so ordinary rows need no mask. Positions
    continue through the padding: a position that starts again at 0 would look like a second, packed sequence.

    Args:
        rows: Rows to pack, sequences or trees.
        groups: Groups of rows to merge; none by default.
    """
    groups = groups_of(rows, 0, 0) if groups is None else groups
    longest = max(group.size for group in groups)
    ids = np.zeros((len(groups), longest), dtype=np.int64)
    batch, read_at = [np.empty(0, np.int64)] * len(rows), [np.empty(0, np.int64)] * len(rows)
    parents_of: list[Ints] = []
    for number, group in enumerate(groups):
        tokens, parents, places = _merge(rows, group)
        ids[number, : group.size] = tokens
        parents_of.append(parents)
        for index, at in zip(group.rows, places, strict=True):
            read_at[index] = at[list(rows[index].reads)]
            batch[index] = np.full(len(rows[index].reads), number)
    reads = (torch.from_numpy(np.concatenate(part)) for part in (batch, read_at))
    if all((parents == np.arange(-1, len(parents) - 1)).all() for parents in parents_of):  # ordinary sequences
        positions = torch.arange(longest).expand(len(groups), -1)
        return Packed(torch.from_numpy(ids), positions, None, longest, *reads)
    depths = np.zeros((len(groups), longest), dtype=np.int64)
    visible = np.broadcast_to(np.eye(longest, dtype=bool), (len(groups), longest, longest)).copy()
    for number, (group, parents) in enumerate(zip(groups, parents_of, strict=True)):
        depths[number, : group.size] = _mark_ancestors(parents, visible[number])
    deepest = int(depths.max()) + 1
    return Packed(torch.from_numpy(ids), torch.from_numpy(depths), torch.from_numpy(visible), deepest, *reads)


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor of the host to a device, without waiting for work queued there."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.contiguous().pin_memory()  # an expanded one cannot be pinned
    return tensor.to(device, non_blocking=device.type == "cuda")


def _merge(rows: Sequence[TokenRow], group: Group) -> tuple[Ints, Ints, list[Ints]]:
    """Return tokens and parents of the tree of a group, and the places of each row's tokens in it."""
    tokens, parents = np.empty(group.size, np.int64), np.empty(group.size, np.int64)
    places: list[Ints] = []
    size = 0
    for index, shared in zip(group.rows, group.shared, strict=True):
        row = rows[index]
        added = len(row.tokens) - shared
        at = np.arange(size - shared, size + added)
        if shared:
            at[:shared] = places[-1][:shared]
        follows = np.arange(shared - 1, len(row.tokens) - 1)
        if row.parents is not None:
            follows = np.asarray(row.parents[shared:], dtype=np.int64)
        tokens[size : size + added] = row.tokens[shared:]
        parents[size : size + added] = np.where(follows < 0, -1, at[follows])
        places.append(at)
        size += added
    return tokens, parents, places


def _mark_ancestors(parents: Ints, visible: NDArray[np.bool_]) -> Ints:
    """Mark in `visible` the positions that each position attends to, itself and its ancestors; return the depths."""
    depths = np.empty(len(parents), dtype=np.int64)
    starts = np.flatnonzero(parents != np.arange(-1, len(parents) - 1))
    starts = np.unique(np.concatenate([[0], starts, [len(parents)]]))
    for start, end in itertools.pairwise(starts.tolist()):
        parent = parents[start]
        if parent >= 0:
            visible[start:end] |= visible[parent]
        visible[start:end, start:end] |= np.tri(end - start, dtype=bool)
        depths[start:end] = np.arange(end - start) + (depths[parent] + 1 if parent >= 0 else 0)
    return depths


def tree_row(prompt: TokenIds, prefixes: Sequence[TokenIds]) -> TokenRow:
    """Return the row that reads the end of each of some prefixes after a prompt; shared beginnings occur in it once."""
    needed = {prefix[:n] for prefix in prefixes for n in range(1, len(prefix) + 1)}
    ordered = sorted(needed, key=lambda prefix: (len(prefix), prefix))
    index_of = {prefix: len(prompt) + number for number, prefix in enumerate(((), *ordered), start=-1)}
    parents = (*range(-1, len(prompt) - 1), *(index_of[prefix[:-1]] for prefix in ordered))
    tokens = (*prompt, *(prefix[-1] for prefix in ordered))
    return TokenRow(tokens, parents if ordered else None, tuple(index_of[prefix] for prefix in prefixes))


def path_to(row: TokenRow, read: int) -> TokenRow:
    """Return an ordinary row that ends at one read of a branching one."""
    tokens: list[int] = []
    index = read
    while index >= 0:
        tokens.append(row.tokens[index])
        index = index - 1 if row.parents is None else row.parents[index]
    return TokenRow(tuple(reversed(tokens)), None, (len(tokens) - 1,))
