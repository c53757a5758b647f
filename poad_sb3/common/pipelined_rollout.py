"""`PipelinedRollout`: the model acts for parts of the environments in a fixed order, while the others step."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn

from poad_sb3.common.policies import LLMPolicy
from poad_sb3.common.timing import Stopwatch
from poad_sb3.distributions.base import SampledAction
from poad_sb3.vec_env.pipelined import gather

_Chosen = tuple[list[SampledAction], list[np.random.Generator]]


@runtime_checkable
class _Parts(Protocol):
    slices: list[slice]

    def begin(self, number: int, actions: NDArray[np.int64]) -> None: ...

    def wait(self, number: int) -> VecEnvStepReturn: ...


class _OnePart:
    """An ordinary vector of environments: it steps inside `wait`."""

    def __init__(self, env: VecEnv) -> None:
        self._env = env
        self.slices = [slice(0, env.num_envs)]

    def begin(self, number: int, actions: NDArray[np.int64]) -> None:
        self._actions = actions

    def wait(self, number: int) -> VecEnvStepReturn:
        return self._env.step(self._actions)


class PipelinedRollout:
    """Steps of all environments of an algorithm, part by part.

    With parts A and B a step is: start A's environments; act for B; start B's; wait for A's; act for A's *next* step
    while B's are stepping; wait for B's. So between two steps no environment is stepping, independent of timing, and
    all that happens there (callbacks, saves, the end of a rollout) is as with one part.

    Actions chosen ahead count only once a step takes them: until then the generators keep their state, so a stop
    between two steps leaves no trace of them.

    Args:
        env: Vector of environments; it counts as one part unless it has parts, as a `PipelinedVecEnv`.
        policy: Policy that acts.
        watch: Stopwatch for acting and waiting.

    Attributes:
        taken: Actions of the last step, in the order of the environments.
        playing: Whether to choose an action for an environment, `[n_envs]`; one that does not play repeats its last.
    """

    def __init__(self, env: VecEnv, policy: LLMPolicy, watch: Stopwatch) -> None:
        # A wrapper around the whole passes these methods on, but must see every step itself.
        self._parts: _Parts = env if isinstance(env, _Parts) and not isinstance(env, VecEnvWrapper) else _OnePart(env)
        self._policy, self._watch = policy, watch
        # Of each part, actions that are not taken yet, and the state of its generators once they are.
        self._chosen: list[_Chosen | None] = [None] * len(self._parts.slices)
        self.taken: list[SampledAction] = []
        self.playing = np.ones(env.num_envs, dtype=bool)

    def choose(self, observations: Any) -> None:
        """Choose for the first part, unless done ahead; no part may be stepping yet."""
        if self._chosen[0] is None:
            self._chosen[0] = self._choose(0, _part(observations, self._parts.slices[0]))

    def step(self, observations: Any, *, ahead: bool) -> VecEnvStepReturn:
        """Make one step of every environment.

        Args:
            observations: Observations of all environments.
            ahead: Whether another step follows, so that actions for it may be chosen already.
        """
        slices, chosen = self._parts.slices, self._chosen
        self._chosen = [None] * len(slices)
        taken: list[SampledAction] = []
        for number, part in enumerate(slices):
            steps, rngs = chosen[number] or self._choose(number, _part(observations, part))
            self._policy.rollout_rngs[part] = rngs
            self._parts.begin(number, np.stack([step.env_action for step in steps]))
            taken += steps
        self.taken = taken
        results = []
        for number in range(len(slices)):
            with self._watch.timing("env"):
                results.append(self._parts.wait(number))
            # The last part has arrived: the step is whole, and comes first.
            if ahead and number < len(slices) - 1:
                self._chosen[number] = self._choose(number, results[-1][0])
        return results[0] if len(results) == 1 else gather(results)

    def _choose(self, number: int, observations: Any) -> _Chosen:
        part = self._parts.slices[number]
        rngs = copy.deepcopy(self._policy.rngs_of(part.stop)[part])
        with self._watch.timing("acting"):
            places = np.flatnonzero(self.playing[part])
            if len(places) == len(rngs):
                return self._policy.act(observations, rngs=rngs), rngs
            steps = self.taken[part]
            if len(places):
                acted = self._policy.act(_part(observations, places), rngs=[rngs[place] for place in places])
                for place, step in zip(places, acted, strict=True):
                    steps[place] = step
            return steps, rngs


def _part(observations: Any, part: slice | NDArray[np.int64]) -> Any:
    """Return the observations of some of the environments."""
    if isinstance(observations, Mapping):
        return {key: texts[part] for key, texts in observations.items()}
    return observations[part]
