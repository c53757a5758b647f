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
        asked = list(enumerate(operations))
        answers = pickle.loads(self.host.run(cloudpickle.dumps(asked)))
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
    return [Step(env.action_space.encode(texts[(number + place) % len(texts)])) for place in range(N)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["state", "elsewhere", "replay", "time limit"])
def test_a_copy_goes_on_where_the_host_was(kind: str, tmp_path: Path) -> None:
    make = makers(tmp_path)[kind]
    plain, driver = make_vec_env(make, N), Driver(make)
    assert (driver.about.observation_space, driver.about.action_space) == (plain.observation_space, plain.action_space)
    assert driver.about.steps_elsewhere is (kind == "elsewhere")
    plain.seed(4)
    first = plain.reset()
    found = driver.run(*[Reset(4 + place, {}) for place in range(N)])
    np.testing.assert_equal(np.concatenate([one.observation for one in found]), first)
    driver.run(*[Invoke("set_attr", ("note", place)) for place in range(N)])
    driver.run(*[Invoke("env_method", ("set_wrapper_attr", "difficulty", 7))] * N)
    for number in range(11):
        if number % 4 == 3:
            driver = driver.copy()
        steps = actions(make, number)
        observations, rewards, dones, infos = plain.step(np.stack([step.action for step in steps]))
        for place, one in enumerate(driver.run(*steps)):
            np.testing.assert_equal(one.observation[0], observations[place])
            assert (one.reward[0], one.done[0]) == (rewards[place], dones[place])
            assert one.reward.dtype == rewards.dtype
            for info in (one.info, infos[place]):
                info.get("episode", {}).pop("t", None)
            np.testing.assert_equal(one.info, infos[place])
            np.testing.assert_equal(one.reset_info, plain.reset_infos[place] if one.done[0] else None)
    assert driver.run(*[Invoke("get_attr", ("note",))] * N) == [0, 1], "a copy has the attributes that were set"
    assert driver.run(*[Invoke("get_attr", ("difficulty",))] * N) == [7] * N, "by methods too"
    driver.host.close()


def test_histories_are_short_where_there_is_a_state(tmp_path: Path) -> None:
    for kind, length in (("state", 1), ("replay", 5)):
        make = makers(tmp_path)[kind]
        driver = Driver(make)
        driver.run(*[Reset(0, {})] * N)
        driver.run(*[Invoke("set_attr", ("note", 1))] * N)
        for number in range(3):
            driver.run(*actions(make, number))
            driver.run(*[Invoke("get_attr", ("note",))] * N)
        assert [len(history.operations) for history in driver.histories] == [length] * N


def test_randomness_that_cannot_be_repeated_is_found() -> None:
    driver = Driver(UnsteadyDoors)
    driver.run(*[Reset(0, {})] * N)
    with pytest.raises(WorkerError, match=r"without get_state .* same results .* did not\. Fix: .* self\.np_random"):
        driver.copy()


def test_a_state_of_another_kind_is_refused(tmp_path: Path) -> None:
    driver, other = Driver(makers(tmp_path)["state"]), Driver(lambda: gym.make("KeyToken-v0"))
    with pytest.raises(WorkerError, match=r"take the state of a lost one; environment 0 .* Fix: go on from a checkp"):
        other.host.restore(cloudpickle.dumps(driver.histories))


def test_an_error_leaves_the_host_at_rest(tmp_path: Path) -> None:
    make = makers(tmp_path)["elsewhere"]
    driver = Driver(make)
    driver.run(*[Reset(0, {})] * N)
    good = make().action_space.encode("wait")  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="Expected"):
        driver.run(Step(good[:1]), Step(good))
    driver.run(*[Reset(0, {})] * N)
    driver.run(Step(good), Step(good))
    driver.host.close()
