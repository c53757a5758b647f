"""`Turns`: acting for groups of environments in a fixed order, so that some step while the model acts for others."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn

from poad_sb3.env_groups import EnvGroups, gather
from poad_sb3.policies import LLMPolicy
from poad_sb3.rollouts import ActionStep
from poad_sb3.stopwatch import Stopwatch

__all__ = ["Turns"]


class _Groups(Protocol):
    slices: list[slice]

    def begin(self, number: int, actions: NDArray[np.int64]) -> None: ...

    def wait(self, number: int) -> VecEnvStepReturn: ...


class _OneGroup:
    """An ordinary vector of environments, which steps while it is waited for."""

    def __init__(self, env: VecEnv) -> None:
        self._env = env
        self.slices = [slice(0, env.num_envs)]

    def begin(self, number: int, actions: NDArray[np.int64]) -> None:
        self._actions = actions

    def wait(self, number: int) -> VecEnvStepReturn:
        return self._env.step(self._actions)


class _Choice(NamedTuple):
    """Actions of a group that are not taken yet, and what its generators are once they are."""

    steps: list[ActionStep]
    rngs: list[np.random.Generator]


class Turns:
    """Steps of all environments of an algorithm, group by group.

    With groups A and B a step is: A's environments begin; the model acts for B; B's begin; A's are waited for; the
    model acts for A's *next* step, while B's are stepping; B's are waited for. So between two steps nothing is under
    way, whatever was faster, and all that happens there (callbacks, saves, the end of a rollout) is as with one group.

    What was chosen ahead counts only when it is taken: until then the generators are as they were, and whoever stops
    between two steps leaves no trace of it.

    Args:
        env: The environments; one group, unless they are an `EnvGroups`.
        policy: What acts.
        watch: What acting and waiting are timed by.

    Attributes:
        taken: The actions of the last step, in the order of the environments.
    """

    def __init__(self, env: VecEnv, policy: LLMPolicy, watch: Stopwatch) -> None:
        self._groups: _Groups = env if isinstance(env, EnvGroups) else _OneGroup(env)
        self._policy, self._watch = policy, watch
        self._chosen: list[_Choice | None] = [None] * len(self._groups.slices)
        self.taken: list[ActionStep] = []

    def choose(self, observations: Any) -> None:  # noqa: ANN401 - as in LLMPolicy.act
        """Choose for the first group, unless that was done ahead; nothing is stepping yet."""
        if self._chosen[0] is None:
            self._chosen[0] = self._choose(0, _part(observations, self._groups.slices[0]))

    def step(self, observations: Any, *, ahead: bool) -> VecEnvStepReturn:  # noqa: ANN401 - as in LLMPolicy.act
        """One step of every environment.

        Args:
            observations: Of all environments.
            ahead: Whether another step follows, that may be chosen for already.
        """
        slices, chosen = self._groups.slices, self._chosen
        self.taken, self._chosen = [], [None] * len(slices)
        for number, part in enumerate(slices):
            self._take(number, chosen[number] or self._choose(number, _part(observations, part)))
        results = []
        for number in range(len(slices)):
            with self._watch.timing("env"):
                results.append(self._groups.wait(number))
            # The last group has arrived: the step is whole, and comes first.
            if ahead and number < len(slices) - 1:
                self._chosen[number] = self._choose(number, results[-1][0])
        return results[0] if len(results) == 1 else gather(results)

    def _choose(self, number: int, observations: Any) -> _Choice:  # noqa: ANN401 - as in LLMPolicy.act
        part = self._groups.slices[number]
        rngs = copy.deepcopy(self._policy.rngs_of(part.stop)[part])
        with self._watch.timing("acting"):
            return _Choice(self._policy.act(observations, rngs=rngs), rngs)

    def _take(self, number: int, choice: _Choice) -> None:
        self._policy.rollout_rngs[self._groups.slices[number]] = choice.rngs
        self.taken += choice.steps
        self._groups.begin(number, np.stack([step.env_action for step in choice.steps]))


def _part(observations: Any, part: slice) -> Any:  # noqa: ANN401 - mappings of arrays, or arrays
    """Observations of some of the environments."""
    if isinstance(observations, Mapping):
        return {key: texts[part] for key, texts in observations.items()}
    return observations[part]
