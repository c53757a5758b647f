"""Environments that step in threads: results as one after the other, errors and interrupts that leave none stepping."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv
from toy import LampEnv

from lang_envs.core import Outcome
from poad_sb3 import POAD
from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm
from poad_sb3.vec_env.make_envs import make_envs
from poad_sb3.vec_env.threads import ThreadVecEnv

N, ENVS = 8, 4
ROLLOUT = N * ENVS
CODING, KEY = "DataSciCoding-balance-scale-v0", "KeyToken-v0"


def agent(env: VecEnv, kind: type[LLMOnPolicyAlgorithm] = POAD, **more: Any) -> LLMOnPolicyAlgorithm:
    settings = {"n_steps": N, "batch_size": 8, "n_epochs": 2, "seed": 3, "policy_kwargs": {"critic_arch": (16,)}}
    return kind("LLMPolicy", env, **{**settings, **more})


def at_rest(env: VecEnv | None) -> bool:
    assert env is not None
    return not any(thread.is_stepping for thread in env.unwrapped._threads)  # type: ignore[attr-defined]


@pytest.mark.parametrize("env_id", [KEY, "Overcooked-TomatoSalad-v0"])
def test_results_are_those_of_one_after_the_other(env_id: str) -> None:
    def make() -> gym.Env[Any, Any]:
        return Monitor(gym.make(env_id))

    results: list[list[Any]] = []
    for kind in (DummyVecEnv, ThreadVecEnv):
        env = kind([make] * 3)
        env.seed(5)
        results.append([env.reset()])
        for _ in range(30):
            actions = [info["admissible_actions"][0] for info in env.reset_infos]
            observations, rewards, dones, infos = env.step(
                np.stack([env.action_space.encode(text) for text in actions])
            )
            for info in infos:
                info.pop("episode", None)  # with its time
            results[-1] += [observations, rewards, dones, infos, list(env.reset_infos)]
        env.close()
    np.testing.assert_equal(*results)


def test_environments_step_at_the_same_time() -> None:
    barrier = threading.Barrier(ENVS, timeout=30)

    class Meets(LampEnv):
        def _move(self, reward: float) -> Outcome:
            barrier.wait()
            return super()._move(reward)

    agent(ThreadVecEnv([Meets] * ENVS)).learn(ROLLOUT)
    assert not barrier.broken


class Faulty(LampEnv):
    """A lamp whose `at`-th move does something."""

    def __init__(self, what: Callable[[], None] | None = None, at: int = N + 3) -> None:
        super().__init__()
        self.what, self.moves_to_fault = what, at

    def _move(self, reward: float) -> Outcome:
        self.moves_to_fault -= 1
        if self.moves_to_fault == 0 and self.what is not None:
            self.what()
        return super()._move(reward)


def faulty(what: Callable[[], None]) -> ThreadVecEnv:
    return ThreadVecEnv([Faulty, partial(Faulty, what), Faulty, Faulty])


@pytest.mark.parametrize("error", [ConnectionError("the simulator is gone"), SystemExit(3)])
def test_an_error_in_a_thread_reaches_the_training(error: BaseException) -> None:
    def fail() -> None:
        raise error

    model = agent(faulty(fail))
    with pytest.raises(type(error), match=str(error)) as caught:
        model.learn(4 * ROLLOUT)
    assert caught.value is error
    model.learn(2 * ROLLOUT, reset_num_timesteps=False)  # from a reset, once all have ended their steps
    assert at_rest(model.env)
    assert all(np.isfinite(tensor.numpy()).all() for tensor in model.policy.state_dict().values())


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupt_does_not_wait_for_a_step() -> None:
    held = threading.Event()

    def hang() -> None:
        time.sleep(0.5)  # a signal in the moment before Python begins to wait is noticed when it has waited
        os.kill(os.getpid(), signal.SIGINT)  # Ctrl-C, while the main thread waits for this step
        assert held.wait(60)

    model = agent(faulty(hang))
    with pytest.raises(KeyboardInterrupt):
        model.learn(4 * ROLLOUT)
    env = model.env
    assert env is not None
    assert not at_rest(env), "the step goes on"
    with pytest.raises(RuntimeError, match="one is stepping since an interrupt"):
        env.step(np.stack([model.policy.action_space.unfinished()] * ENVS))
    threading.Timer(0.2, held.set).start()
    model.learn(ROLLOUT, reset_num_timesteps=False)  # when it has ended
    env.close()


@pytest.mark.parametrize(
    ("env_id", "n_envs", "kind"), [(CODING, 3, ThreadVecEnv), (CODING, 1, DummyVecEnv), (KEY, 3, DummyVecEnv)]
)
def test_threads_are_for_environments_whose_steps_are_made_elsewhere(env_id: str, n_envs: int, kind: type) -> None:
    env = make_envs(env_id, {}, n_envs)
    assert (env.num_envs, type(env)) == (n_envs, kind)
    assert env.env_is_wrapped(Monitor) == [True] * n_envs
    env.close()
