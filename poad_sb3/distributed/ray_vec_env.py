"""`RayVecEnv`: environments in a few Ray actors, as one SB3 vector."""

from __future__ import annotations

import atexit
import contextlib
import copy
import pickle
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, pairwise
from typing import Any

import cloudpickle
import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvObs, VecEnvStepReturn

from poad_sb3.distributed.env_host import Description, EnvHost
from poad_sb3.distributed.ray_cluster import (
    LOCAL,
    RayConnection,
    cause_of_loss,
    check_room,
    free_amounts,
    get,
    launch_actor,
    module_path,
    room,
)
from poad_sb3.errors import WorkerError
from poad_sb3.vec_env.make_envs import steps_elsewhere

__all__ = ["RayVecEnv", "make_ray_envs"]

_SECONDS_TO_CLOSE = 10.0
"""Longest wait for an actor to close its environments, in seconds; then it is killed."""


def make_ray_envs(
    env: str | Callable[[], gym.Env[Any, Any]],
    env_kwargs: Mapping[str, Any],
    n_envs: int,
    n_actors: int | None = None,
    address: str = LOCAL,
    *,
    step_seconds: float = 600.0,
    start_seconds: float = 300.0,
    demand: Mapping[str, float] | None = None,
) -> RayVecEnv:
    """Make environments of one kind in Ray actors, with SB3's Monitor around each.

    Results are those of `make_envs`, bit for bit, for any number of actors. A lost actor raises `WorkerError` and ends
    the others, as a dead worker of `SubprocVecEnv` does: training goes on from a checkpoint, with new environments.

    Args:
        env: Id of an environment, or a function that makes one.
        env_kwargs: Arguments of `gym.make`, or of the function.
        n_envs: Number of environments.
        n_actors: Number of actors; None for one on each core of the cluster, at most `n_envs`.
        address: `"local"` for a cluster of this process, `"auto"` or the address of another.
        step_seconds: Longest wait for an actor to make one step of its environments, in seconds; then it counts as
            lost.
        start_seconds: Longest wait for an actor to start and to make its environments, in seconds.
        demand: Resources that an actor takes; None for a core, or one `sandbox` where steps are made elsewhere.

    Raises:
        MissingExtraError: If Ray is not installed.
        ValueError: If there are fewer environments than actors, or none of them.
        WorkerError: If there is no cluster, it is too small, or an actor does not start.
    """
    make = _maker(env, env_kwargs)
    connection = RayConnection(address)
    try:
        if demand is None:
            # Cores that make the steps are taken, not those that wait for them.
            demand = {"sandbox": 1.0} if steps_elsewhere(env) else {"CPU": 1.0}
        n_room = room(demand)
        n_actors = max(1, min(n_envs, n_room)) if n_actors is None else n_actors
        if not 1 <= n_actors <= n_envs:
            raise ValueError(
                f"Expected between 1 and {n_envs} actors, the number of environments; got {n_actors}. "
                "Fix: fewer actors, or more environments."
            )
        check_room(n_actors, n_room, demand)
        bounds = [number * n_envs // n_actors for number in range(n_actors + 1)]
        spans = [range(start, end) for start, end in pairwise(bounds)]
        return RayVecEnv(make, spans, demand, connection, step_seconds, start_seconds)
    except BaseException:
        connection.close()
        raise


class RayVecEnv(VecEnv):
    """Environments in Ray actors; see `make_ray_envs`.

    Args:
        make: Function that makes an environment.
        spans: Numbers of the environments of each actor.
        demand: Resources that an actor takes.
        connection: Connection to Ray, closed with the environments.
        step_seconds: Longest wait for an answer of an actor, in seconds.
        start_seconds: Longest wait for an actor to make its environments, in seconds.

    Raises:
        WorkerError: If an actor does not start.
    """

    def __init__(
        self,
        make: Callable[[], gym.Env[Any, Any]],
        spans: Sequence[range],
        demand: Mapping[str, float],
        connection: RayConnection,
        step_seconds: float,
        start_seconds: float,
    ) -> None:
        self._spans, self._demand, self._step_seconds = spans, demand, step_seconds
        self._actors = [launch_actor(EnvHost, demand, {"PYTHONHASHSEED": "0"}) for _ in spans]
        self._processes = ["not started"] * len(spans)
        self._stepping: list[Any] | None = None
        self._is_open = True
        self._end = weakref.finalize(self, _end, self._actors, connection)
        atexit.register(self._end)  # before the end of the cluster, which was registered earlier
        try:
            packed = cloudpickle.dumps(make)
            starting = [
                actor.make.remote(module_path(), packed, len(span))
                for actor, span in zip(self._actors, spans, strict=True)
            ]
            descriptions: list[Description] = [
                self._answer(number, answer, start_seconds) for number, answer in enumerate(starting)
            ]
        except BaseException:
            self.close()
            raise
        self._processes = [description.process for description in descriptions]
        first = descriptions[0]
        super().__init__(spans[-1].stop, first.observation_space, first.action_space)
        self.metadata = first.metadata

    def reset(self) -> VecEnvObs:
        """Reset all environments, after the end of a step that an interrupt has left under way."""
        if self._stepping is not None:
            with contextlib.suppress(Exception):  # of a step whose result is dropped
                self.step_wait()
        self._require_open()
        answers = [
            actor.reset.remote(
                cloudpickle.dumps((self._seeds[span.start : span.stop], self._options[span.start : span.stop]))
            )
            for actor, span in zip(self._actors, self._spans, strict=True)
        ]
        observations, reset_infos = zip(*self._answers(enumerate(answers)), strict=True)
        self._reset_seeds()
        self._reset_options()
        self.reset_infos = list(chain(*reset_infos))
        return _gather(observations)

    def step_async(self, actions: NDArray[np.int64]) -> None:
        """Begin a step of all environments.

        Raises:
            RuntimeError: If an interrupt has left them stepping.
        """
        if self._stepping is not None:
            raise RuntimeError("Expected environments at rest; they are stepping. Fix: step_wait(), or reset().")
        self._require_open()
        self._stepping = [
            actor.step.remote(cloudpickle.dumps(np.array(actions[span.start : span.stop])))
            for actor, span in zip(self._actors, self._spans, strict=True)
        ]

    def step_wait(self) -> VecEnvStepReturn:
        """Wait for the step of all environments; after an interrupt it can be waited for again."""
        assert self._stepping is not None, "step_async() comes first"
        try:
            results = self._answers(enumerate(self._stepping))
        except Exception:
            self._stepping = None
            raise
        self._stepping = None
        observations, rewards, dones, infos, resets = zip(*results, strict=True)
        for span, of_actor in zip(self._spans, resets, strict=True):
            for place, info in of_actor.items():
                self.reset_infos[span.start + place] = info
        return _gather(observations), np.concatenate(rewards), np.concatenate(dones), list(chain(*infos))

    def close(self) -> None:
        """Close the environments and end the actors."""
        if self._is_open:
            self._is_open, self._stepping = False, None
            atexit.unregister(self._end)
            self._end()

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """See `VecEnv.get_attr`."""
        return self._call(indices, "get_attr", attr_name)

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """See `VecEnv.set_attr`."""
        self._call(indices, "set_attr", attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        """See `VecEnv.env_method`."""
        return self._call(indices, "env_method", method_name, *method_args, **method_kwargs)

    def env_is_wrapped(self, wrapper_class: type[gym.Wrapper], indices: VecEnvIndices = None) -> list[bool]:
        """See `VecEnv.env_is_wrapped`."""
        return self._call(indices, "env_is_wrapped", wrapper_class)

    def get_images(self) -> Sequence[NDArray[np.uint8] | None]:
        """See `VecEnv.get_images`."""
        return self.env_method("render")

    # ------------------------------------------------------------------ actors

    def _call(self, indices: VecEnvIndices, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Call a method of SB3's vector for some environments, and return the results in their order."""
        self._require_open()
        places = list(self._get_indices(indices))
        answers, asked = {}, []
        for number, (actor, span) in enumerate(zip(self._actors, self._spans, strict=True)):
            if chosen := [place for place in places if place in span]:
                local = {**kwargs, "indices": [place - span.start for place in chosen]}
                answers[number] = actor.call.remote(cloudpickle.dumps((method, args, local)))
                asked += chosen
        results = self._answers(answers.items())
        if method == "set_attr":
            return []
        of_place = dict(zip(asked, chain(*results), strict=True))
        return [of_place[place] for place in places]

    def _answers(self, answers: Iterable[tuple[int, Any]]) -> list[Any]:
        """Wait for the answers of actors; the first error is raised when none of them is at work."""
        results, failed = [], None
        for number, answer in answers:
            try:
                results.append(self._answer(number, answer, self._step_seconds))
            except WorkerError:
                self.close()
                raise
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return results

    def _answer(self, number: int, answer: Any, seconds: float) -> Any:
        import ray

        try:
            return pickle.loads(get(answer, seconds))
        except ray.exceptions.RayError as error:
            span, process = self._spans[number], self._processes[number]
            name = f"actor {number} (environments {span.start} to {span.stop - 1}, {process})"
            fix = "look for its cause there, often too little memory; go on from a checkpoint, with new environments"
            if process == "not started":
                fix = f"wait for other jobs there (free: {free_amounts(self._demand)}), or fewer --n-actors"
            raise WorkerError(
                f"Expected an answer of every actor within {seconds:g} s; {name} gave none ({cause_of_loss(error)}). "
                f"Fix: {fix}."
            ) from error

    def _require_open(self) -> None:
        if not self._is_open:
            raise WorkerError(
                "Expected open environments; their actors are closed. "
                "Fix: make new environments and pass them to set_env() or load()."
            )


def _gather(observations: Sequence[VecEnvObs]) -> VecEnvObs:
    """Return the observations of all environments, from those of each."""
    first = observations[0]
    if isinstance(first, Mapping):
        columns = {key: [observation[key] for observation in observations] for key in first}  # type: ignore[call-overload]
        return {key: np.concatenate(column) for key, column in columns.items()}
    if isinstance(first, tuple):
        return tuple(np.concatenate(column) for column in zip(*observations, strict=True))
    return np.concatenate(observations)  # type: ignore[arg-type]


def _end(actors: Sequence[Any], connection: RayConnection) -> None:
    """Let actors close their environments and end; then close the connection."""
    import ray

    if ray.is_initialized():
        closing = [actor.close.remote() for actor in actors]
        ray.wait(closing, num_returns=len(closing), timeout=_SECONDS_TO_CLOSE)
        for actor in actors:
            ray.kill(actor, no_restart=True)
    connection.close()


def _maker(
    env: str | Callable[[], gym.Env[Any, Any]], env_kwargs: Mapping[str, Any]
) -> Callable[[], gym.Env[Any, Any]]:
    """Return a function that makes an environment, with the registration of an id that an actor may not know."""
    if not isinstance(env, str):
        return partial(env, **env_kwargs)
    spec = gym.registry.get(env)
    return partial(gym.make, env if spec is None else copy.deepcopy(spec), **env_kwargs)
