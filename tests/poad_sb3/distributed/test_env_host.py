"""The environments of an actor, without Ray: operations, and copies of a lost host."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest
from ray_users import LampsElsewhere, TracedDoors, TracedLamps, UnsteadyDoors
from stable_baselines3.common.env_util import make_vec_env
from third_party import COLOURS

from poad_sb3.distributed.env_host import Description, EnvHost, History, Invoke, Operation, Reset, Step
from poad_sb3.errors import WorkerError

N = 2
Make = Callable[[], gym.Env[Any, Any]]


class Driver:
    """A host, and the histories of its environments."""

    def __init__(self, make: Make) -> None:
        self.make, self.host = make, EnvHost()
        self.about: Description = cloudpickle.loads(self.host.make([], cloudpickle.dumps(make), N))
        self.histories = [History(state) for state in self.about.states]

    def run(self, *operations: Operation) -> list[Any]:
        calls = list(enumerate(operations))
        answers = pickle.loads(self.host.run(cloudpickle.dumps(calls)))
        for history, operation, (value, state) in zip(self.histories, operations, answers, strict=True):
            history.note(operation, value, state)
        return [value for value, _ in answers]

    def copy(self) -> Driver:
        other = Driver(self.make)
        other.host.restore(cloudpickle.dumps(self.histories))
        other.histories = pickle.loads(pickle.dumps(self.histories))
        return other


def makers(folder: Path) -> dict[str, Make]:
    return {
        "state": lambda: TracedLamps(str(folder)),
        "elsewhere": lambda: LampsElsewhere(str(folder)),
        "replay": TracedDoors,
        "time limit": lambda: gym.wrappers.TimeLimit(TracedLamps(str(folder), moves=9), 4),
    }


def actions(make: Make, number: int) -> list[Step]:
    env = make()
    texts = [f"take the {colour} door" for colour in COLOURS[:2]]
    texts = texts if isinstance(env, TracedDoors) else ["press the red button", "wait"]
    return [Step(env.action_space.encode(texts[(number + index) % len(texts)])) for index in range(N)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["state", "elsewhere", "replay", "time limit"])
def test_a_copy_goes_on_where_the_host_was(kind: str, tmp_path: Path) -> None:
    make = makers(tmp_path)[kind]
    plain, driver = make_vec_env(make, N), Driver(make)
    assert (driver.about.observation_space, driver.about.action_space) == (plain.observation_space, plain.action_space)
    assert driver.about.steps_elsewhere is (kind == "elsewhere")
    plain.seed(4)
    first = plain.reset()
    resets = driver.run(*[Reset(4 + index, {}) for index in range(N)])
    np.testing.assert_equal(np.concatenate([reset.observation for reset in resets]), first)
    driver.run(*[Invoke("set_attr", ("note", index)) for index in range(N)])
    driver.run(*[Invoke("env_method", ("set_wrapper_attr", "difficulty", 7))] * N)
    for number in range(11):
        if number % 4 == 3:
            driver = driver.copy()
        steps = actions(make, number)
        observations, rewards, dones, infos = plain.step(np.stack([step.action for step in steps]))
        for index, stepped in enumerate(driver.run(*steps)):
            np.testing.assert_equal(stepped.observation[0], observations[index])
            assert (stepped.reward[0], stepped.done[0]) == (rewards[index], dones[index])
            assert stepped.reward.dtype == rewards.dtype
            for info in (stepped.info, infos[index]):
                info.get("episode", {}).pop("t", None)
            np.testing.assert_equal(stepped.info, infos[index])
            np.testing.assert_equal(stepped.reset_info, plain.reset_infos[index] if stepped.done[0] else None)
    assert driver.run(*[Invoke("get_attr", ("note",))] * N) == [0, 1], "a copy has the attributes that were set"
    assert driver.run(*[Invoke("get_attr", ("difficulty",))] * N) == [7] * N, "by methods too"
    driver.host.close()


def test_refuses_environments_that_do_not_repeat() -> None:
    driver = Driver(UnsteadyDoors)
    driver.run(*[Reset(0, {})] * N)
    with pytest.raises(WorkerError, match=r"without get_state .* same results .* did not\. Fix: .* self\.np_random"):
        driver.copy()
