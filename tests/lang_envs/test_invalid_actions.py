"""A text outside the command set never raises, never acts, and costs one unit of time.

Of the families that list their actions; where any text is a command, see `test_datasci_env`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import gymnasium as gym
import hypothesis
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from walk import FAMILY_IDS, IDS, oracle_policy, random_policy, walk_from_reset

from lang_envs import LangEnv
from lang_envs.wrappers import TextAction

N_TEXTS = 10_000
"""Texts that are tried on the first id of every family."""
EVERY = 8
"""Of these, one in so many is tried on the other ids, which share its code."""
N_STRANGE = 7_500
"""Of those, texts unrelated to any phrase."""
MAX_ROUNDS = 20
"""Of at most 5,000 draws each; the texts asked for here take three."""
N_PER_WALK = 20
"""Texts tried in one place, before the walk to the next one."""

OVER_LONG = "x" * 1_000_000
"""Longer than any action space: invalid even where every text is in the command set."""


class Family(NamedTuple):
    """Differences between families.

    Attributes:
        passing: Fields of the world that time changes; the first one counts it.
        reward: Of one unit of time, now.
        limit: Argument that bounds the units of an episode.
        command_set: The texts that are valid now.
    """

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
}


CLOSED_IDS = [env_id for env_id in IDS if env_id.split("-")[0] in FAMILIES]
OPEN_IDS = [env_id for env_id in IDS if env_id not in CLOSED_IDS]


@pytest.fixture(params=CLOSED_IDS)
def env_id(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize("env_id", OPEN_IDS)
def test_what_is_left_out_here_lists_nothing(env_id: str) -> None:
    env = gym.make(env_id)
    assert env.reset(seed=0)[1]["admissible_actions"] is None


def family_of(env_id: str) -> Family:
    return FAMILIES[env_id.split("-")[0]]


def lasting(family: Family, world: Any) -> dict[str, Any]:
    """The world without its transient fields."""
    return {name: part for name, part in world._asdict().items() if name not in family.passing}


@lru_cache
def talking(env_id: str, **kwargs: Any) -> TextAction:
    return TextAction(gym.make(env_id, **kwargs))


# ---------------------------------------------------------------------- ten thousand texts

ANY_CHARACTER = st.characters(exclude_categories=())  # control characters and lone surrogates too
STRANGE_TEXTS = st.one_of(
    st.text(ANY_CHARACTER),
    st.text(st.characters(categories=["Cc", "Cs", "Cf", "Zs"])),
    st.builds(lambda text, times: text * times, st.text(ANY_CHARACTER, min_size=1, max_size=8), st.integers(1, 200)),
)
CHOSEN_TEXTS = ["", " ", "\n", "\0", "\0" * 47, "\ud800", "\ufeff", "None", "0", OVER_LONG, "\ud800" * 100_000]

ALTERATIONS: list[Callable[[str], str]] = [
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
    lambda phrase: phrase[1:],
    lambda phrase: f"{phrase}\ud800",
    lambda phrase: f"{phrase}, {phrase}",
    lambda phrase: f'"{phrase}"',
]
EDITS = st.tuples(st.integers(0, 60), st.integers(0, 3), st.text(ANY_CHARACTER, max_size=3))
"""Place in a phrase, number of characters to leave out there, and their replacement."""


def drawn(strategy: st.SearchStrategy[Any], n: int) -> list[Any]:
    """`n` different values, the same ones in every run.

    Every round has a seed of its own: on CI machines Hypothesis derandomizes, and rounds without one draw the same.
    """
    pool: dict[Any, None] = {}

    @settings(max_examples=100, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(strategy, min_size=50, max_size=50))
    def collect(values: list[Any]) -> None:
        pool.update(dict.fromkeys(values))

    for round_number in range(MAX_ROUNDS):
        if len(pool) >= n:
            break
        hypothesis.seed(round_number)(collect)()
    assert len(pool) >= n
    return list(pool)[:n]


@lru_cache
def strange_texts() -> list[str]:
    return list(dict.fromkeys([*CHOSEN_TEXTS, *drawn(STRANGE_TEXTS, N_STRANGE)]))


@lru_cache
def edits() -> list[tuple[int, int, str]]:
    return drawn(EDITS, N_TEXTS - N_STRANGE + 1_000)  # some of them have no effect, or give the same text


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


def near_texts(phrases: tuple[str, ...]) -> Iterator[str]:
    """Texts that a careless reader could take for a phrase; phrases of other ids and of other times too."""
    for other in CLOSED_IDS:
        yield from phrases_of(other)
    yield from (alter(phrase) for phrase in phrases for alter in ALTERATIONS)
    for number, (start, n_out, instead) in enumerate(edits()):
        phrase = phrases[number % len(phrases)]
        yield phrase[:start] + instead + phrase[start + n_out :]


@pytest.mark.matrix
def test_any_other_text_is_refused(env_id: str) -> None:
    """In tokens, and as plain text past the action space."""
    env, family = talking(env_id), family_of(env_id)
    texts = list(dict.fromkeys([*strange_texts(), *near_texts(phrases_of(env_id))]))
    every = 1 if env_id in FAMILY_IDS else EVERY
    texts = list(dict.fromkeys([*CHOSEN_TEXTS, *texts[::every]]))
    refused = set()
    for walk, first in enumerate(range(0, len(texts), N_PER_WALK)):
        _, steps = walk_from_reset(env.env, random_policy(walk), walk % 7, seed=walk)
        assert len(steps) == walk % 7
        wrong = [text for text in texts[first : first + N_PER_WALK] if text not in family.command_set(env.unwrapped)]
        check_refused(env, family, wrong)
        refused.update(wrong)
    assert len(refused) >= N_TEXTS // every
    assert set(CHOSEN_TEXTS) <= refused


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


def test_the_command_set_is_never_invalid(env_id: str) -> None:
    env, family = talking(env_id), family_of(env_id)
    n_said = 0
    for n_steps in range(7):
        walk_from_reset(env.env, random_policy(n_steps), n_steps, seed=0)
        here, valid = env.unwrapped.get_state(), list(family.command_set(env.unwrapped))
        assert set(env.unwrapped.admissible_actions()) <= set(valid)
        for text in valid:
            env.unwrapped.set_state(here)
            assert env.step(text)[-1]["invalid_action"] is False, text
            n_said += 1
    assert n_said >= 7 * 2


# ---------------------------------------------------------------------- tokens, rewards, limits


@pytest.mark.parametrize("env_id", CLOSED_IDS)
@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 2**31), n_steps=st.integers(0, 6))
def test_random_tokens_are_refused_or_executed_but_never_raise(env_id: str, seed: int, n_steps: int) -> None:
    env = talking(env_id).env
    _, steps = walk_from_reset(env, random_policy(n_steps), n_steps, seed=seed)
    valid = family_of(env_id).command_set(env.unwrapped)
    env.action_space.seed(seed)
    action = env.action_space.sample()
    *_, info = env.step(action)
    said = env.action_space.decode_finished(action)
    assert len(steps) == n_steps
    assert info["invalid_action"] is (said not in valid)


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


def test_invalid_actions_run_into_the_time_limit(env_id: str) -> None:
    family = family_of(env_id)
    env = talking(env_id, **{family.limit: 5})
    text, _ = env.reset(seed=0)
    ends = []
    for _ in range(5):
        said, reward, terminated, truncated, _ = env.step("")
        ends.append((terminated, truncated))
        assert (said, reward) == (text, family.reward(env.unwrapped))
    assert ends == [(False, False)] * 4 + [(False, True)]
