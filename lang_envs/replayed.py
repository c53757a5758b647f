"""`ReplayedEnv`: worlds of other packages behind the contract of `LangEnv`. `GymnasiumEnv`: those of Gymnasium."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator

from lang_envs.arguments import check_integer
from lang_envs.core import LangEnv, Outcome
from lang_envs.errors import LangEnvsError, StateError

__all__ = ["GymnasiumEnv", "Replay", "ReplayedEnv"]


class Replay(NamedTuple):
    """State of a world that can only be played.

    Attributes:
        seed: Seed of the episode.
        actions: Texts of its actions; None where time passed without one.
        text: Observation after them.
    """

    seed: int
    actions: tuple[str | None, ...]
    text: str


class ReplayedEnv(LangEnv[Replay]):
    """A world of another package, which can neither be copied nor saved: it is played again to the same point.

    A state is the seed of the episode and its actions, so that restoring one takes as long as its episode has taken. It
    is right where the world depends on these alone; the observation after them is compared.

    A subclass implements `_make_world`, `_begin`, `_act`, `_wait`, and of `LangEnv` the methods `_describe`,
    `_listed_actions` and `_family_info`. It sets its options before `super().__init__()`, which makes the world.

    Attributes:
        world: The world, as `_make_world` made it; not part of copies, which make their own.
    """

    world: Any

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._seed: int | None = None
        self._actions: list[str | None] = []
        self.world = self._make_world()

    @abstractmethod
    def _make_world(self) -> Any:
        """Return a new world of the package."""

    @abstractmethod
    def _begin(self, seed: int) -> None:
        """Begin an episode of the world that depends on the seed alone."""

    @abstractmethod
    def _act(self, text: str) -> Outcome:
        """Take an action of the command set."""

    @abstractmethod
    def _wait(self) -> Outcome:
        """Let one unit of time pass without an action."""

    def _restart(self, options: Mapping[str, Any]) -> None:
        self._replay(int(self.np_random.integers(2**31)), ())

    def _execute(self, text: str) -> Outcome | None:
        listed = self._listed_actions()
        if listed is not None and text not in listed:
            return None
        self._actions.append(text)
        return self._act(text)

    def _pass_time(self) -> Outcome:
        self._actions.append(None)
        return self._wait()

    def _replay(self, seed: int, actions: Sequence[str | None]) -> None:
        self._seed, self._actions = seed, list(actions)
        self._begin(seed)
        for text in actions:
            self._wait() if text is None else self._act(text)

    def _get_world(self) -> Replay | None:  # type: ignore[override]  # None before the first reset
        return None if self._seed is None else Replay(self._seed, tuple(self._actions), self._describe())

    def _set_world(self, world: Replay | None) -> None:
        before = self._seed, self._actions
        try:
            if world is None:
                self._seed, self._actions = None, []
                return
            self._replay(world.seed, world.actions)
            if self._describe() != world.text:
                raise StateError(
                    f"Expected the observation of the state, {world.text!r:.80}, after its actions; got "
                    f"{self._describe()!r:.80}. Fix: the version of the package that it was saved with."
                )
        except BaseException:
            if before[0] is not None:
                self._replay(before[0], before[1])
            raise

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "world": None}

    def __setstate__(self, attributes: dict[str, Any]) -> None:
        self.__dict__.update(attributes)
        self.world = self._make_world()
        if self._seed is not None:
            self._replay(self._seed, self._actions)

    def close(self) -> None:
        """Close the world."""
        if hasattr(self.world, "close"):
            self.world.close()


def _function(value: Any) -> Any:
    return load_env_creator(value) if isinstance(value, str) else value


Actions = Mapping[str, Any] | Sequence[str]
"""Actions of an environment by their texts, or the texts of one that takes texts itself."""


class GymnasiumEnv(ReplayedEnv):
    """An environment of Gymnasium in words.

        env = GymnasiumEnv("FrozenLake-v1", ["left", "down", "right", "up"], lambda field, info: f"Field {field}. Go")

    Args:
        env: Id for `gym.make`, or a function that makes the environment.
        actions: Actions of the environment by their texts; texts alone, where it takes texts or numbers of their order;
            a function from observation and `info` to either; None where any text is an action.
        describe: Function from observation and `info` to the text; None where observations are texts.
        succeeds: Function from reward, `terminated` and `info` of a step to whether the goal is reached; by default an
            end with a positive reward, or `info["success"]` where there is one. A function may be given by its name,
            `"module:name"`, so that a spec can be written as JSON.
        max_steps: Time limit. Invalid texts count; they do not reach the environment.
        env_kwargs: Arguments for `gym.make` or the function.
        **options: Arguments of `LangEnv`.
    """

    def __init__(
        self,
        env: str | Callable[..., gym.Env[Any, Any]],
        actions: Actions | Callable[[Any, Mapping[str, Any]], Actions] | str | None = None,
        describe: Callable[[Any, Mapping[str, Any]], str] | str | None = None,
        *,
        succeeds: Callable[[float, bool, Mapping[str, Any]], bool] | str | None = None,
        max_steps: int = 1_000,
        env_kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        check_integer("max_steps", max_steps, 1)
        self.env = env
        self.actions, self.describe, self.succeeds = map(_function, (actions, describe, succeeds))
        self.max_steps, self.env_kwargs = max_steps, dict(env_kwargs or {})
        self._n_steps = 0
        self._observed: tuple[Any, Mapping[str, Any]] = (None, {})
        super().__init__(**options)

    def _make_world(self) -> gym.Env[Any, Any]:
        return gym.make(self.env, **self.env_kwargs) if isinstance(self.env, str) else self.env(**self.env_kwargs)

    def _begin(self, seed: int) -> None:
        self._observed, self._n_steps = self.world.reset(seed=seed), 0

    def _available(self) -> Actions | None:
        available: Actions | None = self.actions(*self._observed) if callable(self.actions) else self.actions
        return available

    def _act(self, text: str) -> Outcome:
        available = self._available()
        action: Any = text
        if isinstance(available, Mapping):
            action = available[text]
        elif available is not None and isinstance(self.world.action_space, gym.spaces.Discrete):
            action = list(available).index(text) + int(self.world.action_space.start)
        observation, reward, terminated, truncated, info = self.world.step(action)
        self._observed, self._n_steps = (observation, info), self._n_steps + 1
        if self.succeeds is not None:
            success = self.succeeds(float(reward), bool(terminated), info)
        else:
            success = bool(info.get("success", reward > 0)) and bool(terminated)
        cut = (bool(truncated) or self._n_steps >= self.max_steps) and not terminated
        return Outcome(reward, bool(terminated), cut, success)

    def _wait(self) -> Outcome:
        self._n_steps += 1
        return Outcome(0.0, False, self._n_steps >= self.max_steps, False)

    def _describe(self) -> str:
        observation, info = self._observed
        text = observation if self.describe is None else self.describe(observation, info)
        if not isinstance(text, str):
            raise LangEnvsError(
                f"Expected observations that are texts; got {observation!r:.80}. Fix: describe=, a function from "
                "observation and info to the text."
            )
        return text

    def _listed_actions(self) -> list[str] | None:
        available = self._available()
        return None if available is None else list(available)

    def _family_info(self, *, acted: bool) -> dict[str, Any]:
        return {}

    def _configuration(self) -> dict[str, Any]:
        name = self.env if isinstance(self.env, str) else getattr(self.env, "__qualname__", repr(self.env))
        return {"env": name, "max_steps": self.max_steps, "env_kwargs": self.env_kwargs}
