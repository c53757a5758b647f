"""Rewards of environments of others: numbers of any kind reach the training, other values are named."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecEnvWrapper
from third_party import PaidDoors
from toy import LampEnv

from lang_envs.errors import RewardError
from poad_sb3.vec_env.make_envs import make_envs
from poad_sb3.vec_env.rewards import with_number_rewards
from poad_sb3.vec_env.text_observations import wrap_language_env
from poad_sb3.vec_env.threads import ThreadVecEnv

VECTORS: dict[str, Callable[[Any], Any]] = {
    "env": lambda pay: DummyVecEnv([partial(wrap_language_env, PaidDoors(pay=pay))]),
    "vector": lambda pay: DummyVecEnv([partial(PaidDoors, pay=pay)]),
    "id": lambda pay: make_envs("third_party:ThirdParty/PaidDoors-v0", {"pay": pay, "disable_env_checker": True}, 2),
    "checked": lambda pay: gym.make("third_party:ThirdParty/PaidDoors-v0", pay=pay),
    "threads": lambda pay: ThreadVecEnv([partial(PaidDoors, pay=pay)] * 2),
}
every_vector = pytest.mark.parametrize("vector", VECTORS)


def step(vector: str, pay: Any) -> list[float]:
    env = wrap_language_env(VECTORS[vector](pay))
    envs = env if isinstance(env, VecEnv) else DummyVecEnv([lambda: env])
    envs.reset()
    try:
        rewards = envs.step(np.stack([envs.action_space.encode("wait")] * envs.num_envs))[1]  # type: ignore[attr-defined]
    finally:
        envs.close()
    return list(rewards.tolist())


@every_vector
@pytest.mark.parametrize("pay", [torch.tensor([2.0], requires_grad=True), np.int64(2)], ids=repr)
def test_a_reward_of_one_number_arrives(vector: str, pay: Any) -> None:
    assert set(step(vector, pay)) == {2.0}


@pytest.mark.parametrize("pay", [[[2.0], [2.0]], ["2", "2"], [[1.0, 2.0]] * 2], ids=repr)
def test_rewards_of_a_vector_are_numbers(pay: Any) -> None:
    """As of a SubprocVecEnv, which stacks whatever its workers send."""

    class Paid(VecEnvWrapper):
        def reset(self) -> Any:
            return self.venv.reset()

        def step_wait(self) -> Any:
            texts, _, dones, infos = self.venv.step_wait()
            return texts, np.array(pay), dones, infos

    envs: Any = wrap_language_env(Paid(DummyVecEnv([PaidDoors] * 2)))
    envs.reset()
    actions = np.stack([envs.action_space.encode("wait")] * 2)
    if np.ravel(pay)[0] == 2 and np.size(pay) == 2:
        assert envs.step(actions)[1].tolist() == [2.0, 2.0]
    else:
        with pytest.raises(RewardError, match=r"^Expected a number as reward of environment 0; got "):
            envs.step(actions)


@every_vector
def test_an_integer_beyond_64_bits_arrives(vector: str) -> None:
    assert set(step(vector, 2**70)) == {float(2**70)}


@every_vector
@pytest.mark.parametrize("pay", [None, np.array([1.0, 2.0]), 10**400], ids=["None", "two", "beyond floats"])
def test_rejects_a_reward_of_no_number(vector: str, pay: Any) -> None:
    with pytest.raises(
        RewardError, match=r"^Expected a number as reward of .*PaidDoors.*; got .*\. Fix: return a float"
    ):
        step(vector, pay)


def test_an_environment_is_wrapped_once_and_one_of_this_package_never() -> None:
    once = with_number_rewards(PaidDoors())
    assert with_number_rewards(once) is once
    lamps = Monitor(LampEnv())
    assert with_number_rewards(lamps) is lamps
    assert isinstance(lamps.env, LampEnv)
