"""Every registered id keeps the environment contract, and the further promises of `LangEnv`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gymnasium as gym
import pytest
from gymnasium.envs.registration import EnvSpec
from walk import FAMILY_IDS, IDS

from lang_envs import LangEnv
from lang_envs.env_checker import CHECKS, Check, NotApplicableError, Status, maker, run_checks
from lang_envs.registration import register_envs

pytestmark = pytest.mark.one_table

NOT_FOR_OPEN_ACTIONS = {"listed_actions", "near_misses"}


@pytest.fixture
def env(env_id: str) -> Iterator[gym.Env]:
    env = gym.make(env_id)
    yield env
    env.close()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_contract(env_id: str, check: Check) -> None:
    try:
        check.function(maker(env_id))
    except NotApplicableError as reason:
        if check.name not in NOT_FOR_OPEN_ACTIONS:  # no other check may be left out
            raise
        pytest.skip(str(reason))


@pytest.mark.matrix
@pytest.mark.parametrize("env_id", FAMILY_IDS)
def test_contract_with_other_arguments(env_id: str, tiny_tokenizer: Path) -> None:
    kwargs = {"oracle_info": True, "shuffle_actions": True, "invalid_action_reward": -0.5}
    if gym.make(env_id).unwrapped.admissible_actions() is not None:  # code does not fit into a phrase
        kwargs["max_action_length"] = 80
    results = run_checks(env_id, tokenizer=str(tiny_tokenizer), **kwargs)
    assert [result for result in results if result.status is Status.FAILED] == []


# ---------------------------------------------------------------------- the table


def test_ids_are_unique_and_registered_once() -> None:
    assert len(set(IDS)) == len(IDS) > 0
    before = dict(gym.registry)
    register_envs()
    assert gym.registry == before


@pytest.mark.every_id
def test_ids_are_language_environments(env: gym.Env) -> None:
    assert isinstance(env.unwrapped, LangEnv)


def test_unknown_render_mode_is_refused(env_id: str) -> None:
    refused = pytest.raises(ValueError, match=r"Expected render_mode to be None or one of .*; got 'hologram'")
    with pytest.warns(UserWarning, match="hologram"), refused:  # gymnasium warns first
        gym.make(env_id, render_mode="hologram")


@pytest.mark.every_id
def test_spec_keeps_the_arguments_of_make(env_id: str) -> None:
    env = gym.make(env_id, invalid_action_reward=-0.5, max_action_length=512)
    rebuilt = gym.make(EnvSpec.from_json(env.spec.to_json()))
    assert rebuilt.unwrapped.invalid_action_reward == -0.5
    assert rebuilt.action_space.max_length == 512


# ---------------------------------------------------------------------- state


def test_state_before_the_first_reset(env_id: str) -> None:
    raw, used = gym.make(env_id).unwrapped, gym.make(env_id).unwrapped
    used.reset(seed=0)
    used.set_state(raw.get_state())
    with pytest.raises(gym.error.ResetNeeded, match="Expected reset"):
        used.step(used.action_space.sample())
