"""`PipelinedVecEnv`: environments in parts that step on their own: a model acts for one while the others step."""

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

from poad_sb3.vec_env.stepping import Stepper, end_threads

__all__ = ["PipelinedVecEnv", "gather", "make_pipelined_envs", "pipeline_envs"]


class PipelinedVecEnv(VecEnv):
    """Several vectors of environments as one, each stepping in a thread of its own.

    To code that knows no parts it is an ordinary vector, whose parts step at the same time. In addition, one part can
    be stepped while the others rest or step: `begin` and `wait`.

    Only steps run in the threads, and only one of a part at a time; all else waits until no part is stepping, and
    runs in the thread of the caller. So environments of different parts must not share data that is not thread-safe,
    and a step must not need the main thread (as `signal.signal` does).

    A part may be a `PipelinedVecEnv` too: its environments step together, and each in a thread of its own.

    Args:
        parts: Vectors of environments, in the order of their environments. Wrap them, or the whole (as with
            `VecMonitor`): around the whole, a wrapper hides the parts, so that all environments step together.

    Attributes:
        parts: Vectors of environments.
        slices: Places of each part's environments among all.

    Raises:
        ValueError: If there is no part, their spaces differ, or one has statistics of its own (`VecNormalize`).
    """

    _stepper_class: type[Stepper] = Stepper

    def __init__(self, parts: Sequence[VecEnv]) -> None:
        self.parts = list(parts)
        _check(self.parts)
        ends = np.cumsum([part.num_envs for part in self.parts]).tolist()
        self.slices = [slice(end - part.num_envs, end) for part, end in zip(self.parts, ends, strict=True)]
        self._steppers = [self._stepper_class(part) for part in self.parts]
        super().__init__(ends[-1], self.parts[0].observation_space, self.parts[0].action_space)
        self.metadata = self.parts[0].metadata
        # Threads know only their queues and parts: they end with the last reference to this object.
        weakref.finalize(self, end_threads, [stepper.tasks for stepper in self._steppers])

    def wrapped(self, wrap: Callable[[VecEnv], VecEnv]) -> PipelinedVecEnv:
        """Return the same parts, each in a wrapper."""
        return type(self)([wrap(part) for part in self.parts])

    # ------------------------------------------------------------------ one part

    def begin(self, number: int, actions: NDArray[np.int64]) -> None:
        """Begin a step of a part, and return at once.

        Args:
            number: Number of the part.
            actions: Actions of its environments, `[n, max_length]`.

        Raises:
            RuntimeError: If the part is stepping.
        """
        self._steppers[number].begin(actions)

    def wait(self, number: int) -> VecEnvStepReturn:
        """Wait for the step of a part. Its exception is raised here.

        Raises:
            RuntimeError: If no step was begun.
        """
        result = self._steppers[number].wait()
        self._note_reset_infos(number)
        return result

    def _note_reset_infos(self, number: int) -> None:
        # Wrappers shadow reset_infos with empty dicts (SB3 base_vec_env.py), so ask the innermost.
        self.reset_infos[self.slices[number]] = self.parts[number].unwrapped.reset_infos

    # ------------------------------------------------------------------ all together

    def reset(self) -> VecEnvObs:
        """Reset all environments, after the end of any pending steps."""
        self._drop()
        observations = []
        for number, (part, span) in enumerate(zip(self.parts, self.slices, strict=True)):
            part.unwrapped._seeds, part.unwrapped._options = self._seeds[span], self._options[span]
            observations.append(part.reset())
            self._note_reset_infos(number)
        self._reset_seeds()
        self._reset_options()
        return gather_observations(observations)

    def step_async(self, actions: NDArray[np.int64]) -> None:
        """Begin a step of every part."""
        for number, span in enumerate(self.slices):
            self.begin(number, actions[span])

    def step_wait(self) -> VecEnvStepReturn:
        """Wait for the step of every part."""
        try:
            return gather([self.wait(number) for number in range(len(self.parts))])
        except Exception:
            self._drop()  # as after the error of an ordinary vector, no part is stepping
            raise

    def close(self) -> None:
        """Wait for steps that are under way, close the environments and end the threads."""
        for stepper in self._steppers:
            stepper.stop()
        for part in self.parts:
            part.close()

    def _settle(self) -> None:
        for stepper in self._steppers:
            stepper.settle()

    def _drop(self) -> None:
        for stepper in self._steppers:
            stepper.drop()

    # ------------------------------------------------------------------ attributes and methods of environments

    def _places(self, indices: VecEnvIndices) -> list[tuple[VecEnv, int]]:
        """Return the part of each environment, and its place there; wait until no part is stepping."""
        self._settle()
        places = [(part, index) for part in self.parts for index in range(part.num_envs)]
        return [places[index] for index in self._get_indices(indices)]

    def has_attr(self, attr_name: str) -> bool:
        """Return whether all environments have an attribute."""
        self._settle()
        return all(part.has_attr(attr_name) for part in self.parts)

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """See `VecEnv.get_attr`."""
        return [part.get_attr(attr_name, [place])[0] for part, place in self._places(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """See `VecEnv.set_attr`."""
        for part, place in self._places(indices):
            part.set_attr(attr_name, value, [place])

    def env_method(
        self,
        method_name: str,
        *method_args: Any,
        indices: VecEnvIndices = None,
        **method_kwargs: Any,
    ) -> list[Any]:
        """See `VecEnv.env_method`."""
        return [
            part.env_method(method_name, *method_args, indices=[place], **method_kwargs)[0]
            for part, place in self._places(indices)
        ]

    def env_is_wrapped(self, wrapper_class: type[gym.Wrapper], indices: VecEnvIndices = None) -> list[bool]:
        """See `VecEnv.env_is_wrapped`."""
        return [part.env_is_wrapped(wrapper_class, [place])[0] for part, place in self._places(indices)]

    def get_images(self) -> Sequence[NDArray[np.uint8] | None]:
        """See `VecEnv.get_images`."""
        self._settle()
        return [image for part in self.parts for image in part.get_images()]


def _check(parts: Sequence[VecEnv]) -> None:
    if not parts:
        raise ValueError("Expected at least one part of environments; got none. Fix: PipelinedVecEnv([vec_env, ...]).")
    for number, part in enumerate(parts):
        for name in ("observation_space", "action_space"):
            own, first = getattr(part, name), getattr(parts[0], name)
            if own != first:
                raise ValueError(
                    f"Expected parts with one {name}; part {number} has {own}, the first {first}. "
                    "Fix: make them of one kind of environment."
                )
        if unwrap_vec_normalize(part) is not None:
            raise ValueError(
                f"Expected parts without statistics of their own; part {number} has a {VecNormalize.__name__}. "
                "Fix: wrap the whole: VecNormalize(PipelinedVecEnv(...))."
            )


# ---------------------------------------------------------------------- putting results together


def gather(results: Sequence[VecEnvStepReturn]) -> VecEnvStepReturn:
    """Return the step of all environments, from those of the parts."""
    observations, rewards, dones, infos = zip(*results, strict=True)
    flat = [info for some in infos for info in some]
    return gather_observations(observations), np.concatenate(rewards), np.concatenate(dones), flat


def gather_observations(parts: Sequence[VecEnvObs]) -> VecEnvObs:
    """Return the observations of all environments, from those of the parts."""
    first = parts[0]
    if isinstance(first, Mapping):
        return {key: np.concatenate([span[key] for span in parts]) for key in first}  # type: ignore[call-overload]
    if isinstance(first, tuple):
        return tuple(np.concatenate(column) for column in zip(*parts, strict=True))
    return np.concatenate(parts)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- making them


def make_pipelined_envs(
    env: str | Callable[[], gym.Env[Any, Any]],
    n_envs: int,
    n_parts: int = 2,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
) -> PipelinedVecEnv:
    """Make environments in parts, in this process; each environment has SB3's Monitor and steps in its own thread.

    Args:
        env: Id of an environment, or a function that makes one.
        n_envs: Number of environments.
        n_parts: Number of parts, as equal as can be. Two are enough to keep a model busy while environments step.
        env_kwargs: Arguments of `gym.make`, or of `env`.

    Raises:
        ValueError: If there are fewer environments than parts, or no part.
    """
    # An id would get render_mode="rgb_array" from SB3.
    make = partial(gym.make, env) if isinstance(env, str) else env
    made = make_vec_env(make, n_envs, env_kwargs=dict(env_kwargs or {}))
    assert isinstance(made, DummyVecEnv)
    return pipeline_envs(made.envs, n_parts)


def pipeline_envs(envs: Sequence[gym.Env[Any, Any]], n_parts: int = 2) -> PipelinedVecEnv:
    """Put existing environments into parts; see `make_pipelined_envs`."""
    if not 1 <= n_parts <= len(envs):
        raise ValueError(
            f"Expected between 1 and {len(envs)} parts, the number of environments; got {n_parts}. "
            "Fix: two parts, and as many environments or more."
        )
    singles = [DummyVecEnv([partial(_same, env)]) for env in envs]
    bounds = [number * len(envs) // n_parts for number in range(n_parts + 1)]
    parts = [singles[start:end] for start, end in pairwise(bounds)]
    return PipelinedVecEnv([span[0] if len(span) == 1 else PipelinedVecEnv(span) for span in parts])


def _same(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    return env
