"""Thoughts before actions: one distribution over both, by enumeration on a model of six words."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3.common.evaluation import evaluate_policy
from toy import (
    COLOURS,
    ONE_STEP,
    WORDS,
    OpenLampEnv,
    adapter_gradient,
    all_log_probs,
    assert_same_frequencies,
    assert_same_gradient,
    batch_of,
    children_after,
    collect,
    gradient_by_autograd,
    hold_still,
    make_agent,
    make_method,
    randomise,
    run_update,
    save_small_model,
)

from poad_sb3 import POAD, LLMPolicy, ModelError, ObservationError, prompts
from poad_sb3.common.critics import prefix_row
from poad_sb3.common.episodes import policy_episodes
from poad_sb3.distributions.base import ScoreCache

OPENING, MARK, END = WORDS.index("it"), WORDS.index("red"), WORDS.index("<end>")
QUESTION = ("press it", ("wait", "press wait", "press press"))
OPEN = ("press it", None)


def small_policy(tmp_path: Path, **settings: Any) -> LLMPolicy:
    """A policy with a vocabulary of six words; thoughts have at most two tokens, and end with the word "red"."""
    kwargs = {"critic_arch": (8,), "model": save_small_model(tmp_path / "small")}
    settings = {"max_thought_tokens": 2, "thought_marks": ("it", "red"), **settings}
    policy = make_agent(policy_kwargs=kwargs, action_sampling="think", **settings).policy
    randomise(policy)
    return policy


def open_policy(tmp_path: Path, **settings: Any) -> LLMPolicy:
    """The same, with text in place of listed actions."""
    return small_policy(tmp_path, lamp=OpenLampEnv, **{"max_new_tokens": 3, **settings})


def every_thought() -> list[tuple[int, ...]]:
    """All thoughts of at most two tokens, with the mark that is added where they have not written it."""
    ends = (MARK, END)
    others = [token for token in range(len(WORDS)) if token not in ends]
    thoughts = [*((end,) for end in ends), *itertools.product(others, range(len(WORDS)))]
    return [thought if MARK in thought else (*thought, MARK) for thought in thoughts]


def log_prob(policy: LLMPolicy, prompt: tuple[int, ...], tokens: tuple[int, ...], n_thought: int) -> torch.Tensor:
    """Log-probability of thought and action; an added mark is the third token or follows an end."""
    table = all_log_probs(policy, prompt, tokens)
    actions = [policy.lm.action_ids(action) for action in QUESTION[1]]
    is_added = n_thought == 3 or tokens[0] == END
    total = table[range(n_thought - is_added), tokens[: n_thought - is_added]].sum()
    for position in range(n_thought, len(tokens)):
        children = children_after(tokens[n_thought:position], actions)
        total = total + torch.log_softmax(table[position, children], 0)[children.index(tokens[position])]
    return total


def test_frequencies_of_thoughts_and_actions_are_their_probabilities(tmp_path: Path) -> None:
    policy, n = small_policy(tmp_path), 3000
    steps = policy.act(batch_of([QUESTION] * n))
    prompt = (*policy.lm.prompt_ids(QUESTION[0]), OPENING)
    outcomes = {
        (*thought, *policy.lm.action_ids(action)): len(thought) for thought in every_thought() for action in QUESTION[1]
    }
    counts = Counter(step.path.action for step in steps)
    assert set(counts) <= set(outcomes)
    with torch.no_grad():
        logged = {tokens: float(log_prob(policy, prompt, tokens, n)) for tokens, n in outcomes.items()}
    assert_same_frequencies([counts[tokens] for tokens in outcomes], np.exp([*logged.values()]).tolist())
    for step in steps[:50]:
        assert step.path.prompt == prompt
        assert float(step.log_probs.sum()) == pytest.approx(logged[step.path.action], abs=1e-4)
        assert policy.action_space.decode(step.env_action) == step.text, "the environment gets the action alone"
        assert step.text in QUESTION[1]


def test_frequencies_of_thoughts_and_free_text_are_their_probabilities(tmp_path: Path) -> None:
    policy, n = open_policy(tmp_path, max_new_tokens=1), 4000
    steps = policy.act(batch_of([OPEN] * n))
    prompt = (*policy.lm.prompt_ids(OPEN[0]), OPENING)
    logged = {}
    with torch.no_grad():
        for thought in every_thought():
            table = all_log_probs(policy, prompt, (*thought, 0))
            n_written = len(thought) - (len(thought) == 3 or thought[0] == END)
            of_thought = float(table[range(n_written), thought[:n_written]].sum())
            for token in range(len(WORDS)):
                logged[*thought, token] = of_thought + float(table[len(thought), token])
    assert np.exp([*logged.values()]).sum() == pytest.approx(1, abs=1e-4)
    counts = Counter(step.path.action for step in steps)
    assert set(counts) <= set(logged)
    assert_same_frequencies([counts[tokens] for tokens in logged], np.exp([*logged.values()]).tolist())
    for step in steps[:50]:
        assert float(step.log_probs.sum()) == pytest.approx(logged[step.path.action], abs=1e-4)
        assert step.text == policy.lm.prompter.action_text(step.path.action[step.path.n_thought :]), "the action alone"
    with pytest.raises(ObservationError, match="over listed actions"):
        policy.distribution.probabilities(prompts.Question(*OPEN), ScoreCache([]))


def test_prompts_continue_the_sampled_tokens_where_thoughts_are_kept() -> None:
    agent, _ = collect("POAD, think", keep_thoughts=True, n_envs=2, n_steps=8, env={"moves": 3, "truncates": True})
    buffer, prompter = agent.rollout_buffer, agent.policy.lm.prompter
    bootstraps = {**buffer.final_prompts}
    n_continued = 0
    for env in range(2):
        paths = [steps[env].path for steps in buffer.steps]
        for step, (path, after) in enumerate(itertools.pairwise(paths)):
            so_far = (*path.prompt, *path.action[:-1])
            if (step, env) in bootstraps:
                assert bootstraps[step, env][: len(so_far)] == so_far
                assert len(after.prompt) < len(so_far), "a new episode begins anew"
                continue
            assert after.prompt[: len(so_far)] == so_far
            assert prompter.action_text(after.prompt[len(so_far) :]).startswith("\nThe lamp is"), "and not cut"
            n_continued += 1
    assert n_continued
    assert bootstraps
    assert run_update(agent)["first_ratio_error"] < 1e-4


def test_a_failed_step_leaves_no_thoughts_to_the_next_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = make_method("POAD, think", keep_thoughts=True, n_envs=2, n_steps=8)
    env = agent.get_env()
    step_wait, n_steps = env.step_wait, itertools.count(1)

    def fail_at_the_end() -> Any:
        observations, rewards, dones, infos = step_wait()
        return observations, rewards * (np.nan if next(n_steps) == 3 else 1.0), dones, infos

    monkeypatch.setattr(env, "step_wait", fail_at_the_end)
    with pytest.raises(FloatingPointError, match="Expected finite rewards"):
        agent.learn(16)
    agent.train = lambda: None  # type: ignore[method-assign]
    agent.learn(16, reset_num_timesteps=False)
    for step in agent.rollout_buffer.steps[0]:
        assert agent.policy.lm.prompter.action_text(step.path.prompt).count("The lamp is") == 1


def test_a_training_loaded_without_memory_forgets_the_thoughts_of_its_checkpoint(tmp_path: Path) -> None:
    agent = make_method("POAD, think", keep_thoughts=True)
    agent.learn(16)
    agent.save(tmp_path / "kept.zip")
    loaded = POAD.load(tmp_path / "kept.zip", agent.get_env(), keep_thoughts=False)
    loaded.train = lambda: None  # type: ignore[method-assign]
    loaded.learn(16, reset_num_timesteps=False)
    prompt = loaded.rollout_buffer.steps[0][0].path.prompt
    assert "2 moves" in (text := loaded.policy.lm.prompter.action_text(prompt)), "in the middle of an episode"
    assert text.count("The lamp is") == 1


def test_predict_carries_the_thoughts_in_its_state() -> None:
    agent = make_method("POAD, think", keep_thoughts=True, n_envs=2)
    env = agent.get_env()
    observations, state, starts = env.reset(), None, np.ones(2, dtype=bool)
    lengths = []
    for _ in range(3):
        actions, state = agent.predict(observations, state, starts, deterministic=True)
        lengths.append([len(past) for past in state[0]])
        observations, _, starts, _ = env.step(actions)
    assert starts.all()
    assert lengths[0] < lengths[1] < lengths[2]
    _, again = agent.predict(observations, state, starts, deterministic=True)
    assert [len(past) for past in again[0]] < lengths[1]
    single = {name: column[:1] for name, column in observations.items()}
    for others in ((single, state), (observations, state, starts[:1])):
        with pytest.raises(ObservationError, match="Expected state and episode_start of"):
            agent.predict(*others)
    rewards, _ = evaluate_policy(agent, env, n_eval_episodes=2, warn=False)
    played = policy_episodes(agent.policy, "MultiKey-v0", 1)[0]
    assert np.isfinite(rewards)
    assert played


def test_a_prompt_without_room_for_the_past_begins_anew(tmp_path: Path) -> None:
    policy = small_policy(tmp_path, keep_thoughts=True)
    question = prompts.Question(*QUESTION)
    for n_past in range(policy.lm.max_length + 1):
        past = (OPENING,) * n_past
        prompt = policy.distribution.prompt(question._replace(past=past))
        anew = prompt == policy.distribution.prompt(question)
        assert anew or prompt[:n_past] == past
        assert len(prompt) + 2 + policy.distribution.n_behind(question) <= policy.lm.max_length
    assert anew


@pytest.mark.parametrize(
    ("make", "question", "temperature"),
    [(small_policy, QUESTION, 1.0), (small_policy, QUESTION, 2.5), (open_policy, OPEN, 2.5)],
)
def test_the_update_scores_thought_and_action_with_their_gradient(
    tmp_path: Path, make: Any, question: Any, temperature: float
) -> None:
    policy = make(tmp_path, temperature=temperature)
    paths = [step.path for step in policy.act(batch_of([question] * 6))]
    ours = policy.distribution.log_prob(paths)
    theirs = [
        sum(
            torch.log_softmax((row[[*decision.children]] if decision.children else row) / temperature, 0)[
                decision.choice
            ]
            for decision in path.decisions
            for row in [all_log_probs(policy, path.prompt, path.action)[decision.position]]
        )
        for path in paths
    ]
    expected = torch.stack(theirs)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-4)
    assert_same_gradient(gradient_by_autograd(policy, ours.sum()), gradient_by_autograd(policy, expected.sum()))


def test_actions_are_scored_on_the_keys_and_values_of_thoughts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in passes that read prompt and thought again, whatever the batch; a large trie is scored along the path."""
    policy = small_policy(tmp_path, max_thought_tokens=4)
    lm, listed = policy.lm, (QUESTION[1], ["wait", "it"], ["press"])
    questions = [(" ".join(["press"] * (1 + k % 5)), listed[k % 3]) for k in range(30)]
    rngs = [*range(len(questions))]
    again: list[int] = []
    hidden_states = lm.hidden_states
    monkeypatch.setattr(lm, "hidden_states", lambda *args: (again.append(1), hidden_states(*args))[1])

    def act(some: list[int]) -> list[Any]:
        policy.clear_caches()
        return policy.act(batch_of([questions[k] for k in some]), rngs=[np.random.default_rng(k) for k in some])

    shared = act(rngs)
    assert not again
    assert len({step.path.n_thought for step in shared}) > 2, "thoughts end at different steps"
    alone = [step for k in rngs for step in act([k])]
    lm.max_tokens_per_forward = 40
    chunked = act(rngs)
    assert not again
    lm.caches = False
    plain = act(rngs)
    assert again
    for ours, *others in zip(shared, alone, chunked, plain, strict=True):
        for other in others:
            assert other.path == ours.path
            np.testing.assert_allclose(other.log_probs, ours.log_probs, rtol=0, atol=1e-5)
    lm.caches, policy.distribution.max_branch_points = True, 0
    for steps in (shared, act(rngs)):
        scores = policy.distribution.log_prob([step.path for step in steps]).tolist()
        assert scores == pytest.approx([float(step.log_probs.sum()) for step in steps], abs=1e-4)


def test_divergence_and_entropy_are_those_of_each_decision(tmp_path: Path) -> None:
    policy = small_policy(tmp_path)
    paths = [step.path for step in policy.act(batch_of([QUESTION] * 6))]
    features = torch.cat(
        [
            policy.lm.trunk_features([prefix_row(path, len(path.action))])[0][
                [decision.position for decision in path.decisions]
            ]
            for path in paths
        ]
    )
    (ours,) = policy.distribution.evaluate(paths, base_features=features)
    entropies, divergences = [], []
    for path in paths:
        now, base = (all_log_probs(policy, path.prompt, path.action, adapter=adapter) for adapter in (True, False))
        for decision in path.decisions:
            kept = [*decision.children] or [*range(len(WORDS))]
            p, q = (torch.log_softmax(table[decision.position, kept], 0) for table in (now, base))
            entropies.append(-(p.exp() * p).sum())
            divergences.append((p.exp() * (p - q)).sum())
    order = ours.units.argsort()
    assert ours.kl_to_base is not None
    torch.testing.assert_close(ours.entropy[order], torch.stack(entropies), rtol=0, atol=1e-4)
    torch.testing.assert_close(ours.kl_to_base[order], torch.stack(divergences), rtol=0, atol=1e-4)
    choices = policy.distribution.token_choices(prompts.Question(*QUESTION), paths[0], ScoreCache([]))
    n = len(paths[0].decisions)
    np.testing.assert_allclose([choice.entropy for choice in choices], torch.stack(entropies[:n]).detach(), atol=1e-4)


def test_deterministic_is_the_greedy_thought_and_then_the_best_action(tmp_path: Path) -> None:
    policy = small_policy(tmp_path)
    prompt, thought = (*policy.lm.prompt_ids(QUESTION[0]), OPENING), ()
    with torch.no_grad():
        while len(thought) < 2 and not {MARK, END} & {*thought}:
            thought = (*thought, int(all_log_probs(policy, prompt, (*thought, 0))[-1].argmax()))
    thought = thought if MARK in thought else (*thought, MARK)
    probabilities = policy.action_probabilities(*QUESTION)
    (step,) = policy.act(batch_of([QUESTION]), deterministic=True)
    assert step.text == max(probabilities, key=probabilities.__getitem__)
    assert step.path.action == (*thought, *policy.lm.action_ids(step.text))
    assert sum(probabilities.values()) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("keep_thoughts", [False, True])
def test_a_training_with_thoughts_resumes_bit_for_bit(tmp_path: Path, keep_thoughts: bool) -> None:
    whole, first = (make_method("POAD, think", keep_thoughts=keep_thoughts) for _ in range(2))
    whole.learn(48)
    first.learn(16).save(tmp_path / "half.zip")
    resumed = POAD.load(tmp_path / "half.zip", first.get_env())
    resumed.learn(32, reset_num_timesteps=False)
    for name, tensor in whole.policy.state_dict().items():
        assert torch.equal(tensor, resumed.policy.state_dict()[name]), name


def test_rejects_marks_that_the_tokenizer_cannot_spell(tmp_path: Path) -> None:
    with pytest.raises(ObservationError, match="a mark that the tokenizer can spell; got 'ponder'"):
        small_policy(tmp_path, thought_marks=("ponder", "red"))
    with pytest.raises(ValueError, match="thought_marks to be two texts"):
        make_agent(action_sampling="think", thought_marks=("<think>",))


def test_the_path_of_a_demonstration_is_that_of_a_sample(tmp_path: Path) -> None:
    policy, question = small_policy(tmp_path), prompts.Question(*QUESTION)
    for step in policy.act(batch_of([QUESTION] * 200)):
        tokens, n = step.path.action, step.path.n_thought
        assert tokens[n - 1] == MARK
        assert (len(tokens) - n) == len(policy.lm.action_ids(step.text))
        if WORDS.index("<unk>") in tokens[:n]:
            continue  # a text has no such token
        assert policy.distribution.path(question, policy.thought_of(step) + step.text) == step.path
    with pytest.raises(ObservationError, match=r"at most max_thought_tokens=2 tokens; got one of 3"):
        policy.distribution.path(question, "press press it red wait")
    with pytest.raises(ObservationError, match="clone with action_sampling='trie'"):
        policy.distribution.path(question, "wait")
    with pytest.raises(ObservationError, match="Expected an admissible action"):
        policy.distribution.path(question, "press redpress")


def test_the_path_of_an_open_demonstration_is_that_of_a_sample(tmp_path: Path) -> None:
    policy, question, n_compared = open_policy(tmp_path), prompts.Question(*OPEN), 0
    for step in policy.act(batch_of([OPEN] * 200)):
        action = step.path.action[step.path.n_thought :]
        if WORDS.index("<unk>") in step.path.action or action[-1] != END:
            continue  # a text has no such token, and a demonstration ends
        n_compared += 1
        assert policy.distribution.path(question, policy.thought_of(step) + step.text) == step.path
    assert n_compared > 5
    with pytest.raises(ObservationError, match=r"at most max_new_tokens=3 tokens"):
        policy.distribution.path(question, "press red wait wait wait wait")
    with pytest.raises(ObservationError, match="clone with action_sampling='free'"):
        policy.distribution.path(question, "wait")


def test_the_coefficient_of_thoughts_weighs_their_tokens_alone() -> None:
    gradients = {}
    for coefficient in (0.0, 0.5, 1.0):
        agent, _ = collect("POAD, think", env={"forced": COLOURS})
        hold_still(agent)
        run_update(agent, replace(ONE_STEP, thought_loss_coef=coefficient))
        gradients[coefficient] = adapter_gradient(agent.policy)
    assert gradients[1.0].abs().max() > 0
    assert not gradients[0.0].any(), "its actions have no alternative"
    torch.testing.assert_close(gradients[0.5], gradients[1.0] / 2)


def test_each_token_of_a_thought_costs_the_penalty() -> None:
    free, taxed = (collect("POAD, think", thought_penalty=penalty)[0].rollout_buffer for penalty in (0.0, 0.25))
    n_thought = np.array([[step.path.n_thought for step in steps] for steps in taxed.steps])
    assert (n_thought > 0).all()
    np.testing.assert_allclose(taxed.rewards, free.rewards - 0.25 * n_thought)


def test_a_thought_leaves_room_for_mark_and_action(tmp_path: Path) -> None:
    policy = small_policy(tmp_path, max_thought_tokens=6)
    room = policy.lm.max_length - len(policy.lm.prompt_ids("press"))
    for spare in range(5, 12):  # for at least a mark, a token, a mark and an action of three tokens, the last unread
        question = (" ".join(["press"] * (1 + room - spare)), QUESTION[1])
        steps = policy.act(batch_of([question] * 8))
        lengths = [len(step.path.prompt) + len(step.path.action) for step in steps]
        assert max(lengths) <= policy.lm.max_length + 1, "the last token is never read"
        assert policy.distribution.log_prob([step.path for step in steps]).isfinite().all()
    question = (" ".join(["press"] * (1 + room - 6)), None)
    for step in open_policy(tmp_path / "open", max_thought_tokens=6).act(batch_of([question] * 8)):
        assert len(step.path.prompt) + len(step.path.action) <= policy.lm.max_length + 1
        assert len(step.path.action) > step.path.n_thought
    for spare in range(1, 4):
        question = (" ".join(["press"] * (1 + room - spare)), QUESTION[1])
        with pytest.raises(ModelError, match="Expected at most 48 tokens of prompt and action"):
            policy.act(batch_of([question] * 8))


def test_a_pass_runs_the_head_as_often_where_thoughts_alone_have_choices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks that share the weights wait for each other's passes."""
    policy, calls = small_policy(tmp_path), []

    def counted(name: str) -> Any:
        method = getattr(policy.lm, name)
        return lambda *args: (calls.append(name), method(*args))[1]

    listed = (["wait"], QUESTION[1])
    paths = [[step.path for step in policy.act(batch_of([("press it", actions)] * 4))] for actions in listed]
    for name in ("statistics", "child_logits"):
        monkeypatch.setattr(policy.lm, name, counted(name))
    for some in paths:
        policy.distribution.log_prob(some).sum().backward()
    assert calls == ["statistics", "child_logits"] * 2
