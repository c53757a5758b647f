"""The token trie of admissible actions: its branch points, and the probabilities of actions.

At each node of the trie the next-token distribution is the model's, restricted to the node's children and
renormalised. A node with one child is *forced*: its token has log-probability 0. A node with several is a *decision*.
Everything here is structure and numpy; no model.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "ActionTrie",
    "Decision",
    "Mixture",
    "build_mixture",
    "build_trie",
    "path_log_probs",
    "sample_index",
]

TokenIds = tuple[int, ...]


class Decision(NamedTuple):
    """A token with alternatives, on the path of one action.

    Attributes:
        position: Index of the token in the action, from 0.
        children: Token ids to choose from, ascending.
        choice: Index in `children` of this action's token.
    """

    position: int
    children: TokenIds
    choice: int


class ActionTrie(NamedTuple):
    """Admissible actions as token sequences, and their decisions.

    Attributes:
        sequences: Token ids of each action, its end token included.
        decisions: Decisions on the path of each action.
        edges: Place of each decision of each action in the flat vector of all decision nodes' children.
        nodes: Number of the node of each decision of each action, among the decision nodes.
        branches: Children of each decision node, by the tokens that lead there.
    """

    sequences: tuple[TokenIds, ...]
    decisions: tuple[tuple[Decision, ...], ...]
    edges: tuple[tuple[int, ...], ...]
    nodes: tuple[tuple[int, ...], ...]
    branches: Mapping[TokenIds, TokenIds]


class Mixture(NamedTuple):
    """Mixture of whole actions (TWOSOME): their probabilities, made of the model's token probabilities.

    mu(a) = softmax over a of s(a), s(a) = sum_j log p(w_j | o, w_<j) / N(a). Along the trie it has token conditionals:
    mu(w | prefix) = sum of mu over the actions below prefix w, divided by that below the prefix.

    Attributes:
        token_edges: Places of the tokens of each action in the flat vector of all nodes' children.
        divisors: Divisor N(a) of each action.
        below: Actions below each child of each decision node.
        counts: Number of children of each decision node.
    """

    token_edges: tuple[tuple[int, ...], ...]
    divisors: tuple[float, ...]
    below: tuple[tuple[int, ...], ...]
    counts: tuple[int, ...]


def build_trie(sequences: tuple[TokenIds, ...]) -> ActionTrie:
    """Build the trie of a list of actions.

    Args:
        sequences: Token ids of each action with its end token.

    Raises:
        ValueError: If the list is empty, or an action is empty, repeated, or the beginning of another.
    """
    _check_sequences(sequences)
    children = _children_of(sequences)
    nodes = {prefix: tokens for prefix, tokens in children.items() if len(tokens) > 1}
    offsets: dict[TokenIds, int] = {}
    n_edges = 0
    for prefix, tokens in nodes.items():
        offsets[prefix] = n_edges
        n_edges += len(tokens)
    numbers = {prefix: number for number, prefix in enumerate(nodes)}
    decisions, edges, visited = [], [], []
    for sequence in sequences:
        path = [(j, sequence[:j]) for j in range(len(sequence)) if sequence[:j] in nodes]
        choices = [nodes[prefix].index(sequence[j]) for j, prefix in path]
        decisions.append(tuple(Decision(j, nodes[p], c) for (j, p), c in zip(path, choices, strict=True)))
        edges.append(tuple(offsets[p] + c for (_, p), c in zip(path, choices, strict=True)))
        visited.append(tuple(numbers[p] for _, p in path))
    return ActionTrie(sequences, tuple(decisions), tuple(edges), tuple(visited), nodes)


def build_mixture(trie: ActionTrie, divisors: Sequence[float]) -> tuple[dict[TokenIds, TokenIds], Mixture]:
    """Return the children of all nodes of a trie, and the mixture that makes a softmax over whole actions of them.

    Args:
        trie: Trie of the actions.
        divisors: Divisor N(a) of each action, positive.

    Returns:
        Children of each node, forced ones too, by the tokens that lead there; and the mixture.
    """
    children = _children_of(trie.sequences)
    offsets: dict[TokenIds, int] = {}
    n_edges = 0
    for prefix, tokens in children.items():
        offsets[prefix] = n_edges
        n_edges += len(tokens)
    token_edges = tuple(
        tuple(offsets[sequence[:j]] + children[sequence[:j]].index(token) for j, token in enumerate(sequence))
        for sequence in trie.sequences
    )
    below: dict[int, list[int]] = {}
    for action, edges in enumerate(trie.edges):
        for edge in edges:
            below.setdefault(edge, []).append(action)
    counts = tuple(len(tokens) for tokens in children.values() if len(tokens) > 1)
    return children, Mixture(token_edges, tuple(divisors), tuple(tuple(below[e]) for e in range(len(below))), counts)


def path_log_probs(trie: ActionTrie, edge_log_probs: NDArray[np.floating], action: int) -> NDArray[np.float32]:
    """Return the log-probability of each token of one action, `[n_tokens]`; 0 at forced tokens."""
    log_probs = np.zeros(len(trie.sequences[action]), dtype=np.float32)
    for decision, edge in zip(trie.decisions[action], trie.edges[action], strict=True):
        log_probs[decision.position] = edge_log_probs[edge]
    return log_probs


def action_log_probs(trie: ActionTrie, edge_log_probs: NDArray[np.floating]) -> NDArray[np.float64]:
    """Compute the log-probability of every action, `[n_actions]`, float64; the probabilities sum to 1."""
    wide = np.asarray(edge_log_probs, dtype=np.float64)
    return np.array([wide[list(edges)].sum() for edges in trie.edges])


def sample_index(log_probs: NDArray[np.float64], rng: np.random.Generator) -> int:
    """Draw an index with probability exp(log_probs), by inverting the cumulative distribution.

    Raises:
        FloatingPointError: If the probabilities are not finite.
    """
    cumulative = np.cumsum(np.exp(log_probs))
    if not np.isfinite(cumulative[-1]) or cumulative[-1] <= 0:
        raise FloatingPointError(
            f"Expected finite log-probabilities of actions; got {np.array2string(log_probs, threshold=8)}. "
            "Fix: the model diverged; lower the learning rate and continue from a checkpoint."
        )
    return int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right").clip(max=len(log_probs) - 1))


def _check_sequences(sequences: tuple[TokenIds, ...]) -> None:
    if not sequences or not all(sequences):
        raise ValueError(
            f"Expected at least one admissible action, each of at least one token; got {sequences}. "
            "Fix: check info['admissible_actions'] of the environment."
        )
    ordered = sorted(sequences)
    for shorter, longer in itertools.pairwise(ordered):
        if longer[: len(shorter)] == shorter:
            raise ValueError(
                f"Expected distinct actions, none the beginning of another; got token sequences {shorter} and "
                f"{longer}. Fix: remove repeated actions, and let every action end with the end token."
            )


def _children_of(sequences: Sequence[TokenIds]) -> dict[TokenIds, TokenIds]:
    children: dict[TokenIds, set[int]] = {}
    for sequence in sequences:
        for j, token in enumerate(sequence):
            children.setdefault(sequence[:j], set()).add(token)
    return {prefix: tuple(sorted(tokens)) for prefix, tokens in children.items()}
