"""SB3's worker processes under an algorithm: closed, killed, and deleted in the middle of a step."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import SubprocVecEnv

from poad_sb3 import POAD
from poad_sb3.errors import WorkerError

NO_FORK = pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python warns of forks beside threads")
MAKE = partial(gym.make, "lang_envs:KeyToken-v0")  # imports lang_envs in a spawned worker
STARTS = ["forkserver", "spawn", pytest.param("fork", marks=NO_FORK)]
SMALL: dict[str, Any] = {"n_steps": 4, "batch_size": 4, "n_epochs": 1, "n_critic_epochs": 1}


class Do(BaseCallback):
    """Does something with the model at the third step."""

    def __init__(self, what: Callable[[Any], object]) -> None:
        super().__init__()
        self._what = what

    def _on_step(self) -> bool:
        if self.n_calls == 3:
            self._what(self.model)
        return True


@pytest.fixture(params=STARTS)
def workers(request: pytest.FixtureRequest) -> Iterator[SubprocVecEnv]:
    envs = SubprocVecEnv([MAKE] * 2, start_method=request.param)
    processes = list(envs.processes)
    yield envs
    for process in processes:
        process.kill()
        process.join()


def kill(process: BaseProcess) -> None:
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    wait([process.sentinel])


def assert_ended(processes: list[BaseProcess]) -> None:
    for process in processes:
        process.join(20)
        assert not process.is_alive(), "an orphan"


@pytest.mark.process
def test_closed_environments_are_named(workers: SubprocVecEnv) -> None:
    model = POAD("LLMPolicy", workers, **SMALL).learn(8)
    env = model.get_env()
    assert env is not None
    env.close()
    env.close()
    assert_ended(workers.processes)
    with pytest.raises(WorkerError, match=r"Expected open environments.* Fix: make new environments"):
        model.learn(8)


@pytest.mark.process
def test_a_killed_worker_is_named_and_ends_the_others(workers: SubprocVecEnv, tmp_path: Path) -> None:
    model = POAD("LLMPolicy", workers, **SMALL)
    process = workers.processes[1]
    with pytest.raises(WorkerError, match=r"a worker process has ended \(environment 1, exit code -9\).* Fix: .*new"):
        model.learn(16, callback=Do(lambda model: kill(process)))
    assert_ended(workers.processes)
    workers.close()
    model.save(tmp_path / "model.zip")  # the trained weights can be saved
    POAD.load(tmp_path / "model.zip")


@pytest.mark.process
def test_closing_ends_a_step_that_nobody_waited_for(workers: SubprocVecEnv) -> None:
    """SB3's close waits for answers: of a dead worker, or for those that an interrupted step has read already."""
    model = POAD("LLMPolicy", workers, **SMALL)
    workers.reset()
    workers.step_async(np.stack([model.action_space.sample()] * 2))
    workers.remotes[0].recv()
    kill(workers.processes[1])
    workers.close()
    assert_ended(workers.processes)


@pytest.mark.process
@pytest.mark.parametrize("start", STARTS)
def test_a_model_deleted_in_the_middle_of_a_step_leaves_no_orphan(
    start: str, capfd: pytest.CaptureFixture[str]
) -> None:
    envs = SubprocVecEnv([MAKE] * 2, start_method=start)
    processes = list(envs.processes)
    model = POAD("LLMPolicy", envs, **SMALL)

    def stop(model: POAD) -> None:
        assert model.env is not None
        model.env.step_async(np.stack([model.action_space.sample()] * 2))
        raise InterruptedError

    with pytest.raises(InterruptedError):
        model.learn(16, callback=Do(stop))
    del model, envs
    gc.collect()
    assert_ended(processes)
    assert "Error" not in capfd.readouterr().err, "workers end without an error of their own"


def broken() -> gym.Env[Any, Any]:
    env = gym.make("lang_envs:KeyToken-v0")
    env.unwrapped.step_text = None  # type: ignore[attr-defined]
    return env


@NO_FORK
def test_failed_workers_are_named() -> None:
    envs = SubprocVecEnv([broken] * 2, start_method="fork")
    with pytest.raises(WorkerError, match="exit code 1"):
        POAD("LLMPolicy", envs, **SMALL).learn(8)
    assert_ended(envs.processes)
