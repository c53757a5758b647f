"""`EnvGroups`: environments in groups that step on their own, so that a model can act for one while others step."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize, unwrap_vec_normalize
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvObs, VecEnvStepReturn

from poad_sb3.stepping import Stepper, end_threads

__all__ = ["EnvGroups", "gather", "group_envs", "make_env_groups"]


class EnvGroups(VecEnv):
    """Several vectors of environments as one, each stepping in a thread of its own.

    To everything that knows no groups it is an ordinary vector, whose groups step at the same time. Beside that, one
    group can be stepped while the others rest or step: `begin` and `wait`.

    Only steps run in the threads, and only one of a group at a time; all else waits until no group is stepping, and
    runs in the thread of the caller. So environments of different groups must not share what is not safe in threads,
    and a step must not want the main thread (as `signal.signal` does).

    A group may be an `EnvGroups` too: its environments step together, and each in a thread of its own.

    Args:
        groups: The vectors, in the order of their environments. Wrap them, or the whole (as with `VecMonitor`): around
            the whole, a wrapper takes the groups' turns from an algorithm.

    Attributes:
        groups: The vectors.
        slices: Places of each group's environments among all.

    Raises:
        ValueError: If there is no group, their spaces differ, or one has statistics of its own (`VecNormalize`).
    """

    def __init__(self, groups: Sequence[VecEnv]) -> None:
        self.groups = list(groups)
        _check(self.groups)
        ends = np.cumsum([group.num_envs for group in self.groups]).tolist()
        self.slices = [slice(end - group.num_envs, end) for group, end in zip(self.groups, ends, strict=True)]
        self._steppers = [Stepper(group) for group in self.groups]
        super().__init__(ends[-1], self.groups[0].observation_space, self.groups[0].action_space)
        self.metadata = self.groups[0].metadata
        # Threads know only their queues and groups: they end with the last reference to this object.
        weakref.finalize(self, end_threads, [stepper.tasks for stepper in self._steppers])

    def wrapped(self, wrap: Callable[[VecEnv], VecEnv]) -> EnvGroups:
        """The same groups, each in a wrapper."""
        return EnvGroups([wrap(group) for group in self.groups])

    # ------------------------------------------------------------------ one group

    def begin(self, number: int, actions: NDArray[np.int64]) -> None:
        """Begin a step of a group, and return at once.

        Args:
            number: Of the group.
            actions: Of its environments, `[n, max_length]`.

        Raises:
            RuntimeError: If the group is stepping.
        """
        self._steppers[number].begin(actions)

    def wait(self, number: int) -> VecEnvStepReturn:
        """Wait for the step of a group. What the step raised is raised here.

        Raises:
            RuntimeError: If no step was begun.
        """
        result = self._steppers[number].wait()
        self._note_reset_infos(number)
        return result

    def _note_reset_infos(self, number: int) -> None:
        # Wrappers shadow reset_infos with empty dicts (SB3 base_vec_env.py), so ask the innermost.
        self.reset_infos[self.slices[number]] = self.groups[number].unwrapped.reset_infos

    # ------------------------------------------------------------------ all together

    def reset(self) -> VecEnvObs:
        """Reset all environments, after the ends of steps that nobody has waited for."""
        self._drop()
        observations = [group.reset() for group in self.groups]
        for number in range(len(self.groups)):
            self._note_reset_infos(number)
        return gather_observations(observations)

    def step_async(self, actions: NDArray[np.int64]) -> None:
        """Begin a step of every group."""
        for number, part in enumerate(self.slices):
            self.begin(number, actions[part])

    def step_wait(self) -> VecEnvStepReturn:
        """Wait for the step of every group."""
        try:
            return gather([self.wait(number) for number in range(len(self.groups))])
        except Exception:
            self._drop()  # as after the error of an ordinary vector, nothing is under way
            raise

    def close(self) -> None:
        """Wait for steps that are under way, close the environments and end the threads."""
        for stepper in self._steppers:
            stepper.stop()
        for group in self.groups:
            group.close()

    def _settle(self) -> None:
        for stepper in self._steppers:
            stepper.settle()

    def _drop(self) -> None:
        for stepper in self._steppers:
            stepper.drop()

    # ------------------------------------------------------------------ attributes and methods of environments

    def _places(self, indices: VecEnvIndices) -> list[tuple[VecEnv, int]]:
        """Group of each environment, and its place there; nothing is stepping."""
        self._settle()
        places = [(group, index) for group in self.groups for index in range(group.num_envs)]
        return [places[index] for index in self._get_indices(indices)]

    def has_attr(self, attr_name: str) -> bool:
        """Whether all environments have an attribute."""
        self._settle()
        return all(group.has_attr(attr_name) for group in self.groups)

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """See `VecEnv.get_attr`."""
        return [group.get_attr(attr_name, [place])[0] for group, place in self._places(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:  # noqa: ANN401 - of any kind
        """See `VecEnv.set_attr`."""
        for group, place in self._places(indices):
            group.set_attr(attr_name, value, [place])

    def env_method(
        self,
        method_name: str,
        *method_args: Any,  # noqa: ANN401 - of any method
        indices: VecEnvIndices = None,
        **method_kwargs: Any,  # noqa: ANN401 - of any method
    ) -> list[Any]:
        """See `VecEnv.env_method`."""
        return [
            group.env_method(method_name, *method_args, indices=[place], **method_kwargs)[0]
            for group, place in self._places(indices)
        ]

    def env_is_wrapped(self, wrapper_class: type[gym.Wrapper], indices: VecEnvIndices = None) -> list[bool]:
        """See `VecEnv.env_is_wrapped`."""
        return [group.env_is_wrapped(wrapper_class, [place])[0] for group, place in self._places(indices)]

    def get_images(self) -> Sequence[NDArray[np.uint8] | None]:
        """See `VecEnv.get_images`."""
        self._settle()
        return [image for group in self.groups for image in group.get_images()]

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Seed environment i with `seed + i` at its next reset, as `VecEnv.seed` does."""
        seeds = super().seed(seed)
        for group, part in zip(self.groups, self.slices, strict=True):
            group.seed(seeds[part.start])
        return seeds

    def set_options(self, options: list[dict[str, Any]] | dict[str, Any] | None = None) -> None:
        """See `VecEnv.set_options`."""
        super().set_options(options)
        for group, part in zip(self.groups, self.slices, strict=True):
            group.set_options(self._options[part])

    def _reset_seeds(self) -> None:
        super()._reset_seeds()
        for group in self.groups:
            group.unwrapped._reset_seeds()


def _check(groups: Sequence[VecEnv]) -> None:
    if not groups:
        raise ValueError("Expected at least one group of environments; got none. Fix: EnvGroups([vec_env, ...]).")
    for number, group in enumerate(groups):
        for name in ("observation_space", "action_space"):
            own, first = getattr(group, name), getattr(groups[0], name)
            if own != first:
                raise ValueError(
                    f"Expected groups with one {name}; group {number} has {own}, the first {first}. "
                    "Fix: make them of one kind of environment."
                )
        if unwrap_vec_normalize(group) is not None:
            raise ValueError(
                f"Expected groups without statistics of their own; group {number} has a {VecNormalize.__name__}. "
                "Fix: wrap the whole: VecNormalize(EnvGroups(...))."
            )


# ---------------------------------------------------------------------- putting results together


def gather(results: Sequence[VecEnvStepReturn]) -> VecEnvStepReturn:
    """The step of all environments, from those of the groups."""
    observations, rewards, dones, infos = zip(*results, strict=True)
    flat = [info for some in infos for info in some]
    return gather_observations(observations), np.concatenate(rewards), np.concatenate(dones), flat


def gather_observations(parts: Sequence[VecEnvObs]) -> VecEnvObs:
    """Observations of all environments, from those of the groups."""
    first = parts[0]
    if isinstance(first, Mapping):
        return {key: np.concatenate([part[key] for part in parts]) for key in first}  # type: ignore[call-overload]
    if isinstance(first, tuple):
        return tuple(np.concatenate(column) for column in zip(*parts, strict=True))
    return np.concatenate(parts)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- making them


def make_env_groups(
    env: str | Callable[[], gym.Env[Any, Any]],
    n_envs: int,
    n_groups: int = 2,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
) -> EnvGroups:
    """Environments in groups, in this process, with SB3's Monitor around each; every one steps in its own thread.

    Args:
        env: Id, or what makes one.
        n_envs: Their number.
        n_groups: Groups, as equal as can be. Two are enough to keep a model busy while environments step.
        env_kwargs: Arguments of `gym.make`, or of `env`.

    Raises:
        ValueError: If there are fewer environments than groups, or no group.
    """
    # An id would get render_mode="rgb_array" from SB3.
    make = partial(gym.make, env) if isinstance(env, str) else env
    made = make_vec_env(make, n_envs, env_kwargs=dict(env_kwargs or {}))
    assert isinstance(made, DummyVecEnv)
    return group_envs(made.envs, n_groups)


def group_envs(envs: Sequence[gym.Env[Any, Any]], n_groups: int = 2) -> EnvGroups:
    """Environments that are made already, in groups; see `make_env_groups`."""
    if not 1 <= n_groups <= len(envs):
        raise ValueError(
            f"Expected between 1 and {len(envs)} groups, the number of environments; got {n_groups}. "
            "Fix: two groups, and as many environments or more."
        )
    singles = [DummyVecEnv([partial(_same, env)]) for env in envs]
    bounds = [number * len(envs) // n_groups for number in range(n_groups + 1)]
    parts = [singles[start:end] for start, end in pairwise(bounds)]
    return EnvGroups([part[0] if len(part) == 1 else EnvGroups(part) for part in parts])


def _same(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    return env
