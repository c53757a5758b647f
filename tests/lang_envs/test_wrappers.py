"""Wrappers change the view of an environment, not its dynamics."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env
from walk import IDS, random_policy, same, walk_from_reset

from lang_envs import ActionError, InfoError, TextSpace, TokenSequence
from lang_envs.errors import RewardError
from lang_envs.wrappers import AdmissibleObservation, ByteObservation, TaggedAction, TextAction
from lang_envs.wrappers.admissible import admissible_observation, admissible_space

pytestmark = pytest.mark.one_table

WRAPPERS = [AdmissibleObservation, ByteObservation, TaggedAction, TextAction]
KITCHEN = "Overcooked-TomatoSalad-v0"


@pytest.fixture(params=WRAPPERS, ids=lambda wrapper: wrapper.__name__)
def wrapper(request: pytest.FixtureRequest) -> Any:
    return request.param


# ---------------------------------------------------------------------- all of them


@pytest.mark.filterwarnings("ignore:.*different from the unwrapped version:UserWarning")
def test_gymnasium_check_env(env_id: str, wrapper: Any) -> None:
    check_env(wrapper(gym.make(env_id)))


def test_the_spec_records_the_wrapper(env_id: str, wrapper: Any) -> None:
    env = wrapper(gym.make(env_id))
    rebuilt = gym.make(EnvSpec.from_json(env.spec.to_json()))
    assert type(rebuilt) is wrapper
    assert (rebuilt.observation_space, rebuilt.action_space) == (env.observation_space, env.action_space)
    assert same(rebuilt.reset(seed=1), env.reset(seed=1))


@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        (AdmissibleObservation, r"Expected an environment with TextSpace observations; got Box.* Fix: "),
        (ByteObservation, r"Expected an environment with TextSpace observations; got Box.* Fix: "),
        (TextAction, r"Expected an environment with a TokenSequence action space; got Discrete.* Fix: "),
    ],
)
def test_other_environments_are_refused(wrapper: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        wrapper(gym.make("CartPole-v1"))


# ---------------------------------------------------------------------- AdmissibleObservation


def test_admissible_observation_holds_text_and_list(env_id: str) -> None:
    plain, wrapped = gym.make(env_id), AdmissibleObservation(gym.make(env_id))
    (text, info), (observed, info_too) = plain.reset(seed=3), wrapped.reset(seed=3)
    choose = random_policy(3)
    for _ in range(20):
        assert observed in wrapped.observation_space
        assert observed["text"] == text
        assert json.loads(observed["admissible_actions"]) == info["admissible_actions"]
        assert info_too.pop("is_success", False) == info["success"], "what SB3 reads success rates from"
        assert same(info_too, info)
        action = plain.action_space.encode(choose(plain, info))
        text, *outcome, info = plain.step(action)
        observed, *outcome_too, info_too = wrapped.step(action)
        assert outcome_too == outcome
        if outcome[1] or outcome[2]:
            break
    assert list(observed) == ["text", "admissible_actions"]


@pytest.mark.parametrize("actions", [["a, b", 'say "c"', "d\ne", "é\u2028"], [], None], ids=["tricky", "none", "open"])
def test_any_list_survives(actions: list[str] | None) -> None:
    observed = admissible_observation(np.str_("text"), actions)
    assert observed in admissible_space(TextSpace(10))
    assert {type(value) for value in observed.values()} == {str}
    assert json.loads(observed["admissible_actions"]) == actions


class Broken(gym.Env[str, Any]):
    """Text observations; `info` is given."""

    observation_space = TextSpace(10)
    action_space = TokenSequence(max_length=8)

    def __init__(self, info: dict[str, Any]) -> None:
        self.info = info

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        return "x", self.info

    def step(self, action: Any) -> tuple[str, Any, bool, bool, dict[str, Any]]:
        return "x", self.info["reward"], False, False, self.info


NO_REWARDS = (np.ma.masked, None, "1", [1.0], 1j, 10**400, np.array([1.0, 2.0]))
TENSOR = SimpleNamespace(item=lambda: 2.0)
"""As one of torch or jax."""
REWARDS = (1, np.bool_(True), np.float32(0.5), Decimal("0.5"), TENSOR, np.array([[2]]))


@pytest.mark.parametrize("reward", NO_REWARDS, ids=lambda reward: type(reward).__name__)
def test_rejects_a_reward_that_is_no_number(reward: Any) -> None:
    env = AdmissibleObservation(Broken({"admissible_actions": None, "reward": reward}))
    env.reset()
    got = re.escape(" ".join(repr(reward).split())[:80])
    with pytest.raises(RewardError, match=rf"^Expected a number as reward of <Broken.*>; got {got}\. Fix: return a "):
        env.step(env.action_space.encode("x"))


@pytest.mark.parametrize("reward", REWARDS, ids=lambda reward: type(reward).__name__)
def test_rewards_are_numbers_of_any_kind(reward: Any) -> None:
    env = AdmissibleObservation(Broken({"admissible_actions": None, "reward": reward}))
    env.reset()
    paid = env.step(env.action_space.encode("x"))[1]
    assert (type(paid), paid) == (float, float(reward.item() if hasattr(reward, "item") else reward))


def _in_a_vector(env: gym.Env[Any, Any]) -> Any:
    from stable_baselines3.common.vec_env import DummyVecEnv

    from poad_sb3.vec_env.text_observations import VecAdmissibleObservation

    return VecAdmissibleObservation(DummyVecEnv([lambda: env]))


@pytest.mark.parametrize("wrapper", [AdmissibleObservation, _in_a_vector])
@pytest.mark.parametrize(
    ("info", "message"),
    [
        ({"other": 1}, r"info\['admissible_actions'\] in every reset and step; got keys \['other'\]"),
        ({"admissible_actions": "abc"}, r"admissible_actions as a list of str, or None; got 'abc'"),
        ({"admissible_actions": ["a" * 20_000]}, r"a list of at most 16384 characters as JSON; got 20004"),
    ],
    ids=["none", "text", "long"],
)
def test_an_info_without_a_fitting_list_is_refused(wrapper: Any, info: dict[str, Any], message: str) -> None:
    with pytest.raises(InfoError, match=f"^Expected {message}"):
        wrapper(Broken(info)).reset()


# ---------------------------------------------------------------------- TextAction


def test_text_actions_are_token_actions(env_id: str) -> None:
    plain, talking = gym.make(env_id), TextAction(gym.make(env_id))
    _, steps = walk_from_reset(plain, random_policy(0), 20, seed=0)
    talking.reset(seed=0)
    for step in steps:
        text = plain.action_space.decode(step.action)
        assert text in talking.action_space
        observed, reward, terminated, truncated, info = talking.step(text)
        assert (reward, terminated, truncated) == (step.reward, step.terminated, step.truncated)
        if step.final_text is not None:
            assert observed == step.final_text
            talking.reset()
        else:
            assert (observed, info["admissible_actions"]) == (step.text, step.info["admissible_actions"])


@pytest.mark.parametrize("action", [None, np.zeros(96, dtype=np.int64)], ids=["None", "tokens"])
def test_text_action_takes_text_only(env_id: str, action: Any) -> None:
    env = TextAction(gym.make(env_id))
    env.reset(seed=0)
    state = env.unwrapped.get_state()
    with pytest.raises(ActionError, match=r"Expected the action's text as a str; got \w+. Fix: pass a str."):
        env.step(action)
    assert same(env.unwrapped.get_state(), state)


# ---------------------------------------------------------------------- ByteObservation


def test_the_longest_text_fits_by_default() -> None:
    env = ByteObservation(gym.make(KITCHEN))
    longest = "🍅" * env.env.observation_space.max_length
    assert bytes(env.observation(longest)).decode() == longest


def test_a_text_that_does_not_fit_is_refused() -> None:
    env = ByteObservation(gym.make(KITCHEN), max_bytes=20)
    assert env.observation_space.shape == (20,)
    with pytest.raises(ValueError, match=r"at most 20 bytes; got (\d+). Fix: ByteObservation\(env, max_bytes=\1\)"):
        env.reset(seed=0)


@pytest.mark.parametrize("env_id", IDS)
def test_sb3_check_env(env_id: str) -> None:
    from stable_baselines3.common.env_checker import check_env as sb3_check_env

    sb3_check_env(ByteObservation(gym.make(env_id)))
