"""`set_state` with damaged and foreign states: a ValueError of one line, and the environment as it was."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from walk import FAMILY_IDS

from lang_envs import LangEnv, StateError

OPTIONS: dict[str, dict[str, Any]] = {"Overcooked": {"shuffle_actions": True}, "DataSciCoding": {"splits": 1}}
FAMILIES = {name: (env_id, OPTIONS.get(name, {})) for env_id in FAMILY_IDS for name in [env_id.partition("-")[0]]}
FOREIGN = ("Overcooked-LettuceSalad-v0", "VirtualHome-FoodPreparation-v0", "DataSciCoding-wine-v0", "KeyToken-v0")
N_MUTATIONS = 5_000
STRANGE = [
    None, True, False, 0, 1, -1, 7, 2**40, 2**200, 0.5, -0.0, float("nan"), float("inf"), "", "x", b"", b"\0" * 16,
    (), (1,), [], [[]], {}, {"a": 1}, set(), frozenset({9}), object(), np.int64(3), np.zeros(2), np.array("t"), type,
]  # fmt: skip


def played(env_id: str, kwargs: Mapping[str, Any], n_steps: int, seed: int) -> LangEnv[Any]:
    """An environment in the middle of an episode; its family has no other episode than these."""
    env = gym.make(env_id, **kwargs).unwrapped
    assert isinstance(env, LangEnv)
    _, info = env.reset(seed=seed)
    rng = random.Random(seed)
    for number in range(n_steps):
        listed = info["admissible_actions"]
        *_, info = env.step_text(rng.choice(listed) if listed else f"no code {number}")
    return env


def mutated(state: Any, rng: random.Random) -> Any:
    """The state with one part of it, at any depth, damaged."""
    if isinstance(state, Mapping) and state and rng.random() < 0.9:
        key = rng.choice(list(state))
        return in_mapping(dict(state), key, rng)
    if isinstance(state, tuple) and state and rng.random() < 0.9:
        return in_tuple(state, rng.randrange(len(state)), rng)
    if isinstance(state, str | bytes) and state and rng.random() < 0.5:
        return state[: rng.randrange(len(state))]
    if isinstance(state, int) and not isinstance(state, bool) and rng.random() < 0.3:
        return state + rng.choice([-1, 1, 1000])
    return copy.deepcopy(rng.choice(STRANGE))


def in_mapping(state: dict[Any, Any], key: Any, rng: random.Random) -> dict[Any, Any]:
    kind = rng.random()
    if kind < 0.1:
        del state[key]
    elif kind < 0.15:
        state["another"] = state[key]
    elif kind < 0.2:
        state[rng.choice([3, None, "World"])] = state.pop(key)
    else:
        state[key] = mutated(state[key], rng)
    return state


def in_tuple(state: tuple[Any, ...], index: int, rng: random.Random) -> Any:
    kind = rng.random()
    parts = list(state)
    if kind < 0.15:
        parts = parts[:index]
    elif kind < 0.2:
        parts.append(parts[index])
    elif kind < 0.25:
        return parts  # a list in place of a tuple
    else:
        parts[index] = mutated(parts[index], rng)
    return tuple.__new__(type(state), parts)


def shown(env: LangEnv[Any]) -> tuple[Any, ...]:
    """Everything that an environment shows, and how it goes on."""
    state = env.get_state()
    first = (state, env._describe(), env.admissible_actions(), env.last_action, env.episode_return)
    return (*first, env.np_random.integers(2**60))


def expect_one_sentence(error: ValueError) -> None:
    assert isinstance(error, StateError)
    assert re.fullmatch("Expected .* Fix: .*", str(error)), error  # a dot is no newline


@pytest.mark.parametrize(
    "family", [*FAMILIES][:1] + [pytest.param(name, marks=pytest.mark.matrix) for name in [*FAMILIES][1:]]
)
def test_a_damaged_state_is_refused_and_changes_nothing(family: str) -> None:
    rng = random.Random(f"damage {family}")
    env_id, kwargs = FAMILIES[family]
    intact = [played(env_id, kwargs, n_steps, seed).get_state() for seed, n_steps in enumerate((0, 1, 2, 3))]
    env = played(env_id, kwargs, 1, seed=9)
    before = env.get_state()
    wanted = shown(env)
    refused = 0
    for number in range(N_MUTATIONS):
        damaged = mutated(copy.deepcopy(intact[number % len(intact)]), rng)
        env.set_state(before)
        try:
            env.set_state(damaged)
        except ValueError as error:
            refused += 1
            expect_one_sentence(error)
            if number % 10 == 0:  # a tenth, since a look at everything takes the longest
                assert str(shown(env)) == str(wanted)
        else:  # the mutation gave another whole state: it can be gone on from
            assert env.get_state() | {"digest": ""} == damaged | {"digest": ""}
            if damaged["last"] is not None and not any(damaged["last"][1:3]):
                env.step_text(None)
    assert refused > 0.8 * N_MUTATIONS


@pytest.mark.parametrize("family", FAMILIES)
def test_the_state_of_another_id_is_refused(family: str) -> None:
    env = played(*FAMILIES[family], 1, seed=9)
    before = str(env.get_state())
    for other in FOREIGN:
        if other == env.spec.id:  # type: ignore[union-attr]
            continue
        foreign = played(other, {}, 1, seed=1).get_state()
        with pytest.raises(StateError, match="Expected a state of"):
            env.set_state(foreign)
        if other.partition("-")[0] != env.spec.id.partition("-")[0]:  # type: ignore[union-attr]
            with pytest.raises(StateError, match="Expected"):
                env.set_state({**foreign, "env": env.get_state()["env"]})
        assert str(env.get_state()) == before


@pytest.mark.parametrize("env_id", ["MultiKey-v0", "MultiKey-length-trap-v0", "KeyToken-v0", "Parity-v0", FOREIGN[0]])
def test_an_environment_can_be_asked_before_its_first_reset(env_id: str) -> None:
    env: Any = gym.make(env_id, render_mode="ansi", disable_env_checker=True).unwrapped
    assert env.render()
    assert env.oracle_action() in env._listed_actions()
    state = env.get_state()
    env.set_state(state)
    assert env.get_state() == state
