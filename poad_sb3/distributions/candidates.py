"""`CandidateDistribution`: TWOSOME's softmax over whole admissible actions, by its token conditionals."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from poad_sb3.credit.losses import segment_entropy, segment_log_softmax, segment_logsumexp
from poad_sb3.distributions.action_trie import Mixture, build_mixture
from poad_sb3.distributions.base import DecisionRow, Edges, TokenPath, edges_of
from poad_sb3.distributions.trie import TokenizedActions, TokenizedQuestion, TrieDistribution, trie_of
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.language_model.packing import moved
from poad_sb3.settings.sampling import Normalization

__all__ = ["CandidateDistribution", "mixture_edges"]


class CandidateDistribution(TrieDistribution):
    """A softmax over s(a) = log p(a) / (N(a) temperature) of whole actions (TWOSOME), sampled along the trie.

    Args:
        lm: Language model.
        normalization: Kind of the divisor N(a).
        temperature: Sampling temperature, which divides the scores s(a).
    """

    def __init__(self, lm: LanguageModel, normalization: Normalization, temperature: float = 1.0) -> None:
        super().__init__(lm, temperature)
        self._normalization = normalization

    def edges(self, rows: Sequence[DecisionRow]) -> Edges:
        """See `ActionDistribution.edges`."""
        mixtures = [row.mixture for row in rows if row.mixture is not None]
        if not mixtures:
            return super().edges(rows)
        hidden = self.lm.hidden_states([row.row for row in rows])
        return mixture_edges(mixtures, self.lm.child_log_probs(hidden, [ids for row in rows for ids in row.children]))

    def _tokenized_actions(self, actions: tuple[str, ...] | None) -> TokenizedActions:
        trie = trie_of(self.lm, actions)
        if len(trie.sequences) == 1:  # a single action is not scored
            return TokenizedActions(trie, {})
        pairs = zip(actions or (), trie.sequences, strict=True)
        divisors = [self.temperature * self._normalization.of(text, ids) for text, ids in pairs]
        return TokenizedActions(trie, *build_mixture(trie, divisors))

    def _path(self, tokenized: TokenizedQuestion, pick: int) -> TokenPath:
        return super()._path(tokenized, pick)._replace(row=tokenized.row, nodes=tokenized.trie.nodes[pick])


def mixture_edges(mixtures: Sequence[Mixture], token_log_probs: Tensor) -> Edges:
    """Return the token conditionals of TWOSOME's distribution over whole actions, along the tries of some questions.

    Args:
        mixtures: Mixture of each question.
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
    of_tokens = moved(torch.tensor([places, owners]), device)
    scores = token_log_probs.new_zeros(len(divisors)).index_add(0, of_tokens[1], token_log_probs[of_tokens[0]])
    scores = scores / moved(torch.tensor(divisors, dtype=scores.dtype), device)
    questions = moved(torch.tensor(question_of), device)
    whole = segment_log_softmax(scores, questions, len(mixtures))
    of_pairs = moved(torch.tensor([below, edge_of], dtype=torch.int64), device)
    masses = segment_logsumexp(whole[of_pairs[0]], of_pairs[1], sum(counts))
    edges = edges_of(masses, moved(torch.tensor(counts, dtype=torch.int64), device))
    return edges._replace(row_entropies=segment_entropy(whole, questions, len(mixtures)))
