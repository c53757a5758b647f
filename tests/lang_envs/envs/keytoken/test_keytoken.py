"""KeyToken: one word of an action decides, and everything about it is known."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from lang_envs.env_checker import Status, run_checks
from lang_envs.envs.keytoken.admissible import FILLER, KEYS
from lang_envs.envs.keytoken.env import KeyTokenEnv

ID = "KeyToken-v0"
LONG = {"n_tokens": 64, "key_position": 1, "n_actions": 7, "horizon": 3, "variable_lengths": True}


@pytest.fixture
def env() -> Iterator[KeyTokenEnv]:
    env = gym.make(ID).unwrapped
    env.reset(seed=0)
    yield env
    env.close()


def wrong(env: KeyTokenEnv) -> str:
    return next(sentence for sentence in env.sentences if sentence != env.oracle_action())


# ---------------------------------------------------------------------- sentences


@pytest.mark.parametrize("kwargs", [LONG, {"n_tokens": 1, "key_position": 0}])
def test_actions_differ_in_the_key_word_and_in_nothing_before_it(kwargs: dict[str, Any]) -> None:
    env = KeyTokenEnv(**kwargs)
    words = [sentence.split(" ") for sentence in env.sentences]
    assert [sentence[env.key_position] for sentence in words] == list(KEYS[: env.n_actions])
    for sentence in words:
        del sentence[env.key_position]
        assert set(sentence) <= {FILLER}


# ---------------------------------------------------------------------- decisions


def test_the_key_word_decides(env: KeyTokenEnv) -> None:
    for right in (True, False, False, True):
        sentence = env.oracle_action() if right else wrong(env)
        key = env.key
        _, reward, terminated, truncated, info = env.step_text(sentence)
        assert (reward, info["key_correct"], truncated) == (0.25 * right, right, False)
        assert (key in sentence.split()) is right
        assert info["key"] == env.key
    assert terminated
    assert info["success"] is False
    assert env.answers == (True, False, False, True)
    assert env.episode_return == 0.5


@pytest.mark.parametrize("horizon", [1, 7])
def test_an_episode_of_right_decisions_succeeds_and_returns_one(horizon: int) -> None:
    env = KeyTokenEnv(horizon=horizon)
    env.reset(seed=3)
    for left in reversed(range(horizon)):
        _, _, terminated, truncated, info = env.step_text(env.oracle_action())
        assert (terminated, truncated, info["success"]) == (left == 0, False, left == 0)
    assert env.episode_return == pytest.approx(1.0, abs=1e-12)


def test_only_invalid_actions_run_into_the_time_limit() -> None:
    env = KeyTokenEnv(max_steps=5)
    env.reset(seed=0)
    env.step_text("")
    ends = [env.step_text(env.oracle_action())[2:4] for _ in range(4)]
    assert ends == [(False, False)] * 3 + [(True, False)]  # the last decision in the last step counts
    env.reset(seed=0)
    ends = [env.step_text(text)[2:4] for text in ("", "", env.sentences[0], env.sentences[0], env.sentences[0])]
    assert ends == [(False, False)] * 4 + [(False, True)]


def test_key_words_are_drawn_uniformly_and_anew(env: KeyTokenEnv) -> None:
    counts, pairs = Counter[str](), set()
    for seed in range(500):
        _, info = env.reset(seed=seed)
        for _ in range(4):
            before = info["key"]
            counts[before] += 1
            *_, info = env.step_text(env.sentences[0])
            pairs.add((before, info["key"]))
    assert len(counts) == 5
    assert sum((count - 400) ** 2 / 400 for count in counts.values()) < 18.5  # chi-square, 4 degrees, 0.1 %
    assert len(pairs) == 25


# ---------------------------------------------------------------------- the contract with other arguments


@pytest.mark.parametrize("kwargs", [LONG, {"n_tokens": 1, "key_position": 0, "n_actions": 2, "horizon": 1}])
def test_the_contract_holds_for_other_sizes(kwargs: dict[str, Any]) -> None:
    assert [result for result in run_checks(ID, **kwargs) if result.status is not Status.PASSED] == []


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"key_position": 4}, "Expected key_position below n_tokens; got 4 and 4.* count from 0"),
        ({"n_actions": 33}, "Expected at most 32 actions, one for each key word; got n_actions=33"),
        ({"max_steps": 3}, "Expected max_steps to be an integer of at least 4; got 3"),
        ({"n_tokens": 2, "variable_lengths": True}, "Expected room for different lengths after the key word"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KeyTokenEnv(**kwargs)


# ---------------------------------------------------------------------- pictures


@pytest.mark.parametrize("kwargs", [{}, {**LONG, "horizon": 60, "n_actions": 32}])
def test_a_frame_shows_order_answers_and_what_was_said(kwargs: dict[str, Any]) -> None:
    env = gym.make(ID, render_mode="rgb_array", **kwargs).unwrapped
    env.reset(seed=0)
    frames = [env.render()]
    for sentence in (env.oracle_action(), wrong(env), "\x1b[31m " * 400, "x" * 5000, None):
        env.step_text(sentence)
        frames.append(env.render())
    assert {frame.shape for frame in frames} == {(256, 480, 3)}
    assert all((frame != following).any() for frame, following in itertools.pairwise(frames))


# ---------------------------------------------------------------------- its table


def test_its_table_has_the_values_of_the_closed_form() -> None:
    from benchmarks.exact import solve_actions, solve_tokens
    from benchmarks.performance.theory import keytoken_table

    table = keytoken_table(KeyTokenEnv(**LONG), gamma=0.9)
    left = np.repeat([3, 2, 1], 7)
    expected = (1 - 0.9**left) / (1 - 0.9) / 3
    np.testing.assert_allclose(solve_actions(table).values[:-1], expected, atol=1e-12)
    np.testing.assert_allclose(solve_tokens(table, 1.0).values[:-1, 0], expected, atol=1e-12)
    assert list(map(len, table.actions)) == [3, 13, 23, 34, 44, 54, 65]  # words and the end token


@pytest.mark.parametrize(("n_words", "gamma_token"), [(9, 1.0), (64, 0.95)])
def test_the_gap_of_the_naive_backup_is_the_predicted_one(n_words: int, gamma_token: float) -> None:
    from benchmarks.performance.theory import discrepancy, predicted_gap

    assert discrepancy(n_words, gamma_token) == pytest.approx(predicted_gap(n_words, gamma_token), abs=1e-12)


def test_the_committed_figures_are_those_of_this_code() -> None:
    from benchmarks.files import RESULTS
    from benchmarks.performance.theory import GAMMA_TOKENS, discrepancy, greedy_share

    part = json.loads((RESULTS / "theory.json").read_text(encoding="utf-8"))["exact"]
    assert list(part["curves"]) == [f"{gamma_token:g}" for gamma_token in GAMMA_TOKENS]
    assert part["lengths"] == list(range(2, 65))
    for name, curve in part["curves"].items():
        assert curve["gap"] == pytest.approx(curve["predicted"], abs=1e-12)
        assert curve["gap"][14] == pytest.approx(discrepancy(16, float(name)))
        assert curve["greedy_share"][14] == pytest.approx(greedy_share(16, float(name)))
    wrong_shares = [curve["wrong_share"] for curve in part["curves"].values()]
    assert wrong_shares[0] == 0.0
    assert wrong_shares == sorted(wrong_shares)
