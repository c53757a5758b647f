"""Environments of Gymnasium in words, worlds that are restored by playing, and wrappers as language environments."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from third_party import FullDoors

from lang_envs import GymnasiumEnv, LangEnvsError, StateError, TextSpace, TokenSequence, language_env, oracle
from lang_envs.env_checker import Status, run_checks
from lang_envs.errors import RewardError

FIELDS = ["left", "down", "right", "up"]


def say_field(field: int, info: Any) -> str:
    return f"You are on field {field}. You go"


LAKE = {"env": "FrozenLake-v1", "actions": FIELDS, "describe": "test_replayed:say_field"}


class Riddle(gym.Env[Any, Any]):
    """An environment whose observations and actions are texts; its own chance is not seeded where `is_fair`."""

    observation_space = action_space = gym.spaces.Text(40)

    def __init__(self, is_fair: bool = True) -> None:
        self.is_fair, self.rng = is_fair, np.random.default_rng(0)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        number = (self.np_random if self.is_fair else self.rng).integers(1000)
        self.answer = str(number)
        return f"Say {number}.", {}

    def step(self, action: str) -> Any:
        right = action == self.answer
        return "Right." if right else f"Say {self.answer}.", float(right), right, False, {}


def test_an_environment_of_gymnasium_keeps_the_contract() -> None:
    gym.register("Lake-v0", entry_point="lang_envs:GymnasiumEnv", kwargs=LAKE)
    results = run_checks("Lake-v0", max_steps=30)
    assert [result for result in results if result.status is Status.FAILED] == []
    assert {result.name for result in results if result.status is Status.SKIPPED} >= {"oracle", "render_ansi"}


@pytest.mark.parametrize(
    ("actions", "expected"),
    [
        (FIELDS, 4),
        ({"down": 1, "right": 2}, 4),
        (lambda field, info: {"down": 1} if field == 0 else FIELDS, 4),
    ],
    ids=["numbered", "mapped", "function"],
)
def test_actions_are_listed_in_each_form(actions: Any, expected: int) -> None:
    env = GymnasiumEnv("FrozenLake-v1", actions, say_field, env_kwargs={"is_slippery": False})
    env.reset(seed=0)
    text, *_ = env.step_text("down")
    assert text == f"You are on field {expected}. You go"
    assert env.step_text("swim")[4]["invalid_action"] is True


@pytest.mark.parametrize("actions", [["down", "right"], lambda field, info: ("down", "right")])
def test_a_list_of_some_actions_has_no_numbers(actions: Any) -> None:
    with pytest.raises(LangEnvsError, match=r"Expected a text for each of the 4 actions, in their order; got .*down"):
        GymnasiumEnv("FrozenLake-v1", actions, say_field).reset(seed=0)


def test_the_end_of_an_episode_may_have_no_actions() -> None:
    def legal(observation: str, info: Any) -> dict[str, str]:
        return {} if observation == "Right." else {"tell": observation.removeprefix("Say ").removesuffix(".")}

    env = GymnasiumEnv(Riddle, legal)
    env.reset(seed=0)
    _, reward, terminated, _, info = env.step_text("tell")
    assert (reward, terminated, info["admissible_actions"]) == (1.0, True, [])


def test_an_action_that_fails_is_not_part_of_the_state() -> None:
    class Broken(Riddle):
        def step(self, action: str) -> Any:
            if action == "boom":
                raise ZeroDivisionError
            return super().step(action)

    env = GymnasiumEnv(Broken)
    env.reset(seed=0)
    env.step_text("a")
    with pytest.raises(ZeroDivisionError):
        env.step_text("boom")
    env.set_state(env.get_state())
    assert env.get_state()["world"].actions == ("a",)


def test_texts_need_no_description_and_any_text_may_be_an_action() -> None:
    env = GymnasiumEnv(Riddle)
    text, info = env.reset(seed=0)
    assert info["admissible_actions"] is None
    _, reward, terminated, _, info = env.step_text(text.removeprefix("Say ").removesuffix("."))
    assert (reward, terminated, info["success"]) == (1.0, True, True)


def test_a_time_limit_counts_invalid_texts() -> None:
    env = GymnasiumEnv("FrozenLake-v1", FIELDS, say_field, max_steps=2)
    env.reset(seed=0)
    assert env.step_text("swim")[3] is False
    assert env.step_text("swim")[3] is True


@pytest.mark.parametrize("describe", [None, lambda field, info: field])
def test_an_observation_that_is_no_text_is_refused(describe: Any) -> None:
    with pytest.raises(LangEnvsError, match=r"Expected a text for every observation; got 0\. Fix: describe="):
        GymnasiumEnv("FrozenLake-v1", FIELDS, describe).reset(seed=0)


@pytest.mark.parametrize("actions", [[], {}, ["up", "up"], [0, 1], {"left", "right"}, [""], lambda field, info: 5])
def test_actions_that_are_no_distinct_texts_are_refused(actions: Any) -> None:
    with pytest.raises(LangEnvsError, match="Expected actions as a list or mapping of distinct texts, none of them"):
        GymnasiumEnv("FrozenLake-v1", actions, say_field).reset(seed=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"env": gym.make("CartPole-v1")}, "Expected an id, or a class or function that makes the environment; got <"),
        ({"env": "FrozenLake-v1", "describe": "say_field"}, "Expected describe as a function or its name, module:name"),
    ],
)
def test_arguments_that_make_nothing_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        GymnasiumEnv(**arguments)


@pytest.mark.parametrize("reward", [None, "1", float("nan")])
def test_a_reward_that_is_no_number_is_named(reward: Any) -> None:
    class Odd(Riddle):
        def step(self, action: str) -> Any:
            return "", reward, False, False, {}

    env = GymnasiumEnv(Odd)
    env.reset(seed=0)
    with pytest.raises(RewardError, match="as reward of <Odd"):
        env.step_text("x")


@pytest.mark.parametrize(("info", "success"), [({}, True), ({"is_success": False}, False), ({"success": False}, False)])
def test_success_is_what_the_environment_says(info: dict[str, bool], success: bool) -> None:
    class Judged(Riddle):
        def step(self, action: str) -> Any:
            return "", 1.0, True, False, info

    env = GymnasiumEnv(Judged)
    env.reset(seed=0)
    assert env.step_text("x")[4]["success"] is success


def test_sb3_makes_vectors_of_an_environment_without_images() -> None:
    env_util = pytest.importorskip("stable_baselines3.common.env_util")
    gym.register("Lake-without-images-v0", entry_point="lang_envs:GymnasiumEnv", kwargs=LAKE)
    with pytest.warns(UserWarning, match="rgb_array"):  # of Gymnasium, before SB3 tries again without it
        vector = env_util.make_vec_env("Lake-without-images-v0", 2)
    assert vector.num_envs == 2


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_has_a_world_of_its_own(duplicate: Any) -> None:
    env = GymnasiumEnv(Riddle)
    env.reset(seed=3)
    env.step_text("no")
    twin = duplicate(env)
    assert twin.world is not env.world
    assert twin.world.answer == env.world.answer


def test_a_world_with_chance_of_its_own_is_not_restored_in_silence() -> None:
    env = GymnasiumEnv(Riddle, env_kwargs={"is_fair": False})
    env.reset(seed=0)
    env.reset(seed=0)  # a new world would begin with the first number
    state = env.get_state()
    for restore in (env.set_state, lambda _: copy.deepcopy(env), lambda _: pickle.loads(pickle.dumps(env))):
        with pytest.raises(StateError, match=r"observation of the state, 'Say .* Fix: a world that depends"):
            restore(state)


def test_a_copy_counts_no_action_twice() -> None:
    class Counting(GymnasiumEnv):
        def __init__(self, **options: Any) -> None:
            super().__init__(Riddle, **options)
            self.n_actions = 0

        def _act(self, text: str) -> Any:
            self.n_actions += 1
            return super()._act(text)

    env = Counting()
    env.reset(seed=0)
    env.step_text("no")
    assert copy.deepcopy(env).n_actions == env.n_actions == 1


def riddles() -> Callable[[], gym.Env[Any, Any]]:
    def make() -> gym.Env[Any, Any]:
        return Riddle()

    return make


def test_a_state_fits_where_the_function_was_loaded_again() -> None:
    """As in another process, where it has another address."""
    first, second = GymnasiumEnv(riddles()), GymnasiumEnv(riddles())
    first.reset(seed=3)
    second.set_state(first.get_state())
    assert second.world.answer == first.world.answer


# ---------------------------------------------------------------------- wrappers


class Spoken(gym.Wrapper[Any, Any, Any, Any]):
    """The natural bridge to a foreign environment: a wrapper that speaks."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.doors, self.metadata = FullDoors(), {"render_modes": []}
        self.observation_space, self.action_space = TextSpace(64), TokenSequence(max_length=40)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.env.reset(seed=seed)
        return self.doors.reset(seed=seed)

    def step(self, action: Any) -> Any:
        return self.doors.step(action)

    def oracle_action(self) -> str:
        return self.doors.oracle_action()

    def get_state(self) -> dict[str, Any]:
        return {**self.doors.get_state(), "rng": np.random.default_rng(0)}  # equal to no other state

    def set_state(self, state: dict[str, Any]) -> None:
        self.doors.reset()
        self.doors.set_state(state)


def spoken() -> gym.Env[Any, Any]:
    return Spoken(gym.make("CartPole-v1", disable_env_checker=True))


def test_a_wrapper_is_checked_as_it_is() -> None:
    gym.register("Spoken-v0", entry_point="test_replayed:spoken")
    results = run_checks("Spoken-v0")
    assert [result for result in results if result.status is Status.FAILED] == []
    assert "oracle" not in {result.name for result in results if result.status is Status.SKIPPED}


def test_an_oracle_is_found_in_wrappers() -> None:
    env = gym.wrappers.TimeLimit(gym.wrappers.OrderEnforcing(spoken()), 5)
    env.reset(seed=0)
    assert oracle(env).startswith("take the ")
    assert isinstance(language_env(env), Spoken)
    with pytest.raises(LangEnvsError, match=r"Expected an environment with an oracle_action\(\) method; got <CartPole"):
        oracle(gym.make("CartPole-v1"))
