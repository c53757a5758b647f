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
    all_log_probs,
    assert_same_gradient,
    batch_of,
    children_after,
    conditionals,
    divisor,
    gradient_by_autograd,
    make_agent,
    properties,
    randomise,
    save_small_model,
    whole_log_probs,
)

from poad_sb3 import GLAM, POAD, TWOSOME, LLMPolicy
from poad_sb3.distributions.action_trie import Mixture, build_mixture, build_trie
from poad_sb3.distributions.base import Edges
from poad_sb3.distributions.candidates import CandidateDistribution, Normalization, mixture_edges
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
    edges = mixture_edges([one.mixture for one in problems], torch.cat([one.edges for one in problems]))
    ends = [*edges.starts[1:].tolist(), len(edges.log_probs)]
    return edges, [edges.log_probs[a:b] for a, b in zip(edges.starts.tolist(), ends, strict=True)]


many = st.lists(st.tuples(prefix_free, st.integers(0, 1000)), min_size=1, max_size=3)


@properties
@given(many)
def test_conditionals_are_sums_of_whole_actions(drawn: list[tuple[Sequences, int]]) -> None:
    """Several questions at once, of other sizes; in every decision they are a distribution."""
    problems = [Problem(*one) for one in drawn]
    _, ours = solve(problems)
    expected = [one for problem in problems for one in problem.conditionals()]
    assert len(ours) == len(expected)
    for mine, theirs in zip(ours, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-9)
        assert mine.exp().sum().item() == pytest.approx(1, abs=1e-12)


@properties
@given(many)
def test_conditionals_of_an_action_multiply_to_its_probability(drawn: list[tuple[Sequences, int]]) -> None:
    problems = [Problem(*one) for one in drawn]
    edges, _ = solve(problems)
    first = 0
    for problem in problems:
        for number, on_path in enumerate(problem.trie.edges):
            total = sum(edges.log_probs[first + edge] for edge in on_path)
            assert total.item() == pytest.approx(problem.log_mu[number].item(), abs=1e-9)
        first += sum(problem.mixture.counts)


@properties
@given(many)
def test_entropies_of_decisions_weighted_by_reach_sum_to_that_of_the_action(
    drawn: list[tuple[Sequences, int]],
) -> None:
    problems = [Problem(*one) for one in drawn]
    edges, ours = solve(problems)
    assert edges.row_entropies is not None
    node = 0
    for number, problem in enumerate(problems):
        mu = problem.log_mu.exp()
        exact = -(mu * problem.log_mu).sum()
        assert edges.row_entropies[number].item() == pytest.approx(exact.item(), abs=1e-9)
        reach = torch.zeros(len(problem.mixture.counts), dtype=torch.float64)
        for action, visited in enumerate(problem.trie.nodes):
            reach[list(visited)] += mu[action]
        here = slice(node, node + len(reach))
        by_hand = torch.stack([-(one.exp() * one).sum() for one in ours[here]])
        torch.testing.assert_close(edges.entropies[here], by_hand, rtol=0, atol=1e-9)
        assert (reach * edges.entropies[here]).sum().item() == pytest.approx(exact.item(), abs=1e-9)
        node += len(reach)


@pytest.mark.matrix_after(4)
@properties
@given(many, st.integers(0, 1000))
def test_gradients_are_those_of_brute_force(drawn: list[tuple[Sequences, int]], seed: int) -> None:
    """Of any weighting of conditionals and entropies, with respect to all logits of the model."""
    problems = [Problem(*one) for one in drawn]
    edges, ours = solve(problems)
    generator = torch.Generator().manual_seed(seed)
    weights = [torch.randn(len(one), generator=generator, dtype=torch.float64) for one in ours]
    expected = [one for problem in problems for one in problem.conditionals()]
    mine = sum((w * one).sum() for w, one in zip(weights, ours, strict=True)) + edges.row_entropies.sum()
    theirs = sum((w * one).sum() for w, one in zip(weights, expected, strict=True))
    theirs = theirs - sum((one.log_mu.exp() * one.log_mu).sum() for one in problems)
    leaves = [problem.logits for problem in problems]
    for a, b in zip(
        torch.autograd.grad(mine, leaves, retain_graph=True), torch.autograd.grad(theirs, leaves), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-9)


def test_one_action_has_probability_one_and_no_decision() -> None:
    trie = build_trie(((3, END),))
    branches, mixture = build_mixture(trie, [2.0])
    assert mixture == Mixture(((0, 1),), (2.0,), (), ())
    assert branches == {(): (3,), (3,): (END,)}
    # Beside a question that has decisions, it adds none.
    other = Problem(((0, END), (1, END)), seed=0)
    edges = mixture_edges([mixture, other.mixture], torch.cat([torch.tensor([-1.0, -2.0]), other.edges]))
    assert edges.starts.tolist() == [0]
    torch.testing.assert_close(edges.log_probs, other.conditionals()[0], rtol=0, atol=1e-9)
    assert edges.row_entropies is not None
    assert edges.row_entropies.tolist()[0] == 0


@pytest.mark.parametrize("spread", [60.0, 500.0])
def test_an_action_all_but_impossible_makes_no_nan(spread: float) -> None:
    """Its prefix too has next to no probability; the conditionals below are a distribution all the same."""
    sequences: Sequences = ((0, 8, END), (0, 1, END), (1, END))
    problem = Problem(sequences, seed=1)
    scores = torch.tensor([0.0] * len(problem.edges), dtype=torch.float32, requires_grad=True)
    lowered = scores - spread * torch.tensor(
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
    for text, actions, _ in QUESTIONS:
        with torch.no_grad():
            expected = whole_log_probs(candidates, text, actions, normalization_of(candidates)).double().exp()
        ours = candidates.action_probabilities(text, actions)
        assert list(ours) == list(actions)
        np.testing.assert_allclose(list(ours.values()), expected.numpy(), rtol=0, atol=1e-5)
        assert sum(ours.values()) == pytest.approx(1, abs=1e-6)


def test_several_questions_in_one_pass_give_the_conditionals_of_each(candidates: LLMPolicy) -> None:
    lm, name = candidates.lm, normalization_of(candidates)
    asked = [question for question in QUESTIONS if len(question.actions or ()) > 1]
    distribution = CandidateDistribution(lm, Normalization(name))
    prepared = [distribution.tokenized(question) for question in asked]
    rows = [one.row for one in prepared]
    assert len(list(lm.chunks([row.row for row in rows]))) == 1, "one chunk"
    with torch.no_grad():
        edges = distribution.edges(rows)
        expected, entropies = [], []
        for question, one in zip(asked, prepared, strict=True):
            log_mu = whole_log_probs(candidates, question.text, question.actions or (), name)
            entropies.append(-(log_mu.exp() * log_mu).sum())
            nodes = dict.fromkeys(ids[:j] for ids in one.trie.sequences for j in range(len(ids)))
            branching = [prefix for prefix in nodes if len(children_after(prefix, one.trie.sequences)) > 1]
            expected += [conditionals(log_mu, one.trie.sequences, prefix)[1] for prefix in branching]
    torch.testing.assert_close(edges.log_probs.exp(), torch.cat(expected).exp(), rtol=0, atol=1e-5)
    torch.testing.assert_close(edges.log_probs, torch.cat(expected), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(edges.row_entropies, torch.stack(entropies), rtol=0, atol=1e-5)


def test_the_gradient_of_the_adapter_is_that_of_whole_sequences(candidates: LLMPolicy) -> None:
    lm, name = candidates.lm, normalization_of(candidates)
    asked = [question for question in QUESTIONS if len(question.actions or ()) > 1]
    distribution = CandidateDistribution(lm, Normalization(name))
    prepared = [distribution.tokenized(question) for question in asked]
    edges = distribution.edges([one.row for one in prepared])
    assert edges.row_entropies is not None
    ours, expected, first = edges.row_entropies.sum(), torch.zeros(()), 0
    for question, one in zip(asked, prepared, strict=True):
        log_mu = whole_log_probs(candidates, question.text, question.actions or (), name)
        expected = expected - (log_mu.exp() * log_mu).sum() + log_mu[0] - 0.5 * log_mu[-1]
        for action, weight in ((0, 1.0), (-1, -0.5)):
            ours = ours + weight * edges.log_probs[[first + edge for edge in one.trie.edges[action]]].sum()
        first += sum(one.row.mixture.counts)  # type: ignore[union-attr]
    assert_same_gradient(gradient_by_autograd(candidates, ours), gradient_by_autograd(candidates, expected))


def test_n_of_an_action() -> None:
    text, ids = "put  the bowl\ton it", (5, 6, 7, 8, 9, 10, 2)
    assert [Normalization(name).of(text, ids) for name in NORMALIZATIONS] == [1.0, 7.0, 5.0]
    assert [divisor(name, text, ids) for name in NORMALIZATIONS] == [1, 7, 5]
    assert Normalization.WORD.of("", (2,)) == 1.0, "an action without words is divided by something"


def test_glam_is_the_models_own_probability_of_each_action() -> None:
    """That is TWOSOME with `sum`, and no other."""
    glam = make_agent(GLAM).policy
    others = {name: make_agent(TWOSOME, candidate_normalization=name).policy for name in NORMALIZATIONS}
    text, actions, _ = QUESTIONS[0]
    for policy in (glam, *others.values()):
        randomise(policy)
    ours = list(glam.action_probabilities(text, actions).values())
    likelihoods = []
    for action in actions:
        ids = glam.lm.action_ids(action)
        with torch.no_grad():
            logged = all_log_probs(glam, glam.lm.prompt_ids(text), ids)[range(len(ids)), ids]
        likelihoods.append(float(logged.double().sum().exp()))
    np.testing.assert_allclose(ours, np.array(likelihoods) / sum(likelihoods), rtol=0, atol=1e-5)
    same = {name: list(policy.action_probabilities(text, actions).values()) for name, policy in others.items()}
    assert same["sum"] == ours
    assert np.abs(np.array(same["word"]) - same["token"]).max() > 0.01
    assert np.abs(np.array(same["word"]) - same["sum"]).max() > 0.01


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
    one = distribution.tokenized(question)
    edges = distribution.edges([one.row]).log_probs
    logged = torch.stack([edges[list(on_path)].sum() for on_path in one.trie.edges])
    mu = torch.tensor(list(policy.action_probabilities(*question[:2]).values()))
    mean = gradient_by_autograd(policy, (mu * logged).sum())
    single = gradient_by_autograd(policy, distribution.edges([one.row]).log_probs[0])
    assert mean.norm() < 1e-3 * single.norm()
