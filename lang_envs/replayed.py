"""`ReplayedEnv`: worlds of other packages behind the contract of `LangEnv`. `GymnasiumEnv`: those of Gymnasium."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator

from lang_envs.arguments import check_integer, finite_reward
from lang_envs.core import LangEnv, Outcome
from lang_envs.errors import LangEnvsError, StateError

__all__ = ["GymnasiumEnv", "Replay", "ReplayedEnv"]


MAX_TEXT_LENGTH = 4_097
"""Largest number of action tokens where any text is an action, end token included."""


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
    is right where the world depends on these alone, and where everything that actions change is set in `_begin`. The
    observation after a replay is compared.

    A subclass implements `_make_world`, `_begin`, `_act`, `_wait`, and of `LangEnv` the methods `_describe`,
    `_listed_actions` and `_family_info`. It sets its options before `super().__init__()`, which makes the world, and
    names those that shape it in `_configuration`.

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
        outcome = self._act(text)
        self._actions.append(text)
        return outcome

    def _pass_time(self) -> Outcome:
        outcome = self._wait()
        self._actions.append(None)
        return outcome

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
            self._require(world.text)
        except BaseException:
            if before[0] is not None:
                self._replay(before[0], before[1])
            raise

    def _require(self, text: str) -> None:
        """Raise unless the observation after a replay is that of the state."""
        if self._describe() != text:
            raise StateError(
                f"Expected the observation of the state, {text!r:.80}, after its actions; got "
                f"{self._describe()!r:.80}. Fix: a world that depends on its seed and its actions alone, and the "
                "version of its package that the state is of."
            )

    def __getstate__(self) -> dict[str, Any]:
        return {"attributes": {**self.__dict__, "world": None}, "replay": self._get_world()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state["attributes"])
        self.world = self._make_world()
        if state["replay"] is not None:
            self._replay(self._seed or 0, self._actions)
            self._require(state["replay"].text)
            self.__dict__.update(state["attributes"] | {"world": self.world})

    def close(self) -> None:
        """Close the world."""
        if hasattr(self.world, "close"):
            self.world.close()


def _function(argument: str, value: Any) -> Any:
    """Return a function as it is given, or by its name."""
    if not isinstance(value, str):
        return value
    if ":" not in value:
        raise ValueError(f"Expected {argument} as a function or its name, module:name; got {value!r}.")
    return load_env_creator(value)


Actions = Mapping[str, Any] | Sequence[str]
"""Actions of an environment by their texts, or the texts of one that takes texts itself."""


def _checked_actions(actions: Actions | None, *, is_over: bool = False) -> Actions | None:
    """Return actions if their texts can be listed; at the end of an episode there may be none."""
    if actions is None:
        return None
    texts = list(actions) if isinstance(actions, Mapping | list | tuple) else [""]
    are_texts = all(isinstance(text, str) and text for text in texts)
    if not are_texts or len({*texts}) < len(texts) or not (texts or is_over):
        raise LangEnvsError(
            "Expected actions as a list or mapping of distinct texts, none of them empty; got "
            f"{actions!r:.80}. Fix: one text for each action, or None where any text is an action."
        )
    return actions


class GymnasiumEnv(ReplayedEnv):
    """An environment of Gymnasium in words.

        env = GymnasiumEnv("FrozenLake-v1", ["left", "down", "right", "up"], lambda field, info: f"Field {field}. Go")

    Args:
        env: Id for `gym.make`, or a class or function that makes the environment.
        actions: Actions of the environment by their texts; texts alone, where it takes texts or numbers of their order;
            a function from observation and `info` to either; None where any text is an action. Where a list has
            not all of the actions, use a mapping.
        describe: Function from observation and `info` to the text; None where observations are texts.
        succeeds: Function from reward, `terminated` and `info` of a step to whether the goal is reached; by default an
            end with `info["success"]` or `info["is_success"]` where there is one, else with a positive reward.
            Functions may be given by name, `"module:name"`, so that a spec can be written as JSON.
        max_steps: Time limit. Invalid texts count; they do not reach the environment or its own limit.
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
        if not isinstance(env, str) and not callable(env):
            raise TypeError(
                f"Expected an id, or a class or function that makes the environment; got {env!r:.80}, which is made "
                "already. Fix: lambda: ..."
            )
        self.env = env
        functions = {"actions": actions, "describe": describe, "succeeds": succeeds}
        self.actions, self.describe, self.succeeds = (_function(*item) for item in functions.items())
        if not callable(self.actions):
            _checked_actions(self.actions)
        if self.actions is None:
            options.setdefault("max_action_length", MAX_TEXT_LENGTH)
        self.max_steps, self.env_kwargs = max_steps, dict(env_kwargs or {})
        self._n_steps = 0
        super().__init__(**options)

    def _make_world(self) -> gym.Env[Any, Any]:
        return gym.make(self.env, **self.env_kwargs) if isinstance(self.env, str) else self.env(**self.env_kwargs)

    def _begin(self, seed: int) -> None:
        self._observe(*self.world.reset(seed=seed))
        self._n_steps = 0

    def _observe(self, observation: Any, info: Mapping[str, Any], *, is_over: bool = False) -> None:
        """Note what the environment shows, and the actions there."""
        self._observed = observation, info
        if callable(self.actions):
            self._available: Actions | None = _checked_actions(self.actions(observation, info), is_over=is_over)
        else:
            self._available = self.actions
        space, listed = self.world.action_space, self._available
        is_numbered = not isinstance(listed, Mapping) and isinstance(space, gym.spaces.Discrete)
        if listed and is_numbered and len(listed) != space.n:
            raise LangEnvsError(
                f"Expected a text for each of the {space.n} actions, in their order; got {listed!r:.80}. "
                "Fix: a mapping from the texts to the numbers of the actions."
            )

    def _act(self, text: str) -> Outcome:
        action: Any = text
        if isinstance(self._available, Mapping):
            action = self._available[text]
        elif self._available is not None and isinstance(self.world.action_space, gym.spaces.Discrete):
            action = self._available.index(text) + int(self.world.action_space.start)
        observation, paid, terminated, truncated, info = self.world.step(action)
        reward = finite_reward(paid, self.world)
        self._observe(observation, info, is_over=bool(terminated or truncated))
        self._n_steps += 1
        if self.succeeds is not None:
            success = bool(self.succeeds(reward, bool(terminated), info))
        else:
            success = bool(info.get("success", info.get("is_success", reward > 0))) and bool(terminated)
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
                f"Expected a text for every observation; got {text!r:.80}. Fix: describe=, a function from observation "
                "and info to the text."
            )
        return text

    def _listed_actions(self) -> list[str] | None:
        return None if self._available is None else list(self._available)

    def _family_info(self, *, acted: bool) -> dict[str, Any]:
        return {}

    def _configuration(self) -> dict[str, Any]:
        name = self.env if isinstance(self.env, str) else getattr(self.env, "__qualname__", type(self.env).__name__)
        return {"env": name, "max_steps": self.max_steps, "env_kwargs": self.env_kwargs}
