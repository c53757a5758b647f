"""`OvercookedEnv`: its arguments, and the fields of its info."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

from lang_envs.envs.overcooked.env import KitchenReward, OvercookedEnv
from lang_envs.envs.overcooked.kitchen import Event


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task": "fruit-salad"}, r"Expected task to be one of \['tomato-salad', .*\]; got 'fruit-salad'. Fix: "),
        ({"view_radius": -1}, "Expected view_radius to be an integer of at least 0; got -1"),
        ({"max_primitives": "9"}, "Expected max_primitives to be an integer of at least 1; got '9'"),
        ({"reward": {"chopping": 1.0}}, r"Expected reward to be a KitchenReward, or numbers for some of \['chop'"),
        ({"reward": 3}, "Expected reward to be a KitchenReward"),
        ({"render_mode": "hologram"}, "Expected render_mode to be None or one of .*; got 'hologram'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OvercookedEnv(**arguments)


def test_reward_folds_the_primitives_of_a_macro_action() -> None:
    reward = KitchenReward(chop=8.0, deliver=16.0, misdeliver=-4.0, step=-1.0, discount=0.5)
    assert reward.of_run((Event.NONE,)) == -1.0
    assert reward.of_run((Event.NONE, Event.NONE, Event.CHOPPED)) == -1.0 - 0.5 + 0.25 * 7.0
    assert reward.of_run((Event.NONE, Event.MISDELIVERED)) == -1.0 + 0.5 * -5.0
    assert reward.of_run((Event.DELIVERED,)) == 15.0


@pytest.mark.parametrize("value", ["a", None, True, float("nan"), float("inf")])
def test_a_reward_that_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="Expected finite numbers for a KitchenReward"):
        KitchenReward(step=value)


def test_reward_is_an_argument() -> None:
    env = OvercookedEnv(reward=KitchenReward(step=-1.0, discount=1.0))
    env.reset()
    assert env.step_text("pick up the tomato")[1] == -2.0
    assert env.step_text("nonsense")[1] == -1.0
    assert OvercookedEnv(reward={"step": -1.0, "discount": 1.0}).reward == env.reward


def test_a_reward_given_as_a_mapping_is_part_of_the_spec() -> None:
    env = gym.make("Overcooked-TomatoSalad-v0", reward={"chop": 0.0})
    rebuilt = gym.make(EnvSpec.from_json(env.spec.to_json())).unwrapped
    assert rebuilt.reward == KitchenReward(chop=0.0)


CHOP = ("pick up the tomato", "put the tomato on the cutting board", "chop the tomato")
SPOIL = ("pick up the tomato", "serve the dish")


@pytest.mark.parametrize(("once", "paid"), [(False, [0.193, 0.193, 0.193]), (True, [0.193, -0.003, -0.003])])
def test_chopping_can_be_paid_once(once: bool, paid: list[float]) -> None:
    env = OvercookedEnv(once_only_chop_reward=once)
    for _ in range(2):  # a reset clears the paid rewards
        env.reset()
        earned = []
        for _ in paid:
            earned.append([env.step_text(text)[1] for text in CHOP][-1])
            assert [env.step_text(text)[1] for text in SPOIL][-1] < -0.09
        assert earned == pytest.approx(paid, abs=1e-3)


def test_what_was_paid_is_part_of_the_state() -> None:
    env, other = (OvercookedEnv(once_only_chop_reward=True) for _ in range(2))
    env.reset()
    for text in (*CHOP, *SPOIL, *CHOP[:2]):
        env.step_text(text)
    other.set_state(env.get_state())
    assert other.step_text("chop the tomato")[1] == env.step_text("chop the tomato")[1] < 0


def test_view_radius_decides_what_is_told() -> None:
    told = {radius: OvercookedEnv(view_radius=radius).reset() for radius in (0, 2, 6)}
    assert [("tomato is" in text, "bowl are" in text) for text, _ in told.values()] == [
        (False, False),
        (True, False),
        (False, True),  # "a tomato and a bowl are on separate tables"
    ]
    assert np.count_nonzero(told[0][1]["features"]) == 3  # the cook and the task


def test_the_limit_is_an_argument() -> None:
    env = OvercookedEnv(max_primitives=3)
    env.reset()
    assert env.step_text("pick up the tomato")[2:4] == (False, False)
    *_, terminated, truncated, info = env.step_text("put the tomato on the cutting board")
    assert (terminated, truncated, info["success"]) == (False, True, False)
    assert env.elapsed_primitives == 7  # never cut
    env.reset()
    assert env.elapsed_primitives == 0
