"""TWOSOME's softmax over whole actions, and its token conditionals along the trie, against brute force."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toy import (
    batch_of,
    children_after,
    conditionals,
    gradient_by_autograd,
    make_agent,
    properties,
    randomise,
    save_small_model,
    whole_log_probs,
)

from poad_sb3 import POAD, LLMPolicy
from poad_sb3.distributions.action_trie import build_mixture, build_trie
from poad_sb3.distributions.base import Edges
from poad_sb3.distributions.candidates import mixture_edges
from poad_sb3.distributions.trie import TrieDistribution
from poad_sb3.prompts import Question

END, TOKENS, VOCABULARY = 4, (0, 8, 1, 17), 18
NORMALIZATIONS = ("sum", "token", "word")
Sequences = tuple[tuple[int, ...], ...]

texts = st.lists(st.lists(st.sampled_from(TOKENS), max_size=4).map(tuple), min_size=2, max_size=9, unique=True)
prefix_free = texts.map(lambda many: tuple((*text, END) for text in many))

QUESTIONS = (
    Question("The lamp is red.", ("press the red button", "press the red lever", "wait", "press", "wait here, please")),
    Question("The lamp in the other room is green. You have 3 moves left.", ("wait", "walk", "walk on", "a, b", "a")),
    Question("Go.", ("press it", "press it now")),
    Question("The lamp is broken.", ("wait",)),
)


# ------------------------------------------------------------------ the arithmetic, on any trie


class Problem:
    """One question for a toy model: some distribution over the vocabulary after every prefix, as a leaf of autograd."""

    def __init__(self, sequences: Sequences, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.sequences, self.trie = sequences, build_trie(sequences)
        self.divisors = [float(n) for n in rng.integers(1, 5, len(sequences))]
        branches, self.mixture = build_mixture(self.trie, self.divisors)
        self.prefixes = [*branches]
        self.logits = torch.tensor(rng.normal(scale=2, size=(len(self.prefixes), VOCABULARY)), requires_grad=True)
        table = torch.log_softmax(self.logits, -1)
        self.edges = torch.cat(
            [table[row, list(children)] for row, children in enumerate(branches.values())]
        )  # the query of the model
        rows = {prefix: row for row, prefix in enumerate(self.prefixes)}
        scores = [
            sum(table[rows[ids[:j]], token] for j, token in enumerate(ids)) / n
            for ids, n in zip(sequences, self.divisors, strict=True)
        ]
        self.log_mu = torch.log_softmax(torch.stack(scores), 0)  # brute force

    def conditionals(self) -> list[torch.Tensor]:
        """Of every decision node, in the trie's order."""
        nodes: dict[tuple[int, ...], None] = {}
        for ids in self.sequences:
            nodes.update(dict.fromkeys(ids[:j] for j in range(len(ids))))
        branching = [prefix for prefix in nodes if len(children_after(prefix, self.sequences)) > 1]
        return [conditionals(self.log_mu, self.sequences, prefix)[1] for prefix in branching]


def solve(problems: Sequence[Problem]) -> tuple[Edges, list[torch.Tensor]]:
    """The shipped function on all questions at once, and the log-probabilities split by decision."""
    edges = mixture_edges([problem.mixture for problem in problems], torch.cat([problem.edges for problem in problems]))
    ends = [*edges.starts[1:].tolist(), len(edges.log_probs)]
    return edges, [edges.log_probs[a:b] for a, b in zip(edges.starts.tolist(), ends, strict=True)]


many = st.lists(st.tuples(prefix_free, st.integers(0, 1000)), min_size=1, max_size=3)


@properties
@given(many)
def test_conditionals_are_sums_of_whole_actions(drawn: list[tuple[Sequences, int]]) -> None:
    """Several questions at once, of other sizes; in every decision they are a distribution."""
    problems = [Problem(*arguments) for arguments in drawn]
    _, ours = solve(problems)
    expected = [log_probs for problem in problems for log_probs in problem.conditionals()]
    assert len(ours) == len(expected)
    for mine, theirs in zip(ours, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-9)
        assert mine.exp().sum().item() == pytest.approx(1, abs=1e-12)


@properties
@given(many, st.integers(0, 1000))
def test_gradients_are_those_of_brute_force(drawn: list[tuple[Sequences, int]], seed: int) -> None:
    """Of any weighting of conditionals and entropies, with respect to all logits of the model."""
    problems = [Problem(*arguments) for arguments in drawn]
    edges, ours = solve(problems)
    generator = torch.Generator().manual_seed(seed)
    weights = [torch.randn(len(log_probs), generator=generator, dtype=torch.float64) for log_probs in ours]
    expected = [log_probs for problem in problems for log_probs in problem.conditionals()]
    mine = sum((w * log_probs).sum() for w, log_probs in zip(weights, ours, strict=True)) + edges.row_entropies.sum()
    theirs = sum((w * log_probs).sum() for w, log_probs in zip(weights, expected, strict=True))
    theirs = theirs - sum((problem.log_mu.exp() * problem.log_mu).sum() for problem in problems)
    leaves = [problem.logits for problem in problems]
    for a, b in zip(
        torch.autograd.grad(mine, leaves, retain_graph=True), torch.autograd.grad(theirs, leaves), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-9)


def test_an_action_all_but_impossible_makes_no_nan() -> None:
    """Its prefix too has next to no probability; the conditionals below are a distribution all the same."""
    sequences: Sequences = ((0, 8, END), (0, 1, END), (1, END))
    problem = Problem(sequences, seed=1)
    scores = torch.tensor([0.0] * len(problem.edges), dtype=torch.float32, requires_grad=True)
    lowered = scores - 500 * torch.tensor(
        [float(edge == problem.mixture.token_edges[0][0]) for edge in range(len(scores))]
    )
    edges = mixture_edges([problem.mixture], lowered)
    (edges.log_probs.sum() + edges.row_entropies.sum()).backward()  # type: ignore[union-attr]
    assert torch.isfinite(edges.log_probs).all()
    assert torch.isfinite(scores.grad).all()  # type: ignore[arg-type]


# ------------------------------------------------------------------ a model, by whole sequences


@pytest.fixture(scope="module", params=NORMALIZATIONS)
def candidates(request: pytest.FixtureRequest) -> LLMPolicy:
    """A policy over whole candidates, and its name in `normalization`. Leave its weights as they are."""
    policy = make_agent(POAD, action_sampling="candidates", candidate_normalization=request.param).policy
    randomise(policy)
    return policy


def normalization_of(policy: LLMPolicy) -> str:
    return str(policy._settings["candidate_normalization"])


def test_probabilities_are_the_softmax_over_whole_actions(candidates: LLMPolicy) -> None:
    """Each action by itself through the whole network, its log-probability under the full vocabulary, divided."""
    for text, actions, *_ in QUESTIONS:
        with torch.no_grad():
            expected = whole_log_probs(candidates, text, actions, normalization_of(candidates)).double().exp()
        ours = candidates.action_probabilities(text, actions)
        assert list(ours) == list(actions)
        np.testing.assert_allclose(list(ours.values()), expected.numpy(), rtol=0, atol=1e-5)
        assert sum(ours.values()) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_one_token_actions_and_a_word_with_id_zero(tmp_path: Path, normalization: str) -> None:
    """An empty action is the end token alone; token 0 is a word. Neither is taken for padding."""
    model = save_small_model(tmp_path / "small")
    kwargs = {"critic_arch": (8,), "model": model}
    policy = make_agent(
        POAD, policy_kwargs=kwargs, action_sampling="candidates", candidate_normalization=normalization
    ).policy
    randomise(policy)
    assert policy.lm.action_ids("") == (4,)
    assert policy.lm.action_ids("wait wait") == (0, 0, 4)
    for actions in (("", "wait", "wait wait", "press"), ("wait", "wait wait"), ("", "it")):
        with torch.no_grad():
            expected = whole_log_probs(policy, "wait red", actions, normalization).double().exp()
        ours = policy.action_probabilities("wait red", actions)
        np.testing.assert_allclose(list(ours.values()), expected.numpy(), rtol=0, atol=1e-5)
        (step,) = policy.act(batch_of([("wait red", actions)]))
        text = policy.action_space.decode(step.env_action)
        assert step.path.action == policy.lm.action_ids(text)
        assert float(np.exp(step.log_probs.sum())) == pytest.approx(ours[text], abs=1e-5)


@pytest.mark.parametrize("settings", [{}, {"action_sampling": "candidates"}], ids=["trie", "candidates"])
def test_the_mean_score_of_the_sampled_distribution_is_zero(settings: dict[str, str]) -> None:
    """sum over a of mu(a) grad log mu(a) = 0, with the stored log-probabilities' own gradient (defect 2)."""
    policy = make_agent(POAD, **settings).policy
    randomise(policy)
    distribution, question = cast(TrieDistribution, policy.distribution), QUESTIONS[0]
    tokenized = distribution.tokenized(question)
    edges = distribution.edges([tokenized.row]).log_probs
    logged = torch.stack([edges[list(on_path)].sum() for on_path in tokenized.trie.edges])
    mu = torch.tensor(list(policy.action_probabilities(*question[:2]).values()))
    mean = gradient_by_autograd(policy, (mu * logged).sum())
    single = gradient_by_autograd(policy, distribution.edges([tokenized.row]).log_probs[0])
    assert mean.norm() < 1e-3 * single.norm()
