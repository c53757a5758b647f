"""`TextEnv` and TRL's `Task`: the oracle's episode through words, and what is kept of it."""

from __future__ import annotations

import inspect
import pickle

import gymnasium as gym
import numpy as np
import pytest

import lang_envs
from lang_envs.bridges import text_env
from lang_envs.bridges.openenv_package import measured_reward, write_package
from lang_envs.bridges.text_env import OVER
from lang_envs.bridges.trl import environment_factory, rows
from lang_envs.errors import ActionError, LangEnvsError

SALAD = "Overcooked-TomatoSalad-v0"
ORACLE_RETURN = 1.1102837966825794


def test_the_oracle_plays_through_answers():
    env = text_env(SALAD, seed=0)
    text, info = env.reset()
    assert all(f"- {action}" in text for action in info["admissible_actions"])
    while not env.is_over:
        text, reward, terminated, truncated, info = env.step(f'1. Action: "{lang_envs.oracle(env).upper()}".')
        assert reward == env.rewards[-1]
    assert (terminated, truncated, env.truncated) == (True, False, False)
    assert env.success
    assert not info["invalid_action"]
    assert env.episode_return == pytest.approx(ORACLE_RETURN)
    assert "- " not in text
    assert env.step("take the bowl")[:4] == (OVER, 0.0, True, False)
    assert env.episode_return == pytest.approx(ORACLE_RETURN)


def test_a_limit_of_turns_truncates():
    env = text_env(SALAD, max_turns=2)
    env.reset(seed=0)
    assert env.step("nonsense")[2:4] == (False, False)
    _, _, terminated, truncated, info = env.step("nonsense")
    assert (terminated, truncated, env.truncated, env.is_over) == (False, True, True, True)
    assert info["invalid_action"]
    env.reset()
    assert (env.rewards, env.is_over, env.truncated) == ([], False, False)
    for no_limit in (0, -1, 1.5, "3"):
        with pytest.raises(ValueError, match="max_turns"):
            text_env(SALAD, max_turns=no_limit)


def test_a_misuse_has_an_error_of_its_own():
    env = text_env(SALAD)
    with pytest.raises(gym.error.ResetNeeded):
        env.step("take the bowl")
    env.reset(seed=0)
    for no_text in (None, 5, ["take the bowl"]):
        with pytest.raises(ActionError, match="Expected the action's text"):
            env.step(no_text)
    assert env.rewards == []


def test_takes_numpys_seeds_and_goes_on_from_a_pickle():
    env = text_env("MultiKey-v0", seed=3)
    text, info = env.reset(seed=np.int64(4))
    assert text == text_env("MultiKey-v0").reset(seed=4)[0]
    info.clear()  # the caller's own
    copy = pickle.loads(pickle.dumps(env))
    assert [copy.sample_random_action() for _ in range(5)] == [env.sample_random_action() for _ in range(5)]
    assert copy.step(copy.oracle_action())[1] == env.step(env.oracle_action())[1]


def test_the_first_reset_has_the_seed_of_the_constructor():
    drawn = [text_env("MultiKey-v0", seed=3) for _ in range(2)]
    assert drawn[0].reset()[0] == drawn[1].reset()[0]
    assert [drawn[0].sample_random_action() for _ in range(5)] == [drawn[1].sample_random_action() for _ in range(5)]


def test_any_text_is_an_action_where_none_are_listed():
    pytest.importorskip("sklearn")
    env = text_env("DataSciCoding-iris-v0")
    text, _ = env.reset(seed=0)
    assert env.admissible_actions is None
    assert "Answer with one of these actions" not in text
    assert env.sample_random_action()


def test_trl_sees_one_tool_and_one_reward():
    task = environment_factory(SALAD)()
    public = [name for name, _ in inspect.getmembers(type(task), inspect.isfunction) if not name.startswith("_")]
    assert public == ["act", "get_reward", "reset"]
    (row,) = rows(1)
    assert "- take the bowl" in task.reset(**row)
    text = ""
    while not task.env.is_over:
        text = task.act(task.env.oracle_action())
    assert text.endswith(OVER)
    assert task.act("take the bowl") == OVER
    assert task.get_reward() == pytest.approx(ORACLE_RETURN)


def test_the_folder_for_openenv_has_the_measured_reward(tmp_path):
    reward = measured_reward(SALAD)
    assert reward["range"][1] == pytest.approx(ORACLE_RETURN, abs=1e-4)
    assert reward["oracle_tolerance"] == 0
    assert reward["floor_margin"] > 1
    folder = write_package(SALAD, tmp_path / "salad")
    assert f"range: {reward['range']}" in (folder / "openenv.yaml").read_text()
    with pytest.raises(LangEnvsError, match="Expected a new folder"):
        write_package(SALAD, folder)


def test_the_folder_for_openenv_keeps_the_arguments(tmp_path):
    folder = write_package(SALAD, tmp_path / "salad", invalid_action_reward=-0.5, tokenizer="byte")
    settings = ", invalid_action_reward=-0.5, tokenizer='byte')"
    assert (folder / "oracle.py").read_text().count(settings) == 1
    assert (folder / "server/app.py").read_text().count(settings) == 2
