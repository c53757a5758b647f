"""A text outside the command set never raises, never acts, and costs one unit of time."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import gymnasium as gym
import pytest
from _walk import IDS, oracle_policy, random_policy, same, walk_from_reset
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from lang_envs import ENV_ROWS
from lang_envs.wrappers import TextAction

STAY = -0.001
"""Reward of one primitive in the kitchen."""

OVER_LONG = "x" * 1_000_000
"""Longer than any action space: invalid even where every text is in the command set."""

KITCHENS = [row.id for row in ENV_ROWS if row.id.startswith("Overcooked-")]

ANY_CHARACTER = st.characters(exclude_categories=())  # control characters and lone surrogates too
STRANGE_TEXTS = st.one_of(
    st.text(ANY_CHARACTER),
    st.text(st.characters(categories=["Cc", "Cs", "Cf", "Zs"])),
    st.builds(lambda text, times: text * times, st.text(ANY_CHARACTER, min_size=1, max_size=8), st.integers(1, 20_000)),
)
ALTERATIONS = st.sampled_from(
    [
        str.upper,
        str.capitalize,
        lambda phrase: f" {phrase}",
        lambda phrase: f"{phrase} ",
        lambda phrase: f"{phrase}.",
        lambda phrase: f"{phrase}\n",
        lambda phrase: f"{phrase}\0",
        lambda phrase: f"\ufeff{phrase}",
        lambda phrase: phrase.replace(" ", "  ", 1),
        lambda phrase: phrase.replace(" ", "\u00a0", 1),
        lambda phrase: phrase.replace("o", "\u043e", 1),
        lambda phrase: phrase.replace("e", "\u212f", 1),
        lambda phrase: phrase[:-1],
        lambda phrase: f"{phrase}\ud800",
        lambda phrase: f"{phrase}, {phrase}",
        lambda phrase: f'"{phrase}"',
    ]
)


@lru_cache
def talking(env_id: str, **kwargs: Any) -> TextAction:
    return TextAction(gym.make(env_id, **kwargs))


def check_refused(env: TextAction, text: str, n_steps: int) -> None:
    """Say `text` after `n_steps` of random play."""
    _, steps = walk_from_reset(env.env, random_policy(n_steps), n_steps, seed=0)
    listed = env.unwrapped.admissible_actions()
    if listed is None:
        pytest.skip("an open action space refuses no text that fits")
    assume(text not in listed)
    before = env.unwrapped.get_state()
    _, reward, terminated, truncated, info = env.step(text)
    after = env.unwrapped.get_state()
    assert info["invalid_action"] is True
    assert info["admissible_actions"] == listed
    assert (terminated, truncated, info["success"]) == (False, False, False)
    assert len(steps) == n_steps
    assert same(after["np_random"], before["np_random"])
    if "primitive_steps" in info:
        assert (reward, info["primitive_steps"]) == (STAY, 1)
        assert after["world"].state == before["world"].state
        assert after["world"].primitives == before["world"].primitives + 1


@pytest.mark.parametrize("env_id", IDS)
@settings(deadline=None, max_examples=150)
@given(text=STRANGE_TEXTS, n_steps=st.integers(0, 6))
@example(text="", n_steps=0)
@example(text="\ud800", n_steps=0)
@example(text=OVER_LONG, n_steps=0)
@example(text="\0" * 47, n_steps=0)
def test_any_other_text_is_refused(env_id: str, text: str, n_steps: int) -> None:
    check_refused(talking(env_id), text, n_steps)


@pytest.mark.parametrize("env_id", IDS)
@settings(deadline=None, max_examples=100)
@given(data=st.data(), alter=ALTERATIONS, n_steps=st.integers(0, 6))
def test_a_text_near_a_listed_one_is_refused(env_id: str, data: st.DataObject, alter: Any, n_steps: int) -> None:
    env = talking(env_id)
    walk_from_reset(env.env, random_policy(n_steps), n_steps, seed=0)
    phrase = data.draw(st.sampled_from(env.unwrapped.admissible_actions() or ["a sentence"]))
    check_refused(env, alter(phrase), n_steps)


@pytest.mark.parametrize("env_id", IDS)
@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 2**31), n_steps=st.integers(0, 6))
def test_random_tokens_are_refused_or_executed_but_never_raise(env_id: str, seed: int, n_steps: int) -> None:
    env = talking(env_id).env
    _, steps = walk_from_reset(env, random_policy(n_steps), n_steps, seed=seed)
    listed = env.unwrapped.admissible_actions()
    env.action_space.seed(seed)
    action = env.action_space.sample()
    *_, info = env.step(action)
    said = env.action_space.decode_finished(action)
    assert len(steps) == n_steps
    assert info["invalid_action"] is (listed is not None and said not in listed)


def test_an_unfinished_sentence_is_refused(env_id: str) -> None:
    env = gym.make(env_id)
    env.reset(seed=0)
    *_, info = env.step(env.action_space.unfinished())
    assert info["invalid_action"] is True
    assert env.unwrapped.last_action is None


def test_a_listed_action_that_is_too_long_for_the_space_is_refused(env_id: str) -> None:
    env = TextAction(gym.make(env_id, max_action_length=4))
    env.reset(seed=0)
    *_, info = env.step(env.unwrapped.oracle_action())
    assert info["invalid_action"] is True


@pytest.mark.parametrize("extra", [-0.5, 0.25])
def test_invalid_action_reward_is_added_to_invalid_steps_only(env_id: str, extra: float) -> None:
    plain, changed = talking(env_id), talking(env_id, invalid_action_reward=extra)
    for env in (plain, changed):
        env.reset(seed=0)
    for text, expected in ((OVER_LONG, extra), (None, 0.0), (OVER_LONG, extra), (None, 0.0)):
        said = oracle_policy(plain, {}) if text is None else text
        rewards = [env.step(said)[1] for env in (plain, changed)]
        assert rewards[1] - rewards[0] == pytest.approx(expected)
    returns = [env.unwrapped.episode_return for env in (plain, changed)]
    assert returns[1] - returns[0] == pytest.approx(2 * extra)


@pytest.mark.parametrize("env_id", KITCHENS)
def test_invalid_actions_run_into_the_time_limit(env_id: str) -> None:
    env = talking(env_id, max_primitives=5)
    text, _ = env.reset(seed=0)
    ends = []
    for _ in range(5):
        said, reward, terminated, truncated, _ = env.step("")
        ends.append((terminated, truncated))
        assert (said, reward) == (text, STAY)
    assert ends == [(False, False)] * 4 + [(False, True)]
