"""`RayVecEnv`: environments in a few Ray actors, as one SB3 vector."""

from __future__ import annotations

import atexit
import contextlib
import copy
import logging
import pickle
import secrets
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import cloudpickle
import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvObs, VecEnvStepReturn

from poad_sb3.distributed.env_host import Description, EnvHost, History, Invoke, Operation, Reset, Step, Stepped
from poad_sb3.distributed.ray_cluster import (
    LOCAL,
    RayConnection,
    check_room,
    free_amounts,
    get,
    launch_actor,
    module_path,
    note_loss,
    room,
)
from poad_sb3.errors import WorkerError
from poad_sb3.vec_env.make_envs import steps_elsewhere

__all__ = ["RayVecEnv", "make_ray_envs"]

_NOW, _STEP = "now", "step"
"""Keys of the calls of an actor: one whose answer is awaited at once, and a step of its environments."""
_SECONDS_TO_CLOSE = 10.0
"""Longest wait for an actor to close its environments, in seconds; then it is killed."""
_SECONDS_TO_NOTICE = 1.0
"""Longest wait for the loss of other actors when one is lost, in seconds: its node may be lost."""

_log = logging.getLogger(__name__)


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

    Results are those of `make_envs`, bit for bit, for any number of actors. A lost actor is restored in its last state:
    by the states of its environments, or without `get_state` by the seeds and actions since their construction.

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
        actors = _Actors(make, n_envs, n_actors, demand, connection, step_seconds, start_seconds)
    except BaseException:
        connection.close()
        raise
    return RayVecEnv(actors, n_envs)


class RayVecEnv(VecEnv):
    """Environments in Ray actors; see `make_ray_envs`."""

    def __init__(self, actors: _Actors, n_envs: int) -> None:
        self._actors, self._is_stepping = actors, False
        super().__init__(n_envs, actors.first.observation_space, actors.first.action_space)
        self.metadata = actors.first.metadata

    def reset(self) -> VecEnvObs:
        """Reset all environments, after the end of a step that an interrupt has left under way."""
        if self._is_stepping:
            with contextlib.suppress(Exception):  # of a step whose result is dropped
                self.step_wait()
        operations = [
            Reset(self._actors.repeatable(index, seed), options)
            for index, (seed, options) in enumerate(zip(self._seeds, self._options, strict=True))
        ]
        results = self._actors.run(range(self.num_envs), operations)
        self._reset_seeds()
        self._reset_options()
        self._note_resets(results)
        return _gather([result.observation for result in results])

    def step_async(self, actions: NDArray[np.int64]) -> None:
        """Begin a step of all environments.

        Raises:
            RuntimeError: If an interrupt has left them stepping.
        """
        if self._is_stepping:
            raise RuntimeError("Expected environments at rest; they are stepping. Fix: step_wait(), or reset().")
        self._actors.begin([Step(np.array(action)) for action in actions])
        self._is_stepping = True

    def step_wait(self) -> VecEnvStepReturn:
        """Wait for the step of all environments; after an interrupt it can be waited for again."""
        try:
            results = self._actors.finish()
        except Exception:
            self._is_stepping = False
            raise
        self._is_stepping = False
        self._note_resets(results)
        observations = _gather([result.observation for result in results])
        rewards, dones = (np.concatenate(column) for column in zip(*[result[1:3] for result in results], strict=True))
        return observations, rewards, dones, [result.info for result in results]

    def _note_resets(self, results: Sequence[Stepped]) -> None:
        for index, result in enumerate(results):
            if result.reset_info is not None:
                self.reset_infos[index] = result.reset_info

    def close(self) -> None:
        """Close the environments and end the actors."""
        self._actors.close()

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """See `VecEnv.get_attr`."""
        return self._invoke(indices, "get_attr", attr_name)

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """See `VecEnv.set_attr`."""
        self._invoke(indices, "set_attr", attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        """See `VecEnv.env_method`."""
        return self._invoke(indices, "env_method", method_name, *method_args, **method_kwargs)

    def env_is_wrapped(self, wrapper_class: type[gym.Wrapper], indices: VecEnvIndices = None) -> list[bool]:
        """See `VecEnv.env_is_wrapped`."""
        return self._invoke(indices, "env_is_wrapped", wrapper_class)

    def get_images(self) -> Sequence[NDArray[np.uint8] | None]:
        """See `VecEnv.get_images`."""
        return self._invoke(None, "get_images")

    def _invoke(self, indices: VecEnvIndices, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        places = list(self._get_indices(indices))
        return self._actors.run(places, [Invoke(method, args, kwargs)] * len(places))


def _gather(observations: Sequence[VecEnvObs]) -> VecEnvObs:
    """Return the observations of all environments, from those of each."""
    first = observations[0]
    if isinstance(first, Mapping):
        columns = {key: [observation[key] for observation in observations] for key in first}  # type: ignore[call-overload]
        return {key: np.concatenate(column) for key, column in columns.items()}
    if isinstance(first, tuple):
        return tuple(np.concatenate(column) for column in zip(*observations, strict=True))
    return np.concatenate(observations)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- actors


@dataclass
class _Call:
    """Operations of an actor; kept until all actors have answered, so that an interrupted wait may be repeated.

    Attributes:
        operations: Pairs of a place in the actor and the operation of the environment there.
        packed: Same pairs, pickled.
        answer: Reference to the answer; None until a request for it is sent.
        results: Results by the number of the environment; None until they are there.
    """

    operations: list[tuple[int, Operation]]
    packed: bytes
    answer: Any = None
    results: dict[int, Any] | None = None


@dataclass
class _Actor:
    """An actor, with the record for restoring it.

    Attributes:
        number: Number of the actor.
        span: Numbers of its environments.
        histories: History of each environment.
        handle: Handle of the actor in Ray.
        starting: Reference to the description of the actor.
        about: Process and machine, for messages.
        calls: Calls not answered by all actors, in their order, by `_NOW` or `_STEP`.
        n_losses: Number of losses since its last answer.
        is_new: Whether it takes the place of a lost one, and its environments are still to be restored.
    """

    number: int
    span: range
    histories: list[History]
    handle: Any = None
    starting: Any = None
    about: str = "not started"
    calls: dict[str, _Call] = field(default_factory=dict)
    n_losses: int = 0
    is_new: bool = False


class _Actors:
    """Actors with contiguous environments, made again when one is lost."""

    def __init__(
        self,
        make: Callable[[], gym.Env[Any, Any]],
        n_envs: int,
        n_actors: int,
        demand: Mapping[str, float],
        connection: RayConnection,
        step_seconds: float,
        start_seconds: float,
    ) -> None:
        self._packed, self._demand = cloudpickle.dumps(make), demand
        self._step_seconds, self._start_seconds = step_seconds, start_seconds
        bounds = [number * n_envs // n_actors for number in range(n_actors + 1)]
        self._all = [
            _Actor(number, range(start, end), [History() for _ in range(start, end)])
            for number, (start, end) in enumerate(pairwise(bounds))
        ]
        self._is_open = True
        self._end = weakref.finalize(self, _end, self._all, connection)
        atexit.register(self._end)  # before the end of the cluster, which was registered earlier
        try:
            for actor in self._all:
                self._launch(actor)
            descriptions = [self._first_start(actor) for actor in self._all]
        except BaseException:
            self._end()
            raise
        self.first: Description = descriptions[0]

    # ------------------------------------------------------------------ operations

    def repeatable(self, index: int, seed: int | None) -> int | None:
        """Return the seed of a reset; drawn here where an environment without a state has had none yet."""
        (history,) = [actor.histories[index - actor.span.start] for actor in self._all if index in actor.span]
        unknown = seed is None and history.state is None and history.last is None
        return secrets.randbits(31) if unknown else seed

    def run(self, places: Sequence[int], operations: Sequence[Operation]) -> list[Any]:
        """Run an operation of each of these environments, and return the results in their order."""
        self._submit(_NOW, places, operations)
        results = self._answers(_NOW)
        return [results[index] for index in places]

    def begin(self, operations: Sequence[Step]) -> None:
        """Begin a step of all environments."""
        self._submit(_STEP, range(len(operations)), operations)

    def finish(self) -> list[Stepped]:
        """Wait for the step of all environments."""
        results = self._answers(_STEP)
        return [results[index] for index in sorted(results)]

    def _submit(self, key: str, places: Sequence[int], operations: Sequence[Operation]) -> None:
        if not self._is_open:
            raise WorkerError(
                "Expected open environments; their actors are closed. "
                "Fix: make new environments and pass them to set_env() or load()."
            )
        for actor in self._all:
            actor_operations = [
                (index - actor.span.start, operation)
                for index, operation in zip(places, operations, strict=True)
                if index in actor.span
            ]
            if actor_operations:
                actor.calls[key] = _Call(actor_operations, cloudpickle.dumps(actor_operations))
                if not actor.is_new:
                    self._send(actor, actor.calls[key])

    def _send(self, actor: _Actor, call: _Call) -> None:
        """Send a call to an actor."""
        call.answer = actor.handle.run.remote(call.packed)

    def _answers(self, key: str) -> dict[int, Any]:
        """Wait for the answers of all actors; the first error is raised when none of them is at work for this call."""
        failed: Exception | None = None
        actors = [actor for actor in self._all if key in actor.calls]
        for actor in actors:
            try:
                self._answer(actor, actor.calls[key])
            except WorkerError:
                raise
            except Exception as error:
                failed = failed or error
        calls = [actor.calls.pop(key) for actor in actors]
        if failed is not None:
            raise failed
        return {index: value for call in calls for index, value in (call.results or {}).items()}

    def _answer(self, actor: _Actor, call: _Call) -> None:
        """Wait for an actor's answer to a call; a lost actor is restored and asked again."""
        import ray

        while call.results is None:
            try:
                if actor.is_new:
                    self._restore(actor)
                answers = pickle.loads(get(call.answer, self._step_seconds))
            except ray.exceptions.RayError as error:
                self._replace_lost(actor, error)
                continue
            actor.n_losses = 0
            for (index, operation), (value, state) in zip(call.operations, answers, strict=True):
                actor.histories[index].note(operation, value, state)
            call.results = {
                actor.span[index]: value for (index, _), (value, _) in zip(call.operations, answers, strict=True)
            }

    # ------------------------------------------------------------------ life of an actor

    def _launch(self, actor: _Actor) -> None:
        """Create an actor, and start making its environments."""
        actor.handle = launch_actor(EnvHost, self._demand, {"PYTHONHASHSEED": "0"})
        actor.starting = actor.handle.make.remote(module_path(), self._packed, len(actor.span))

    def _started(self, actor: _Actor) -> Description:
        """Wait until an actor has made its environments."""
        import ray

        try:
            packed = get(actor.starting, self._start_seconds)
        except ray.exceptions.GetTimeoutError as error:
            raise WorkerError(
                f"Expected actor {actor.number} to start and to make its environments within "
                f"{self._start_seconds:g} s; it did not (free in the cluster: {free_amounts(self._demand)}). "
                "Fix: wait for other jobs there, fewer --n-actors, or a larger start_seconds."
            ) from error
        description: Description = cloudpickle.loads(packed)
        actor.about = f"process {description.pid} on {description.host}"
        return description

    def _first_start(self, actor: _Actor) -> Description:
        import ray

        while True:
            try:
                description = self._started(actor)
                break
            except ray.exceptions.RayError as error:
                self._note_loss(actor, error)
                self._launch(actor)
        for history, state in zip(actor.histories, description.states, strict=True):
            history.state = state
        return description

    def _replace_lost(self, actor: _Actor, error: Exception) -> None:
        """Create all lost actors again: those of a node start side by side."""
        import ray

        self._replace(actor, error)
        answers = {
            call.answer: other
            for other in self._all
            for call in other.calls.values()
            if not (other.is_new or call.answer is None) and call.results is None
        }
        ready, _ = ray.wait([*answers], num_returns=len(answers), timeout=_SECONDS_TO_NOTICE) if answers else ([], [])
        for answer in ready:
            try:
                get(answer, self._step_seconds)
            except ray.exceptions.RayError as its:
                if not answers[answer].is_new:
                    self._replace(answers[answer], its)
            except Exception:  # raised where it is waited for
                continue

    def _replace(self, actor: _Actor, error: Exception) -> None:
        self._note_loss(actor, error)
        self._launch(actor)
        actor.is_new = True

    def _restore(self, actor: _Actor) -> None:
        """Give a new actor the environments of the lost one, as they were, and send it the calls without an answer."""
        import ray

        n_operations = sum(len(history.operations) for history in actor.histories)
        try:
            self._started(actor)
            restoring = actor.handle.restore.remote(cloudpickle.dumps(actor.histories))
            get(restoring, self._step_seconds * (1 + n_operations))
        except ray.exceptions.RayError:
            raise
        except BaseException:  # environments are not those that were lost: the next call shall find no actor
            for other in self._all:
                if other.is_new:
                    ray.kill(other.handle, no_restart=True)
                    other.is_new = False
            raise
        actor.is_new = False
        _log.warning("Actor %d was made again: %s.", actor.number, actor.about)
        for call in actor.calls.values():
            if call.results is None:
                self._send(actor, call)

    def _note_loss(self, actor: _Actor, error: Exception) -> None:
        """Kill a lost actor; raise `WorkerError` if it was lost too often, or there is no room for it."""
        actor.n_losses += 1
        name = f"actor {actor.number} (environments {actor.span.start} to {actor.span.stop - 1}, last as {actor.about})"
        note_loss(actor.handle, name, actor.n_losses, error)
        check_room(len(self._all), room(self._demand), self._demand)

    def close(self) -> None:
        """Close the environments and end the actors."""
        if not self._is_open:
            return
        self._is_open = False
        atexit.unregister(self._end)
        self._end()


def _end(actors: Sequence[_Actor], connection: RayConnection) -> None:
    """Let actors close their environments and end; then close the connection."""
    import ray

    if ray.is_initialized():
        handles = [actor.handle for actor in actors if actor.handle is not None]
        closing = [handle.close.remote() for handle in handles]
        if closing:
            ray.wait(closing, num_returns=len(closing), timeout=_SECONDS_TO_CLOSE)
        for handle in handles:
            ray.kill(handle, no_restart=True)
    connection.close()


# ---------------------------------------------------------------------- arguments


def _maker(
    env: str | Callable[[], gym.Env[Any, Any]], env_kwargs: Mapping[str, Any]
) -> Callable[[], gym.Env[Any, Any]]:
    """Return a function that makes an environment, with the registration of an id that an actor may not know."""
    if not isinstance(env, str):
        return partial(env, **env_kwargs)
    spec = gym.registry.get(env)
    return partial(gym.make, env if spec is None else copy.deepcopy(spec), **env_kwargs)
