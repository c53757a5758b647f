"""What the model says where there is a choice: log-probabilities and entropies, with gradient.

The rows decide which distribution that is: over the children of trie nodes, over whole candidates (TWOSOME's), or over
the whole vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from poad_sb3.candidates import Mixture, TokenIds
from poad_sb3.lm import LanguageModel
from poad_sb3.losses import segment_entropy, segment_log_softmax, segment_logsumexp
from poad_sb3.models.head import Picks
from poad_sb3.models.packing import moved
from poad_sb3.paths import DecisionRow

__all__ = [
    "Edges",
    "Reference",
    "Slots",
    "Taken",
    "edge_log_probs",
    "mixture_edges",
    "taken_log_probs",
]


class Edges(NamedTuple):
    """The distributions at the decisions of some rows, in the order of the rows and their decisions.

    Attributes:
        log_probs: Of all children, flat `[E]`.
        starts: Where the children of each decision start, `[D]`.
        entropies: Of each decision, `[D]`.
        row_entropies: Of the whole action, where a row knows it (a mixture): `[rows]`; None elsewhere.
        token_log_probs: What a mixture is made of: of all children under the whole vocabulary, flat; None elsewhere.
    """

    log_probs: Tensor
    starts: Tensor
    entropies: Tensor
    row_entropies: Tensor | None = None
    token_log_probs: Tensor | None = None


class Slots(NamedTuple):
    """Where decisions are found among rows: row, decision in the row, choice, int64 `[D]` each."""

    row: Tensor
    decision: Tensor
    choice: Tensor


class Reference(NamedTuple):
    """What the frozen base model says at some decisions: features before them, `[D, hidden]`, and their children."""

    features: Tensor
    children: Sequence[TokenIds]


class Taken(NamedTuple):
    """What was chosen at some decisions.

    Attributes:
        log_prob: Log-probability of the choice, `[D]`.
        entropy: Of each decision, `[D]`.
        action_entropy: Of the whole action, `[D]`, where a row knows it.
        kl_to_base: KL divergence from the base model's distribution over the same children, `[D]`, if asked for.
    """

    log_prob: Tensor
    entropy: Tensor
    action_entropy: Tensor | None = None
    kl_to_base: Tensor | None = None


def edge_log_probs(lm: LanguageModel, rows: Sequence[DecisionRow]) -> Edges:
    """Distributions over the children at every decision of one chunk of rows."""
    hidden = lm.hidden_states([row.row for row in rows])
    children = [tokens for row in rows for tokens in row.children]
    mixtures = [row.mixture for row in rows if row.mixture is not None]
    if mixtures:
        return mixture_edges(mixtures, lm.child_log_probs(hidden, children))
    return _child_edges(lm.child_logits(hidden, children), children, _temperatures(rows, hidden.device))


def _temperatures(rows: Sequence[DecisionRow], device: torch.device) -> Tensor:
    """Of each decision of some rows, `[D]`."""
    return moved(torch.tensor([row.temperature for row in rows for _ in row.children]), device)


def _child_edges(logits: Tensor, children: Sequence[TokenIds], temperatures: Tensor) -> Edges:
    counts = moved(torch.tensor([len(tokens) for tokens in children]), logits.device)
    return _edges(logits / temperatures.repeat_interleave(counts, output_size=len(logits)), counts)


def mixture_edges(mixtures: Sequence[Mixture], token_log_probs: Tensor) -> Edges:
    """Token conditionals of TWOSOME's distribution over whole actions, along the tries of several questions.

    Args:
        mixtures: Of the questions.
        token_log_probs: log p of every child of every node under the full vocabulary, one question after the other.
    """
    device = token_log_probs.device
    places: list[int] = []
    owners: list[int] = []
    divisors: list[float] = []
    below: list[int] = []
    edge_of: list[int] = []
    question_of: list[int] = []
    counts: list[int] = []
    first_edge = 0
    for number, mixture in enumerate(mixtures):
        first_action = len(divisors)
        for action, token_edges in enumerate(mixture.token_edges):
            places += [first_edge + edge for edge in token_edges]
            owners += [first_action + action] * len(token_edges)
        for actions in mixture.below:
            edge_of += [edge_of[-1] + 1 if edge_of else 0] * len(actions)
            below += [first_action + action for action in actions]
        divisors += mixture.divisors
        question_of += [number] * len(mixture.divisors)
        counts += mixture.counts
        first_edge += 1 + max(edge for token_edges in mixture.token_edges for edge in token_edges)
    owner = torch.tensor(owners, device=device)
    scores = token_log_probs.new_zeros(len(divisors)).index_add(0, owner, token_log_probs[places])
    scores = scores / torch.tensor(divisors, device=device, dtype=scores.dtype)
    questions = torch.tensor(question_of, device=device)
    whole = segment_log_softmax(scores, questions, len(mixtures))
    pairs = torch.tensor(edge_of, device=device, dtype=torch.int64)
    masses = segment_logsumexp(whole[below], pairs, sum(counts))
    edges = _edges(masses, torch.tensor(counts, device=device, dtype=torch.int64))
    entropies = segment_entropy(whole, questions, len(mixtures))
    return edges._replace(row_entropies=entropies, token_log_probs=token_log_probs)


def _edges(logits: Tensor, counts: Tensor) -> Edges:
    n_decisions = len(counts)
    segments = torch.arange(n_decisions, device=logits.device).repeat_interleave(counts, output_size=len(logits))
    log_probs = segment_log_softmax(logits, segments, n_decisions)
    return Edges(log_probs, counts.cumsum(0) - counts, segment_entropy(log_probs, segments, n_decisions))


def taken_log_probs(
    lm: LanguageModel, rows: Sequence[DecisionRow], slots: Slots, reference: Reference | None = None
) -> Taken:
    """What was chosen at some decisions of one chunk of rows."""
    sizes = torch.tensor([len(row.children) if row.mixture is None else len(row.mixture.counts) for row in rows])
    offsets = moved(sizes.cumsum(0) - sizes, slots.row.device)
    node = offsets[slots.row] + slots.decision
    temperatures = _temperatures(rows, slots.row.device)
    if any(row.is_open for row in rows):
        hidden = lm.hidden_states([row.row for row in rows])
        return _taken_openly(lm, hidden[node], slots.choice, temperatures[node], reference)
    edges = edge_log_probs(lm, rows)
    known = None if edges.row_entropies is None else edges.row_entropies[slots.row]
    divergence = None if reference is None else _kl_to_base(lm, edges, node, temperatures[node], reference)
    return Taken(edges.log_probs[edges.starts[node] + slots.choice], edges.entropies[node], known, divergence)


def _taken_openly(
    lm: LanguageModel, hidden: Tensor, choice: Tensor, temperatures: Tensor, reference: Reference | None
) -> Taken:
    """Choices among the whole vocabulary."""
    features = None if reference is None else reference.features
    known = lm.statistics(hidden, Picks(choice, [1] * len(choice)), temperatures, features)
    return Taken(known.log_probs, known.entropies, None, None if reference is None else known.kl)


def _kl_to_base(lm: LanguageModel, edges: Edges, node: Tensor, temperatures: Tensor, reference: Reference) -> Tensor:
    with torch.no_grad():
        logits = lm.child_logits(reference.features, reference.children, frozen=True)
        base = _child_edges(logits, reference.children, temperatures).log_probs
    counts = torch.tensor([len(tokens) for tokens in reference.children], device=node.device)
    of = torch.repeat_interleave(torch.arange(len(counts), device=node.device), counts)
    within = torch.arange(len(of), device=node.device) - (counts.cumsum(0) - counts)[of]
    ours = edges.log_probs[edges.starts[node][of] + within]
    return ours.new_zeros(len(counts)).index_add(0, of, ours.exp() * (ours - base))
