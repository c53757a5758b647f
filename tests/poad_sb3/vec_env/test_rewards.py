"""Rewards of vectors of environments: numbers of any kind reach the training, other values are named."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnvWrapper
from third_party import PaidDoors

from lang_envs.errors import RewardError
from poad_sb3.vec_env.text_observations import wrap_language_env


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


def test_a_reward_of_one_number_arrives() -> None:
    env = wrap_language_env(PaidDoors(pay=torch.tensor([2.0], requires_grad=True)))
    assert isinstance(env, gym.Env)
    env.reset()
    assert env.step(env.action_space.encode("wait"))[1] == 2.0  # type: ignore[attr-defined]
