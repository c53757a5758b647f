"""`EnvHost`: environments of one actor, run by operations that can be repeated after its death.

It knows no Ray: `ray_vec_env` makes an actor of it.
"""

from __future__ import annotations

import os
import pickle
import socket
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import cloudpickle
import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs

import lang_envs  # noqa: F401 - registers its ids
from poad_sb3.distributed.ray_cluster import find_modules
from poad_sb3.errors import WorkerError
from poad_sb3.vec_env.env_states import capture_envs, restore_envs
from poad_sb3.vec_env.rewards import guard_rewards
from poad_sb3.vec_env.threads import StepThread

__all__ = ["Description", "EnvHost", "History", "Invoke", "Operation", "Reset", "Step", "Stepped"]


class Reset(NamedTuple):
    """Reset of an environment.

    Attributes:
        seed: Seed of the reset, or None.
        options: Options of `gym.Env.reset`.
    """

    seed: int | None
    options: Mapping[str, Any]


class Step(NamedTuple):
    """Step of an environment.

    Attributes:
        action: Action as token ids, `[max_length]`.
    """

    action: NDArray[np.int64]


class Invoke(NamedTuple):
    """Call of a method of SB3's `VecEnv` on the vector of an environment.

    Attributes:
        method: Name of the method: `get_attr`, `set_attr`, `env_method`, `env_is_wrapped` or `get_images`.
        args: Arguments of the method.
        kwargs: Keyword arguments of the method.
    """

    method: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = {}

    @property
    def changes(self) -> bool:
        """Whether the call may change the environment."""
        return self.method == "set_attr" or (self.method == "env_method" and self.args[0] != "get_state")


Operation = Reset | Step | Invoke


class Stepped(NamedTuple):
    """Result of a step or a reset, as SB3's vectors return it for one environment.

    Attributes:
        observation: Observation, `[1, ...]`; a mapping of such arrays for a Dict space.
        reward: Reward, float32, `[1]`; 0 after a reset.
        done: Whether the episode ended, `[1]`.
        info: Info of the step; empty after a reset.
        reset_info: Info of the reset, also of that after the end of an episode; None if there was none.
    """

    observation: VecEnvObs
    reward: NDArray[np.float32]
    done: NDArray[np.bool_]
    info: dict[str, Any]
    reset_info: dict[str, Any] | None


class Description(NamedTuple):
    """Facts of an actor and its environments.

    Attributes:
        host: Name of the machine.
        pid: Id of the process.
        observation_space: Observation space of the first environment.
        action_space: Action space of the first environment.
        metadata: Metadata of the first environment.
        steps_elsewhere: Whether the steps of all environments are made by other processes.
        states: State of each environment, pickled; None without `get_state`.
    """

    host: str
    pid: int
    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]
    metadata: dict[str, Any]
    steps_elsewhere: bool
    states: list[bytes | None]


@dataclass
class History:
    """Record for restoring an environment in its present state.

    Attributes:
        state: Last state of the environment, pickled; None without `get_state`.
        operations: Completed operations since its construction, pickled and compressed; with a state only calls of
            `set_attr` and `env_method`, whose effects it need not hold.
        last: Observation, reward and end of the last operation that was a step or a reset.
    """

    state: bytes | None = None
    operations: list[bytes] = field(default_factory=list)
    last: tuple[Any, ...] | None = None

    def note(self, operation: Operation, value: Any, state: bytes | None) -> None:
        """Record a completed operation.

        Args:
            operation: Operation that was completed.
            value: Result of the operation.
            state: State of the environment after the operation, pickled; None without `get_state`.
        """
        if isinstance(operation, Invoke) and not operation.changes:
            return
        self.state = state
        if state is None or isinstance(operation, Invoke):
            self.operations.append(zlib.compress(_dumps(operation), 1))
        if state is None and isinstance(value, Stepped):
            self.last = value[:3]


class EnvHost:
    """Several environments, each in its own vector with SB3's Monitor."""

    def __init__(self) -> None:
        self._envs: list[DummyVecEnv] = []
        self._threads: list[StepThread] = []
        self._steps_elsewhere = False

    def make(self, path: Sequence[str], packed: bytes, n_envs: int) -> bytes:
        """Create the environments, and return their `Description`, pickled.

        Args:
            path: Folders to find modules in, after those of this process.
            packed: Function that makes an environment, pickled.
            n_envs: Number of environments.
        """
        find_modules(path)
        make: Callable[[], gym.Env[Any, Any]] = cloudpickle.loads(packed)
        made = make_vec_env(make, n_envs)
        assert isinstance(made, DummyVecEnv)
        guard_rewards(made)
        self._envs = [DummyVecEnv([partial(_same, env)]) for env in made.envs]
        self._threads = [StepThread() for _ in self._envs]
        self._steps_elsewhere = made.has_attr("steps_elsewhere") and all(made.get_attr("steps_elsewhere"))
        description = Description(
            socket.gethostname(),
            os.getpid(),
            made.observation_space,
            made.action_space,
            made.metadata,
            self._steps_elsewhere,
            [_state(env) for env in self._envs],
        )
        return _dumps(description)

    def run(self, packed: bytes) -> bytes:
        """Run an operation of some environments; return results and states, pickled.

        Environments that step elsewhere make their steps at the same time, local ones one after the other.

        Args:
            packed: Pairs of a place and an operation, pickled.
        """
        operations: list[tuple[int, Operation]] = pickle.loads(packed)
        try:
            if self._steps_elsewhere:
                for index, operation in operations:
                    if isinstance(operation, Step):
                        self._threads[index].begin(partial(self._envs[index].step, operation.action[None]))
            answers = [
                (self._run(index, operation), self._state_after(index, operation)) for index, operation in operations
            ]
        except BaseException:
            for index, _ in operations:  # as after the error of an ordinary vector, none of them is stepping
                self._threads[index].drop()
            raise
        return _dumps(answers)

    def restore(self, packed: bytes) -> None:
        """Restore lost environments.

        Args:
            packed: `History` of each environment, pickled.

        Raises:
            WorkerError: If an environment refuses its state, or the same operations give another result.
        """
        histories: list[History] = pickle.loads(packed)
        for index, history in enumerate(histories):
            last: tuple[Any, ...] | None = None
            if history.operations:
                self._restore_state(index, history)  # methods may need an environment that was reset
            for compressed in history.operations:
                operation: Operation = pickle.loads(zlib.decompress(compressed))
                value = self._run(index, operation)
                last = value[:3] if isinstance(value, Stepped) else last
            self._restore_state(index, history)
            if history.state is None and not _equal(last, history.last):
                raise WorkerError(
                    "Expected an environment without get_state to give the same results for the same seed and "
                    f"actions; environment {index} of the actor did not. Fix: go on from a checkpoint; give it "
                    "get_state and set_state, or take all randomness from self.np_random."
                )

    def _restore_state(self, index: int, history: History) -> None:
        if history.state is not None and not restore_envs(self._envs[index], [pickle.loads(history.state)]):
            raise WorkerError(
                f"Expected a new environment of the same kind to take the state of a lost one; environment {index} of "
                "the actor refused it. Fix: go on from a checkpoint."
            )

    def close(self) -> None:
        """End the threads and close the environments."""
        for thread in self._threads:
            thread.stop()
        for env in self._envs:
            env.close()

    def _run(self, index: int, operation: Operation) -> Any:
        env = self._envs[index]
        if isinstance(operation, Reset):
            env._seeds, env._options = [operation.seed], [dict(operation.options)]
            observation = env.reset()
            return Stepped(observation, np.zeros(1, np.float32), np.zeros(1, bool), {}, env.reset_infos[0])
        if isinstance(operation, Invoke):
            answer = getattr(env, operation.method)(*operation.args, **operation.kwargs)
            return None if answer is None else answer[0]
        thread = self._threads[index]
        result = thread.wait() if thread.is_stepping else env.step(operation.action[None])
        observation, rewards, dones, infos = result
        return Stepped(observation, rewards, dones, infos[0], env.reset_infos[0] if dones[0] else None)

    def _state_after(self, index: int, operation: Operation) -> bytes | None:
        reads = isinstance(operation, Invoke) and not operation.changes
        return None if reads else _state(self._envs[index])


def _same(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    return env


def _dumps(value: object) -> bytes:
    """Pickle a value: arrays that Ray passes as they are arrive read-only."""
    packed: bytes = cloudpickle.dumps(value)
    return packed


def _state(env: DummyVecEnv) -> bytes | None:
    states = capture_envs(env)
    return None if states is None else _dumps(states[0])


def _equal(replayed: tuple[Any, ...] | None, recorded: tuple[Any, ...] | None) -> bool:
    """Return whether two results have equal observations, rewards and ends."""
    try:
        np.testing.assert_equal(replayed, recorded)
    except AssertionError:
        return False
    return True
