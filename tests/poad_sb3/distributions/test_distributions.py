"""Action distributions: sampled actions have their stored probability, and the update computes that probability too."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from toy import (
    METHODS,
    PAPER,
    WORDS,
    LampEnv,
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
from poad_sb3 import ARCHER, GLAM, NTPO, POAD, TWOSOME, LLMPolicy, ObservationError, UnsupportedEnvError, prompts
from poad_sb3.distributions import ActionSampling, trie
from poad_sb3.distributions.action_trie import Decision
from poad_sb3.distributions.base import ScoreCache
from poad_sb3.language_model.packing import TokenRow

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
    return next(one for one in questions if min(policy.action_probabilities(*one).values()) > 0.01)


# ------------------------------------------------------------------ admissible actions


def test_choices_of_a_sampled_action_are_those_it_was_drawn_from(listed: LLMPolicy) -> None:
    question = prompts.Question(*RED)
    cache = ScoreCache([])
    (chosen,) = listed.distribution.sample([question], [np.random.default_rng(3)], cache)
    choices = listed.distribution.token_choices(question, chosen.path, cache)
    if listed._settings["paper_mode"]:
        assert choices == []
        return
    assert [one.position for one in choices] == [one.position for one in chosen.path.decisions]
    for choice, decision in zip(choices, chosen.path.decisions, strict=True):
        known = dict(zip(choice.tokens, choice.log_probs, strict=True))
        assert set(known) == set(decision.children)
        assert list(choice.log_probs) == sorted(choice.log_probs, reverse=True)
        assert known[decision.children[decision.choice]] == pytest.approx(chosen.log_probs[choice.position], abs=1e-6)
        assert np.exp(choice.log_probs).sum() == pytest.approx(1, abs=1e-6)
        assert choice.entropy == pytest.approx(-(np.exp(choice.log_probs) * choice.log_probs).sum(), abs=1e-6)
    one = listed.distribution.token_choices(question, chosen.path, cache, most=1)
    assert [len(choice.tokens) for choice in one] == [1] * len(choices)


@pytest.mark.parametrize("top_k", [0, 3])
def test_choices_of_a_written_action_are_those_it_was_drawn_from(top_k: int) -> None:
    policy = make_agent(action_sampling="free", max_new_tokens=5, temperature=0.7, top_k=top_k).policy
    randomise(policy)
    question = prompts.Question(RED[0], None)
    (chosen,) = policy.distribution.sample([question], [np.random.default_rng(3)], ScoreCache([]))
    choices = policy.distribution.token_choices(question, chosen.path, ScoreCache([]), most=10**6)
    for choice, token, log_prob in zip(choices, chosen.path.action, chosen.log_probs, strict=True):
        known = dict(zip(choice.tokens, choice.log_probs, strict=True))
        assert len(known) == (top_k or policy.lm.base.config.vocab_size)
        assert known[token] == pytest.approx(log_prob, abs=1e-5)
        assert choice.entropy == pytest.approx(-(np.exp(choice.log_probs) * choice.log_probs).sum(), abs=1e-5)


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
            forced = sorted(set(range(len(step.log_probs))) - {one.position for one in step.path.decisions})
            assert (step.log_probs[forced] == 0).all()
            continue
        ids = step.path.action
        with torch.no_grad():
            whole = all_log_probs(listed, step.path.prompt, ids)[range(len(ids)), ids]
        np.testing.assert_allclose(step.log_probs, whole, rtol=0, atol=1e-4)
        assert step.path.decisions == tuple(Decision(place, (), token) for place, token in enumerate(ids))


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


@pytest.mark.parametrize("name", ["POAD", "TWOSOME", "POAD, free"])
def test_the_first_ratio_is_one_at_another_temperature(name: str) -> None:
    agent, _ = collect(name, temperature=3.0)
    assert run_update(agent)["first_ratio_error"] < 1e-5


@pytest.mark.parametrize("name", ["trie", "word"])
def test_a_list_is_tokenized_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by a softmax over candidates, and for prompts that are new."""
    policy = make_agent(**LISTED[name]).policy
    tokenized: list[str] = []
    action_ids = policy.lm.action_ids
    monkeypatch.setattr(policy.lm, "action_ids", lambda text: tokenized.append(text) or action_ids(text))
    policy.act(batch_of([(f"Board number {number}.", BOARD) for number in range(5)]))
    assert tokenized == list(BOARD)
    policy.act(batch_of([PLATE, ALIKE]))
    assert tokenized == [*BOARD, *PLATE[1]]


def test_a_large_trie_is_scored_along_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample scores as many rows as its action has decisions; the most probable action needs all branch points."""
    policy = make_agent().policy
    randomise(policy)
    policy.distribution.max_branch_points = 1
    scored: list[int] = []
    edges = policy.distribution.edges
    monkeypatch.setattr(
        policy.distribution, "edges", lambda rows: scored.extend(len(row.children) for row in rows) or edges(rows)
    )
    (step,) = policy.act(batch_of([RED]))
    assert scored == [1] * len(step.path.decisions)
    scored.clear()
    assert len(policy.act(batch_of([RED]), deterministic=True)) == 1
    assert scored == [len(policy.distribution.tokenized(prompts.Question(*RED)).trie.branches)]


def test_paper_mode_samples_from_whole_candidates() -> None:
    """Its probabilities are TWOSOME's, though it stores others."""
    policy = make_agent(**PAPER).policy
    randomise(policy)
    with torch.no_grad():
        expected = whole_log_probs(policy, *ALIKE, "word").exp()
    np.testing.assert_allclose(list(policy.action_probabilities(*ALIKE).values()), expected, rtol=0, atol=1e-5)
    step = policy.act(batch_of([ALIKE]))[0]
    text = policy.action_space.decode(step.env_action)
    assert abs(step.log_probs.sum() - float(expected[ALIKE[1].index(text)].log())) > 0.1


def test_paper_mode_stores_what_a_separate_pass_would_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every candidate, taken from the pass that scored them all; a single candidate was not scored."""
    policy = make_agent(**PAPER).policy
    randomise(policy)
    questions = [FORCED, RED, ALIKE, FORCED, GREEN, PLATE]
    turn = itertools.count()
    monkeypatch.setattr(trie, "sample_index", lambda log_probs, _: next(turn) // 6 % len(log_probs))
    seen = set()
    for step in policy.act(batch_of(questions * 5)):
        prompt, ids, decisions = step.path.prompt, step.path.action, step.path.decisions
        row = TokenRow((*prompt, *ids[:-1]), None, tuple(range(len(prompt) - 1, len(prompt) + len(ids) - 1)))
        with torch.no_grad():
            apart = policy.lm.child_log_probs(policy.lm.hidden_states([row]), [(token,) for token in ids])
            whole = all_log_probs(policy, prompt, ids)[range(len(ids)), ids]
        np.testing.assert_allclose(step.log_probs, apart, rtol=2e-6, atol=1e-5)
        np.testing.assert_allclose(step.log_probs, whole, rtol=0, atol=1e-4)
        assert decisions == tuple(Decision(place, (), token) for place, token in enumerate(ids))
        assert step.path.row is None
        seen.add((prompt, ids))
    assert len(seen) == len({(text, action) for text, actions in questions for action in actions})


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


def test_actions_are_texts_and_not_parts_of_a_list(listed: LLMPolicy) -> None:
    """Commas, brackets and an action that begins another have no special meaning (defect 11)."""
    question = ("Say it.", ("a, b", "a", "b", "[1, 2]", "a, b, c"))
    probabilities = listed.action_probabilities(*question)
    assert list(probabilities) == list(question[1])
    assert sum(probabilities.values()) == pytest.approx(1, abs=1e-6)
    for step in listed.act(batch_of([question] * 10)):
        assert listed.action_space.decode(step.env_action) in question[1]


@pytest.mark.parametrize("settings", [LISTED["trie"], LISTED["word"], PAPER], ids=["trie", "word", "paper"])
def test_scores_follow_the_weights(settings: dict[str, Any]) -> None:
    """Scores are remembered, and forgotten when the weights change."""
    policy = make_agent(**settings).policy
    before = policy.action_probabilities(*ALIKE)
    stored = policy.act(batch_of([ALIKE]), deterministic=True)[0].log_probs
    randomise(policy)
    after = policy.action_probabilities(*ALIKE)
    assert max(abs(after[text] - before[text]) for text in before) > 1e-3
    policy.seed(3)
    fresh = policy.act(batch_of([ALIKE]), deterministic=True)[0].log_probs
    assert fresh.shape != stored.shape or np.abs(fresh - stored).max() > 1e-3


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
    lengths = set()
    for step in policy.act(batch_of([("press red", ("wait",))] * 100)):
        ids = step.path.action
        with torch.no_grad():
            expected = all_log_probs(policy, step.path.prompt, ids)[range(len(ids)), ids]
        np.testing.assert_allclose(step.log_probs, expected, rtol=0, atol=1e-4)
        assert step.path.decisions == tuple(Decision(place, (), token) for place, token in enumerate(ids))
        assert policy.lm.end_token not in ids[:-1], "nothing follows the end"
        kept = [WORDS[token] for token in ids if token != policy.lm.end_token]
        assert policy.action_space.decode(step.env_action).split() == kept
        lengths.add(len(ids))
    assert lengths == {1, 2, 3, 4}


def test_deterministic_is_greedy_where_it_is_free(tmp_path: Path) -> None:
    policy = small_policy(tmp_path, max_new_tokens=6)
    questions = [(text, ("wait",)) for text in ("press red", "it", "wait it press", "red red red red")]
    for (text, _), step in zip(questions, policy.act(batch_of(questions), deterministic=True), strict=True):
        prompt, expected = policy.lm.prompt_ids(text), ()
        while len(expected) < 6 and policy.lm.end_token not in expected:
            with torch.no_grad():
                following = all_log_probs(policy, prompt, (*expected, 0))[-1]
            expected = (*expected, int(following.argmax()))
        assert step.path.action == expected
    actions, _ = policy.predict(batch_of(questions), deterministic=True)
    again, _ = policy.predict(batch_of(questions), deterministic=True)
    np.testing.assert_array_equal(actions, again)


def test_free_actions_know_no_probabilities_of_a_list(tmp_path: Path) -> None:
    with pytest.raises(ObservationError, match=r"got action_sampling='free'\. Fix: 'trie'"):
        small_policy(tmp_path).action_probabilities(*RED)


def test_a_text_that_the_environment_cannot_hold_is_no_action(tmp_path: Path) -> None:
    """It is not cut to something that might be admissible."""
    policy = small_policy(tmp_path, max_new_tokens=40)
    assert len(policy.action_space.encode("wait")) == 64
    long = " ".join(["wait"] * 30)
    encoded = policy._encode(long)
    assert encoded.shape == policy.action_space.shape
    np.testing.assert_array_equal(encoded, policy.action_space.unfinished())


# ------------------------------------------------------------------ the update scores the sampled actions


@pytest.mark.matrix_after(2)
@pytest.mark.parametrize("name", METHODS)
def test_the_first_ratio_is_one(name: str) -> None:
    """For every class and way to act, with weights that are not the base model's; in two updates."""
    agent, _ = collect(name, n_envs=2, n_steps=6, env={"truncates": True})
    for _ in range(2):
        logged = run_update(agent)
        assert logged["first_ratio_error"] < 1e-4
        assert logged["approx_kl"] < 1e-6
        agent.train = lambda: None  # type: ignore[method-assign]
        agent.learn(12, reset_num_timesteps=False)
        del agent.train


@pytest.mark.matrix_after(1)
@pytest.mark.parametrize("name", ["TWOSOME", "POAD, candidates", "POAD, free"])
def test_the_first_ratio_is_one_in_chunks_of_one(name: str) -> None:
    """However the rows of an update are packed, other than in the rollout."""
    agent, _ = collect(name, policy_kwargs={"critic_arch": (8,), "max_tokens_per_forward": 1}, n_steps=6)
    agent.policy.lm.max_tokens_per_forward = 4096
    assert run_update(agent)["first_ratio_error"] < 1e-4


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize("kind", [POAD, NTPO, ARCHER, TWOSOME, GLAM])
@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("action_sampling", r"action_sampling to be one of \['auto', 'trie', 'candidates', 'free'\]; got 'beam'"),
        ("candidate_normalization", r"candidate_normalization to be one of \['sum', 'token', 'word'\]; got 'beam'"),
        ("credit_level", r"credit_level to be one of \['token', 'action'\]; got 'beam'"),
        ("bootstrap", r"bootstrap to be one of \['state', 'action'\]; got 'beam'"),
    ],
)
def test_unknown_words_are_refused(kind: Any, word: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"Expected {message}"):
        make_agent(kind, **{word: "beam"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"paper_mode": True},
            r"Expected ratio='token' with paper_mode.*got ratio='action'\. Fix: leave paper_mode out",
        ),
        ({"kl_coef": 0.1}, r"Expected kl_coef with action_sampling='trie' or 'free'.*got 0\.1\. Fix"),
    ],
    ids=["paper_mode", "kl_coef"],
)
@pytest.mark.parametrize("kind", [TWOSOME, GLAM])
def test_what_whole_actions_cannot_do_is_refused(kind: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_agent(kind, **settings)


@pytest.mark.parametrize("kind", [TWOSOME, GLAM])
def test_policy_kwargs_are_no_way_round_a_refusal(kind: Any) -> None:
    """The same argument must not mean one thing to the algorithm and another to its policy."""
    with pytest.raises(ValueError, match="Expected"):
        make_agent(kind, policy_kwargs={"critic_arch": (8,), "action_sampling": "free"})


@pytest.mark.parametrize("sampling", ["trie", "free"])
def test_paper_mode_is_about_candidates(sampling: str) -> None:
    with pytest.raises(
        ValueError, match=rf"Expected paper_mode with action_sampling='candidates'.*got '{sampling}'\. F"
    ):
        make_agent(POAD, action_sampling=sampling, paper_mode=True)


@pytest.mark.parametrize(("name", "wrong"), [("max_new_tokens", 0), ("max_new_tokens", 2.5), ("kl_coef", -1.0)])
def test_numbers_of_acting_are_checked(name: str, wrong: float) -> None:
    with pytest.raises(ValueError, match=f"Expected {name} to be a .*got {wrong}"):
        make_agent(**{name: wrong})


@pytest.mark.parametrize("kind", [TWOSOME, GLAM, POAD, NTPO, ARCHER])
def test_an_open_action_space_has_no_trie_and_no_candidates(kind: Any) -> None:
    ways = ["trie", "candidates"] if kind in (POAD, NTPO, ARCHER) else ["candidates"]
    for way in ways:
        with pytest.raises(UnsupportedEnvError, match=r"any text is an action of this .* Fix: (leave|POAD)"):
            kind("LLMPolicy", gym.make("DataSciCoding-iris-v0"), action_sampling=way)


def test_an_open_action_space_that_is_not_declared_is_named_at_the_first_observation() -> None:
    class Undeclared(LampEnv):
        def _listed_actions(self) -> None:  # type: ignore[override]
            return None

    with pytest.raises(
        ObservationError, match=r"got none \(an open.*Fix: action_sampling='free'.*metadata\['actions'\]"
    ):
        POAD("LLMPolicy", Undeclared(), n_steps=2, policy_kwargs={"critic_arch": (8,)}).learn(2)


def test_every_way_to_act_is_a_word_that_a_checkpoint_can_hold() -> None:
    words = [one.value for one in ActionSampling]
    assert words == ["trie", "candidates", "free"]
    agents: Sequence[Any] = [make_method("TWOSOME"), make_method("POAD, free")]
    assert [agent.action_sampling for agent in agents] == ["candidates", "free"]
    assert all(type(agent.action_sampling) is str for agent in agents)


def test_a_free_agent_takes_a_text_alone() -> None:
    agent = make_agent(POAD, action_sampling="free", max_new_tokens=3)
    tokens, _ = agent.predict("The lamp is red.", deterministic=True)
    listed, _ = agent.predict("The lamp is red.", deterministic=True, admissible_actions=["press red"])
    np.testing.assert_array_equal(tokens, listed)
    assert agent.action_space.contains(tokens)


# ------------------------------------------------------------------ several environments


@pytest.mark.matrix_after(1)
@pytest.mark.parametrize("name", ["POAD", "TWOSOME", "POAD, free", "POAD, paper"])
def test_what_is_drawn_for_an_environment_does_not_know_its_neighbours(name: str) -> None:
    observation = batch_of([(f"The lamp is {colour}.", ["press red", "press blue", "wait"]) for colour in "abcde"])
    together, apart = (make_method(name).policy for _ in range(2))
    expected = [[step.path.action for step in together.act(observation)] for _ in range(4)]
    assert expected[0] != expected[1], "and it is drawn"
    one = {key: texts[3:4] for key, texts in observation.items()}
    rngs = apart.rngs_of(5)[3:4]
    assert [[apart.act(one, rngs=rngs)[0].path.action] for _ in range(4)] == [actions[3:4] for actions in expected]
    fresh = [rng.bit_generator.state for rng in make_method(name).policy.rngs_of(5)]
    assert [rng.bit_generator.state == start for rng, start in zip(apart.rollout_rngs, fresh, strict=True)] == [
        True, True, True, False, True,
    ]  # fmt: skip
