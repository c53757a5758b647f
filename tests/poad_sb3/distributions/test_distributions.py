"""Action distributions: sampled actions have their stored probability, and the update computes that probability too."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy import (
    PAPER,
    WORDS,
    all_log_probs,
    assert_same_frequencies,
    batch_of,
    children_after,
    collect,
    make_agent,
    make_method,
    randomise,
    run_update,
    save_small_model,
    whole_log_probs,
)

import lang_envs  # noqa: F401 - registers the environments
from poad_sb3 import LLMPolicy, prompts
from poad_sb3.distributions.action_trie import Decision
from poad_sb3.distributions.base import ScoreCache

Question = tuple[str, tuple[str, ...]]

RED: Question = ("The lamp is red.", ("press the red button", "press the red lever", "press it", "wait", "wait here"))
BOARD = tuple(f"put the {food} on the board" for food in ("tomato", "lettuce", "onion"))
ALIKE: Question = ("You are in the kitchen.", BOARD)
"""So alike that even the model's own probabilities are all of some size."""
PLATE: Question = ("You are in the kitchen.", (*BOARD, "put the tomato on the plate"))
GREEN: Question = ("The lamp in the other room is green.", ("wait", "walk on", "walk around the room", "pick the lamp"))
FORCED: Question = ("The lamp is broken.", ("wait",))

LISTED = {
    "trie": {},
    "path": {},
    **{name: {"action_sampling": "candidates", "candidate_normalization": name} for name in ("sum", "token", "word")},
    "paper": PAPER,
    "trie, tempered": {"temperature": 3.0},
    "candidates, tempered": {"action_sampling": "candidates", "temperature": 0.5},
}


@pytest.fixture(scope="module", params=LISTED)
def listed(request: pytest.FixtureRequest) -> LLMPolicy:
    """A policy that chooses among admissible actions. Leave its weights as they are."""
    policy = make_agent(**LISTED[request.param]).policy
    randomise(policy)
    if request.param == "path":  # as in tries with many branch points
        policy.distribution.max_branch_points = 0
    return policy


def spread_out(policy: LLMPolicy) -> Question:
    """The first question whose actions are all likely enough to count."""
    questions = (RED, PLATE, ALIKE)
    return next(question for question in questions if min(policy.action_probabilities(*question).values()) > 0.01)


# ------------------------------------------------------------------ admissible actions


def test_choices_of_a_sampled_action_are_those_it_was_drawn_from(listed: LLMPolicy) -> None:
    question = prompts.Question(*RED)
    cache = ScoreCache([])
    (chosen,) = listed.distribution.sample([question], [np.random.default_rng(3)], cache)
    choices = listed.distribution.token_choices(question, chosen.path, cache)
    if listed._settings["paper_mode"]:
        assert choices == []
        return
    assert [choice.position for choice in choices] == [decision.position for decision in chosen.path.decisions]
    for choice, decision in zip(choices, chosen.path.decisions, strict=True):
        log_probs = dict(zip(choice.tokens, choice.log_probs, strict=True))
        assert set(log_probs) == set(decision.children)
        assert list(choice.log_probs) == sorted(choice.log_probs, reverse=True)
        assert log_probs[decision.children[decision.choice]] == pytest.approx(
            chosen.log_probs[choice.position], abs=1e-6
        )
        assert np.exp(choice.log_probs).sum() == pytest.approx(1, abs=1e-6)
        assert choice.entropy == pytest.approx(-(np.exp(choice.log_probs) * choice.log_probs).sum(), abs=1e-6)
    best = listed.distribution.token_choices(question, chosen.path, cache, most=1)
    assert [len(choice.tokens) for choice in best] == [1] * len(choices)


def test_the_entropy_is_that_of_whole_actions(listed: LLMPolicy) -> None:
    question = prompts.Question(*spread_out(listed))
    p = np.array([*listed.action_probabilities(*question[:2]).values()])
    assert listed.distribution.entropy(question, ScoreCache([])) == pytest.approx(-(p * np.log(p)).sum(), abs=1e-5)
    assert listed.distribution.entropy(prompts.Question(*FORCED), ScoreCache([])) == 0.0


def test_sampled_frequencies_are_the_probabilities(listed: LLMPolicy) -> None:
    """In a rollout and in `predict`; by chi-square."""
    question, n = spread_out(listed), 200 if listed._settings["paper_mode"] else 1200
    probabilities = listed.action_probabilities(*question)
    assert sum(probabilities.values()) == pytest.approx(1, abs=1e-6)
    listed.seed(0)
    acted = np.stack([step.env_action for step in listed.act(batch_of([question] * n))])
    predicted, _ = listed.predict(batch_of([question] * n))
    for actions in (acted, predicted):
        counts = Counter(map(listed.action_space.decode, actions))
        assert set(counts) <= set(question[1])
        assert_same_frequencies([counts[text] for text in question[1]], list(probabilities.values()))


def test_the_stored_log_probs_are_those_sampled_from(listed: LLMPolicy) -> None:
    """Only paper_mode stores others: those of each token among the whole vocabulary."""
    question = spread_out(listed)
    probabilities = listed.action_probabilities(*question)
    for step in listed.act(batch_of([question] * 60)):
        text = listed.action_space.decode(step.env_action)
        assert step.path.action == listed.lm.action_ids(text), "what was sampled is what the environment gets"
        assert len(step.log_probs) == len(step.path.action)
        if not listed._settings["paper_mode"]:
            assert float(np.exp(step.log_probs.sum())) == pytest.approx(probabilities[text], rel=1e-4)
            forced = sorted(set(range(len(step.log_probs))) - {decision.position for decision in step.path.decisions})
            assert (step.log_probs[forced] == 0).all()
            continue
        ids = step.path.action
        with torch.no_grad():
            whole = all_log_probs(listed, step.path.prompt, ids)[range(len(ids)), ids]
        np.testing.assert_allclose(step.log_probs, whole, rtol=0, atol=1e-4)
        assert step.path.decisions == tuple(Decision(position, (), token) for position, token in enumerate(ids))


@pytest.mark.parametrize("temperature", [0.5, 4.0])
def test_temperature_divides_the_logits_of_a_trie_and_the_scores_of_candidates(temperature: float) -> None:
    text, actions = RED
    trie_policy = make_agent(temperature=temperature).policy
    candidates = make_agent(temperature=temperature, action_sampling="candidates").policy
    for policy in (trie_policy, candidates):
        randomise(policy)
    lm = trie_policy.lm
    prompt, sequences = lm.prompt_ids(text), [lm.action_ids(action) for action in actions]
    with torch.no_grad():
        expected = []
        for ids in sequences:
            log_probs, total = all_log_probs(trie_policy, prompt, ids), 0.0
            for position, token in enumerate(ids):
                siblings = children_after(ids[:position], sequences)
                total += float((log_probs[position, siblings] / temperature).log_softmax(0)[siblings.index(token)])
            expected.append(np.exp(total))
        whole = (whole_log_probs(candidates, text, actions, "word") / temperature).softmax(0)
    assert list(trie_policy.action_probabilities(text, actions).values()) == pytest.approx(expected, abs=1e-5)
    assert list(candidates.action_probabilities(text, actions).values()) == pytest.approx(whole.tolist(), abs=1e-5)


def test_deterministic_is_the_most_probable_action(listed: LLMPolicy) -> None:
    questions = (RED, ALIKE, GREEN, FORCED)
    tables = [listed.action_probabilities(*question) for question in questions]
    best = [max(table, key=table.__getitem__) for table in tables]
    actions, _ = listed.predict(batch_of(questions), deterministic=True)
    assert [listed.action_space.decode(action) for action in actions] == best
    acted = listed.act(batch_of(questions), deterministic=True)
    assert [listed.action_space.decode(step.env_action) for step in acted] == best


def test_a_single_action_is_certain(listed: LLMPolicy) -> None:
    (step,) = listed.act(batch_of([FORCED]))
    assert listed.action_space.decode(step.env_action) == "wait"
    assert listed.action_probabilities(*FORCED) == {"wait": 1.0}
    if not listed._settings["paper_mode"]:
        assert step.path.decisions == ()
        assert step.log_probs.tolist() == [0.0] * len(step.path.action)


# ------------------------------------------------------------------ free sampling


def small_policy(tmp_path: Path, **settings: Any) -> LLMPolicy:
    """A policy with a vocabulary of six words; it samples freely."""
    kwargs = {"critic_arch": (8,), "model": save_small_model(tmp_path / "small")}
    settings = {"action_sampling": "free", "max_new_tokens": 2, **settings}
    policy = make_agent(policy_kwargs=kwargs, **settings).policy
    randomise(policy)
    return policy


def every_action(end: int, bound: int) -> list[tuple[int, ...]]:
    """All token sequences that free sampling can end with."""
    words = [token for token in range(len(WORDS)) if token != end]
    finished = [(*start, end) for n in range(bound) for start in itertools.product(words, repeat=n)]
    return [*finished, *itertools.product(words, repeat=bound)]


def test_free_frequencies_are_those_of_the_whole_vocabulary(tmp_path: Path) -> None:
    """Every outcome of two tokens, those that the bound cut included; words of different prompts do not mix."""
    policy, n = small_policy(tmp_path), 1500
    prompts = ("press red", "it")
    steps = policy.act(batch_of([(text, ("wait",)) for text in prompts] * n))
    outcomes = every_action(policy.lm.end_token, 2)
    for number, text in enumerate(prompts):
        counts = Counter(step.path.action for step in steps[number :: len(prompts)])
        assert set(counts) <= set(outcomes)
        assert any(ids[-1] != policy.lm.end_token for ids in counts)
        with torch.no_grad():
            logged = [
                all_log_probs(policy, policy.lm.prompt_ids(text), ids)[range(len(ids)), ids].sum().exp().item()
                for ids in outcomes
            ]
        assert sum(sorted(logged)[:-1]) > 0.2, "no outcome is certain"
        assert_same_frequencies([counts[ids] for ids in outcomes], logged)


def test_free_log_probs_are_those_sampled_from(tmp_path: Path) -> None:
    """And the text is the sampled one, without the space before it and the end; an empty action is one token."""
    policy = small_policy(tmp_path, max_new_tokens=4)
    lengths, question = set(), prompts.Question("press red", ("wait",))
    for step in policy.act(batch_of([question[:2]] * 100)):
        ids = step.path.action
        with torch.no_grad():
            table = all_log_probs(policy, step.path.prompt, ids)[: len(ids)]
        np.testing.assert_allclose(step.log_probs, table[range(len(ids)), ids], rtol=0, atol=1e-4)
        choices = policy.distribution.token_choices(question, step.path, ScoreCache([]))
        np.testing.assert_allclose(
            [choice.entropy for choice in choices], -(table.exp() * table).sum(-1), rtol=0, atol=1e-4
        )
        assert step.path.decisions == tuple(Decision(position, (), token) for position, token in enumerate(ids))
        assert policy.lm.end_token not in ids[:-1], "nothing follows the end"
        kept = [WORDS[token] for token in ids if token != policy.lm.end_token]
        assert policy.action_space.decode(step.env_action).split() == kept
        lengths.add(len(ids))
    assert lengths == {1, 2, 3, 4}


# ------------------------------------------------------------------ the update scores the sampled actions


@pytest.mark.parametrize(
    "name",
    [
        "POAD",
        "TWOSOME",
        *(
            pytest.param(name, marks=pytest.mark.matrix)
            for name in ("POAD, free", "POAD, think", "POAD, paper", "RLOO, free", "GiGPO")
        ),
    ],
)
def test_the_first_ratio_is_one(name: str) -> None:
    """For every way to act, with weights that are not the base model's; in two updates."""
    agent, _ = collect(name, n_envs=2, n_steps=6, env={"truncates": True})
    for _ in range(2):
        logged = run_update(agent)
        assert logged["first_ratio_error"] < 1e-4
        assert logged["approx_kl"] < 1e-6
        agent.train = lambda: None  # type: ignore[method-assign]
        agent.learn(12, reset_num_timesteps=False)
        del agent.train


# ------------------------------------------------------------------ several environments


@pytest.mark.parametrize("name", ["POAD", pytest.param("POAD, free", marks=pytest.mark.matrix)])
def test_samples_of_an_environment_do_not_depend_on_its_neighbours(name: str) -> None:
    observation = batch_of([(f"The lamp is {colour}.", ["press red", "press blue", "wait"]) for colour in "abcde"])
    together, apart = (make_method(name).policy for _ in range(2))
    expected = [[step.path.action for step in together.act(observation)] for _ in range(4)]
    assert expected[0] != expected[1], "and it is drawn"
    single = {key: texts[3:4] for key, texts in observation.items()}
    rngs = apart.rngs_of(5)[3:4]
    assert [[apart.act(single, rngs=rngs)[0].path.action] for _ in range(4)] == [actions[3:4] for actions in expected]
    fresh = [rng.bit_generator.state for rng in make_method(name).policy.rngs_of(5)]
    assert [rng.bit_generator.state == start for rng, start in zip(apart.rollout_rngs, fresh, strict=True)] == [
        True, True, True, False, True,
    ]  # fmt: skip
