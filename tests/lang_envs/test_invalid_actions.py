"""A text outside the command set never raises, never acts, and costs one unit of time.

Of the families that list their actions; where any text is a command, see `test_datasci_env`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import gymnasium as gym
import pytest
from walk import IDS, oracle_policy, random_policy, walk_from_reset

from lang_envs import LangEnv
from lang_envs.wrappers import TextAction

N_PER_WALK = 20
"""Texts tried in one place, before the walk to the next one."""

OVER_LONG = "x" * 1_000_000
"""Longer than any action space: invalid even where every text is in the command set."""


class Family(NamedTuple):
    """Differences between families: transient fields (the first is a clock), reward of a unit, limit, valid texts."""

    passing: tuple[str, ...]
    reward: Callable[[LangEnv[Any]], float]
    limit: str
    command_set: Callable[[LangEnv[Any]], Any]


FAMILIES = {
    "Overcooked": Family(
        ("primitives", "last_primitives"), lambda _: -0.001, "max_primitives", lambda env: env.admissible_actions()
    ),
    "VirtualHome": Family(("steps", "succeeded"), lambda _: 0.0, "max_steps", lambda env: env.command_set),
    "KeyToken": Family(("steps", "n_correct"), lambda _: 0.0, "max_steps", lambda env: env.admissible_actions()),
    "MultiKey": Family(
        ("steps", "n_correct"),
        lambda env: -0.25 if getattr(env, "order", "") == "a cost" else 0.0,
        "max_steps",
        lambda env: env.admissible_actions(),
    ),
    "Parity": Family(("steps", "n_correct"), lambda _: 0.0, "max_steps", lambda env: env.admissible_actions()),
}


CLOSED_IDS = [env_id for env_id in IDS if not env_id.startswith("DataSciCoding-")]


@pytest.fixture(params=CLOSED_IDS)
def env_id(request: pytest.FixtureRequest) -> str:
    return request.param


def family_of(env_id: str) -> Family:
    name = env_id.split("-")[0]
    assert name in FAMILIES, f"add {name} to FAMILIES; its world is a NamedTuple with a clock"
    return FAMILIES[name]


def lasting(family: Family, world: Any) -> dict[str, Any]:
    """The world without its transient fields."""
    return {name: part for name, part in world._asdict().items() if name not in family.passing}


@lru_cache
def talking(env_id: str, **kwargs: Any) -> TextAction:
    return TextAction(gym.make(env_id, **kwargs))


# ---------------------------------------------------------------------- strange and near texts

CHOSEN_TEXTS = ["", " ", "\n", "\0", "\0" * 47, "\ud800", "\ufeff", "None", "0", OVER_LONG, "\ud800" * 100_000]
ALTERATIONS: list[Callable[[str], str]] = [
    str.upper,
    lambda phrase: f" {phrase}",
    lambda phrase: f"{phrase}\n",
    lambda phrase: f"{phrase}\0",
    lambda phrase: phrase.replace(" ", "\u00a0", 1),
    lambda phrase: phrase.replace("o", "\u043e", 1),
    lambda phrase: phrase[:-1],
    lambda phrase: f"{phrase}, {phrase}",
]


@lru_cache
def phrases_of(env_id: str) -> tuple[str, ...]:
    """Phrases that are valid at some time of an optimal episode."""
    env = talking(env_id).env
    _, info = env.reset(seed=0)
    phrases: dict[str, None] = {}
    over = False
    while not over:
        phrases |= dict.fromkeys(family_of(env_id).command_set(env.unwrapped))
        *_, over, _, info = env.step(env.action_space.encode(oracle_policy(env, info)))
    return tuple(phrases)


@pytest.mark.matrix
def test_any_other_text_is_refused(env_id: str) -> None:
    """In tokens, and as plain text past the action space; phrases of other ids and of other times too."""
    env, family = talking(env_id), family_of(env_id)
    near = [alter(phrase) for phrase in phrases_of(env_id) for alter in ALTERATIONS]
    others = [phrase for other in CLOSED_IDS for phrase in phrases_of(other)]
    texts = list(dict.fromkeys([*CHOSEN_TEXTS, *near, *others]))
    refused = set()
    for walk, first in enumerate(range(0, len(texts), N_PER_WALK)):
        walk_from_reset(env.env, random_policy(walk), walk % 7, seed=walk)
        wrong = [text for text in texts[first : first + N_PER_WALK] if text not in family.command_set(env.unwrapped)]
        check_refused(env, family, wrong)
        refused.update(wrong)
    assert set(CHOSEN_TEXTS) <= refused
    assert len(refused) > len(near) // 2


def check_refused(env: TextAction, family: Family, texts: list[str]) -> None:
    before, listed = env.unwrapped.get_state(), env.unwrapped.admissible_actions()
    clock, expected = getattr(before["world"], family.passing[0]), family.reward(env.unwrapped)
    for passed, (text, say) in enumerate(product(texts, (env.step, env.unwrapped.step_text)), start=1):
        _, reward, terminated, truncated, info = say(text)
        after = env.unwrapped.get_state()
        assert info["invalid_action"] is True, text[:100]
        assert info["admissible_actions"] == listed, text[:100]
        assert (reward, terminated, truncated, info["success"]) == (expected, False, False, False), text[:100]
        assert getattr(after["world"], family.passing[0]) == clock + passed, text[:100]
        assert lasting(family, after["world"]) == lasting(family, before["world"]), text[:100]
        assert (after["order_key"], after["np_random"]) == (before["order_key"], before["np_random"]), text[:100]


# ---------------------------------------------------------------------- tokens, rewards, limits


def test_a_listed_action_that_is_too_long_for_the_space_is_refused(env_id: str) -> None:
    env = TextAction(gym.make(env_id, max_action_length=3))
    env.reset(seed=0)
    *_, info = env.step(env.unwrapped.oracle_action())
    assert info["invalid_action"] is True


def test_invalid_action_reward_is_added_to_invalid_steps_only(env_id: str) -> None:
    extra = -0.5
    plain, changed = talking(env_id), talking(env_id, invalid_action_reward=extra)
    for env in (plain, changed):
        env.reset(seed=0)
    for text, expected in ((OVER_LONG, extra), (None, 0.0), (OVER_LONG, extra), (None, 0.0)):
        action = oracle_policy(plain, {}) if text is None else text
        rewards = [env.step(action)[1] for env in (plain, changed)]
        assert rewards[1] - rewards[0] == pytest.approx(expected)
    returns = [env.unwrapped.episode_return for env in (plain, changed)]
    assert returns[1] - returns[0] == pytest.approx(2 * extra)


def test_invalid_actions_run_into_the_time_limit(env_id: str) -> None:
    family = family_of(env_id)
    env = talking(env_id, **{family.limit: 5})
    text, _ = env.reset(seed=0)
    ends = []
    for _ in range(5):
        observed, reward, terminated, truncated, _ = env.step("")
        ends.append((terminated, truncated))
        assert (observed, reward) == (text, family.reward(env.unwrapped))
    assert ends == [(False, False)] * 4 + [(False, True)]
