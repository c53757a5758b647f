"""Parity: exact values are compared with an enumeration, and no object can be ignored."""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from numpy.typing import NDArray

from lang_envs.env_checker import Status, run_checks
from lang_envs.envs.parity.env import ParityEnv

ID = "Parity-v0"


def test_the_recorded_episode_of_seed_0() -> None:
    env = gym.make(ID, oracle_info=True, invalid_action_reward=-0.5).unwrapped
    text, info = env.reset(seed=0)
    steps = [(text, info["n_cups"], info["oracle_thought"])]
    for action in ("odd", "odd", "Odd", "odd", "even"):
        text, reward, terminated, truncated, info = env.step_text(action)
        steps.append((text, info["n_cups"], info["oracle_thought"], reward, info["key_correct"], terminated, truncated))
    rows = ["cup cup cup jar jar jar jar jar", "jar cup cup cup cup cup cup cup", "cup cup cup cup jar cup cup jar"]
    rows += ["jar cup cup jar cup cup cup jar"]
    texts = [f"The row is {row}. Rows left: {4 - number}. The cups are" for number, row in enumerate(rows)]
    assert steps == [
        (texts[0], 3, "one two one one one one one one"),
        (texts[1], 7, "two one two one two one two one", 0.25, True, False, False),
        (texts[2], 6, "one two one two two one two two", 0.25, True, False, False),
        (texts[2], 6, "one two one two two one two two", -0.5, False, False, False),
        (texts[3], 5, "two one two two one two one one", 0.0, False, False, False),
        ("No rows are left.", 5, None, 0.0, False, True, False),
    ]
    assert (info["success"], info["oracle_action"]) == (False, None)


@pytest.mark.parametrize("kwargs", [{}, {"n_objects": 1, "horizon": 2}])
def test_the_oracle_returns_one_and_succeeds(kwargs: dict[str, Any]) -> None:
    env = ParityEnv(**kwargs)
    env.reset(seed=3)
    for left in reversed(range(env.horizon)):
        words, thought = env.order.split(), env.oracle_thought().split()
        assert thought == [("two", "one")[words[: n + 1].count("cup") % 2] for n in range(env.n_objects)]
        assert env.oracle_action() == {"two": "even", "one": "odd"}[thought[-1]]
        *_, terminated, truncated, info = env.step_text(env.oracle_action())
        assert (terminated, truncated, info["success"]) == (left == 0, False, left == 0)
    assert env.episode_return == pytest.approx(1.0, abs=1e-12) == env.optimal_return


def test_each_word_is_a_token_of_the_pocket_model_so_that_a_thought_and_its_mark_fit_into_16() -> None:
    from tokenizers import Tokenizer

    from poad_sb3.pocket import POCKET_FOLDER

    tokenizer = Tokenizer.from_file(str(POCKET_FOLDER / "tokenizer.json"))
    env = ParityEnv()
    env.reset(seed=0)

    def n_tokens(text: str) -> int:
        return len(tokenizer.encode(f" {text}", add_special_tokens=False).ids)

    assert n_tokens(env.order) == n_tokens(env.oracle_thought()) == env.n_objects == 8
    assert n_tokens(f"{env.oracle_thought()}</think>") <= 16


def test_rows_are_drawn_uniformly_and_independently() -> None:
    env, counts = ParityEnv(n_objects=2), np.zeros((2, 2))
    for seed in range(400):
        env.reset(seed=seed)
        for _ in range(env.horizon):
            counts[env._world.target] += 1
            env.step_text("even")
    assert ((counts - 400) ** 2 / 400).sum() < 16.3  # chi-square, 3 degrees, 0.1 %


# ---------------------------------------------------------------------- exact values


def enumerated(env: ParityEnv, odd: NDArray[np.float64], gamma: float) -> NDArray[np.float64]:
    """Values of a policy before 0, 1, ... further rows, by playing both answers to every row."""
    env.reset(seed=0)
    start, values, following = env.get_state(), np.zeros((env.horizon, *odd.shape)), 0.0
    del start["digest"]
    for k in range(env.horizon):
        answers = (True,) * (env.horizon - 1 - k)
        for row in itertools.product(range(2), repeat=env.n_objects):
            for answer, chance in (("odd", odd[row]), ("even", 1 - odd[row])):
                env.set_state({**start, "world": start["world"]._replace(target=row, answers=answers)})
                _, reward, terminated, *_ = env.step_text(answer)
                assert terminated is (k == 0)
                values[k][row] += chance * (reward + gamma * following)
        following = values[k].mean()
    return values


@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_values_are_those_of_an_enumeration(gamma: float) -> None:
    env = ParityEnv(n_objects=3, horizon=3)
    rng, shape = np.random.default_rng(0), (2, 2, 2)
    right = np.indices(shape).sum(0) % 2.0
    for odd in (rng.random(shape), np.full(shape, 0.5), right):
        np.testing.assert_allclose(env.values(odd, gamma), enumerated(env, odd, gamma), atol=1e-12)
    assert env.values(right)[-1].mean() == pytest.approx(env.optimal_return)
    assert env.values(np.full(shape, 0.5))[-1].mean() == pytest.approx(env.random_return)
    assert env.random_success == 1 / 8


@pytest.mark.parametrize("ignored", range(4))
def test_a_policy_that_ignores_an_object_returns_no_more_than_a_guess(ignored: int) -> None:
    env = ParityEnv(n_objects=4)
    seen = np.random.default_rng(ignored).integers(2, size=(2, 2, 2)).astype(float)  # a deterministic policy
    odd = np.stack([seen, seen], axis=ignored)
    assert env.values(odd)[-1].mean() == pytest.approx(0.5, abs=1e-12)


# ---------------------------------------------------------------------- the contract with other arguments


def test_the_contract_holds_for_other_sizes() -> None:
    results = run_checks(ID, n_objects=20, horizon=2, max_steps=4)
    assert [result for result in results if result.status is not Status.PASSED] == []


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"n_objects": 0}, "Expected n_objects to be an integer from 1 to 20; got 0"),
        ({"horizon": 0}, "Expected horizon to be an integer of at least 1; got 0"),
        ({"max_steps": 3}, "Expected max_steps to be an integer of at least 4; got 3"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ParityEnv(**kwargs)
