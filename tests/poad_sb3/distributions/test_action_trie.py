from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy import properties

from poad_sb3.distributions.action_trie import ActionTrie, action_log_probs, build_trie, sample_index
from poad_sb3.language_model.packing import path_to, tree_row

END, VOCABULARY = 4, 18
TOKENS = (0, 8, 1, 17)  # a Python set of these does not iterate in their order
Sequences = tuple[tuple[int, ...], ...]

texts = st.lists(st.lists(st.sampled_from(TOKENS), max_size=4).map(tuple), min_size=1, max_size=9, unique=True)
prefix_free = texts.map(lambda many: tuple((*text, END) for text in many))


def next_token_probabilities(prefix: tuple[int, ...], seed: int) -> np.ndarray:
    """A toy language model: some distribution over the vocabulary after every prefix."""
    return np.random.default_rng([seed, len(prefix), *prefix]).dirichlet(np.full(VOCABULARY, 0.5)) + 1e-6


def children_after(prefix: tuple[int, ...], sequences: Sequences) -> set[int]:
    n = len(prefix)
    return {other[n] for other in sequences if len(other) > n and other[:n] == prefix}


def brute_force(sequences: Sequences, seed: int) -> list[float]:
    """Walk the admissible texts token by token, the toy model restricted to continuations of these."""
    probabilities = []
    for sequence in sequences:
        probability = 1.0
        for j, token in enumerate(sequence):
            p = next_token_probabilities(sequence[:j], seed)
            probability *= p[token] / sum(p[child] for child in children_after(sequence[:j], sequences))
        probabilities.append(probability)
    return probabilities


def edge_log_probs(trie: ActionTrie, seed: int) -> np.ndarray:
    """Answer of a model run over the tree: the restricted distribution of every query, end to end."""
    edges: list[float] = []
    for prefix, children in trie.branches.items():
        p = next_token_probabilities(prefix, seed)[list(children)]
        edges += np.log(p / p.sum()).tolist()
    return np.array(edges)


@properties
@given(sequences=prefix_free, seed=st.integers(0, 1000))
def test_probabilities_of_actions_are_the_renormalised_tree(sequences: Sequences, seed: int) -> None:
    trie = build_trie(sequences)
    probabilities = np.exp(action_log_probs(trie, edge_log_probs(trie, seed)))
    np.testing.assert_allclose(probabilities, brute_force(sequences, seed), rtol=1e-9)
    assert probabilities.sum() == pytest.approx(1, abs=1e-12)


@properties
@given(sequences=prefix_free)
def test_decisions_are_the_tokens_with_a_choice(sequences: Sequences) -> None:
    trie = build_trie(sequences)
    assert trie.sequences == sequences
    all_edges = [(prefix, child) for prefix, children in trie.branches.items() for child in children]
    assert len(all_edges) == len(set(all_edges))
    for sequence, decisions, edges in zip(sequences, trie.decisions, trie.edges, strict=True):
        branching = [j for j in range(len(sequence)) if len(children_after(sequence[:j], sequences)) > 1]
        assert [decision.position for decision in decisions] == branching
        for decision, edge in zip(decisions, edges, strict=True):
            prefix = sequence[: decision.position]
            assert decision.children == tuple(sorted(children_after(prefix, sequences)))
            assert decision.children[decision.choice] == sequence[decision.position]
            assert all_edges[edge] == (prefix, sequence[decision.position])


@properties
@given(sequences=prefix_free)
def test_the_tree_holds_each_prefix_of_a_decision_once(sequences: Sequences) -> None:
    trie = build_trie(sequences)
    prefixes = {sequence[:j] for sequence in sequences for j in range(len(sequence))}
    branching = {prefix for prefix in prefixes if len(children_after(prefix, sequences)) > 1}
    assert sorted(trie.branches) == sorted(branching)
    needed = {prefix[:j] for prefix in branching for j in range(1, len(prefix) + 1)}
    row = tree_row((7, 9), [*trie.branches])
    assert len(row.tokens) == 2 + len(needed), "nothing else is run through the model"
    parents = row.parents or (-1, 0)
    assert all(parent < position for position, parent in enumerate(parents))
    assert [path_to(row, read).tokens for read in row.reads] == [(7, 9, *prefix) for prefix in trie.branches]


@pytest.mark.parametrize("sequences", [(), ((1, END), ())])
def test_empty_lists_and_actions_are_refused(sequences: Sequences) -> None:
    with pytest.raises(ValueError, match=r"at least one admissible action, each of at least one token.*Fix:"):
        build_trie(sequences)


@pytest.mark.parametrize(
    "sequences", [((1, END), (2, END), (1, END)), ((1, 2), (3,), (1, 2, 3)), ((1,), (1, 0), (1, 0))]
)
def test_repeated_actions_and_beginnings_of_others_are_refused(sequences: Sequences) -> None:
    with pytest.raises(ValueError, match=r"Expected distinct actions, none the beginning of another; got .*\(1.*Fix:"):
        build_trie(sequences)


@pytest.mark.parametrize("log_probs", [[0.0, np.nan], [-np.inf, -np.inf]])
def test_sample_index_refuses_nan(log_probs: list[float]) -> None:
    with pytest.raises(FloatingPointError, match="Expected finite log-probabilities of actions"):
        sample_index(np.array(log_probs), np.random.default_rng(0))
