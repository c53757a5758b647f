"""`LangEnv`: the one base class of every environment, and the contract it keeps.

The base class turns tokens into text, guards the command set, builds `info`, and captures and restores state.
A family implements the few methods under "Methods of a family", and never handles tokens.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import importlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Generic, NamedTuple, SupportsFloat, TypedDict, TypeVar

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from lang_envs.arguments import check_flags, finite_reward, is_number
from lang_envs.errors import ActionError, LangEnvsError, RenderModeError, RewardError, StateError
from lang_envs.spaces import TextObservation, TextSpace, TokenSequence
from lang_envs.tokenizers import Tokenizer, resolve_tokenizer

__all__ = [
    "MAX_ACTION_LENGTH",
    "MAX_LIST_LENGTH",
    "MAX_OBSERVATION_LENGTH",
    "LangEnv",
    "Outcome",
    "SharedOptions",
    "Tokens",
    "language_env",
    "oracle",
    "room_for_actions",
    "room_for_list",
]

Tokens = NDArray[np.integer[Any]]

MAX_ACTION_LENGTH = 96
"""Default size of action spaces, in tokens; equal in all families: a model trained on one can act in another."""
MAX_OBSERVATION_LENGTH = 1024
"""Default size of observation spaces, in characters."""
MAX_LIST_LENGTH = 16_384
"""Default bound on the characters of the JSON list of admissible actions."""

_ORDER_KEY_LENGTH = 16  # bytes
World = TypeVar("World")


class Outcome(NamedTuple):
    """Effect of one action (or of one unit of time) on the world.

    Attributes:
        reward: Reward of the step, before `invalid_action_reward`.
        terminated: Whether the task ended by success or failure.
        truncated: Whether the task's time limit was reached.
        success: Whether the goal is reached.
    """

    reward: float
    terminated: bool
    truncated: bool
    success: bool


class SharedOptions(TypedDict, total=False):
    """Arguments of `LangEnv` that every family takes and passes on; documented there."""

    tokenizer: str | Tokenizer
    max_action_length: int
    invalid_action_reward: float
    oracle_info: bool
    shuffle_actions: bool
    render_mode: str | None


class LangEnv(gym.Env[str, Tokens], ABC, Generic[World]):
    """A sequential decision task in words: `str` observations, token-sequence actions.

    Contract (in full: docs, "Environment contract"):

    * `info` of every reset and step holds `admissible_actions` (a fresh `list[str]`, or None where the action space is
      open), `invalid_action` and `success` (bool), and the fields of the family.
    * A text outside the command set never raises and never becomes another action: the world does not change, one
      unit of time passes with its ordinary reward plus `invalid_action_reward`, and `info["invalid_action"]` is True.
    * A step after the end of an episode keeps the state: reward 0, the same observation and flags, one warning.
    * `get_state` / `set_state` capture and restore world, counters and random generator.
    * Two additions on request, for every family: `oracle_info` and `shuffle_actions`.
    * `metadata["actions"]` is the kind of action: `"listed"` (one of a list), `"text"` (any text) or `"code"` (any
      text, executed as a program); an environment without the key lists its actions.

    Args:
        tokenizer: `"byte"`, a Hugging Face id or folder, or a `Tokenizer`.
        max_action_length: Largest number of action tokens, end token included.
        max_observation_length: Largest number of characters of an observation.
        invalid_action_reward: Reward added to that of a step whose text is outside the command set.
        oracle_info: Put `oracle_action` into `info`: the text an optimal policy would choose now, None after the end.
        shuffle_actions: List the admissible actions in an order that is drawn at every reset, instead of the family's.
        render_mode: One of `metadata["render_modes"]`, or None.

    Raises:
        TokenizerError: If the tokenizer is unknown.
        ValueError: If the render mode is unknown, or `invalid_action_reward` is not a finite number.
        TypeError: If a flag is not a bool.
    """

    metadata: dict[str, Any] = {"render_modes": [], "render_fps": 2}  # noqa: RUF012 - gymnasium's
    steps_elsewhere: bool = False
    """Whether a step waits for other processes, and may run in another thread, while a model works."""
    max_list_length: int = MAX_LIST_LENGTH
    """Bound on the characters of the JSON list of admissible actions; an environment with longer lists sets its own."""
    renderer: str = ""
    """Module of the drawings, with one function for each render mode, such as `ansi(env)`; imported by the first."""
    _world: World = None  # type: ignore[assignment]
    """State of the family; a family that keeps it elsewhere overrides `_get_world` and `_set_world`."""

    def __init__(
        self,
        *,
        tokenizer: str | Tokenizer = "byte",
        max_action_length: int = MAX_ACTION_LENGTH,
        max_observation_length: int = MAX_OBSERVATION_LENGTH,
        invalid_action_reward: float = 0.0,
        oracle_info: bool = False,
        shuffle_actions: bool = False,
        render_mode: str | None = None,
    ) -> None:
        modes = self.metadata.get("render_modes", [])
        if render_mode is not None and render_mode not in modes:
            raise RenderModeError(f"Expected render_mode to be None or one of {modes}; got {render_mode!r}.")
        self.observation_space: TextSpace = TextSpace(max_observation_length)
        self.action_space: TokenSequence = TokenSequence(resolve_tokenizer(tokenizer), max_action_length)
        if not is_number(invalid_action_reward):
            raise ValueError(f"Expected invalid_action_reward to be a finite number; got {invalid_action_reward!r}.")
        check_flags(oracle_info=oracle_info, shuffle_actions=shuffle_actions)
        self.invalid_action_reward = float(invalid_action_reward)
        self.oracle_info = oracle_info
        self.shuffle_actions = shuffle_actions
        self.render_mode = render_mode
        self._last: Outcome | None = None  # None until the first reset
        self._order_key: bytes | None = None  # None unless the actions of this episode are shuffled
        self._ranks: dict[str, bytes] = {}  # of the texts listed with this key
        self.last_action: str | None = None
        """Text of the last action; None after a reset or an unfinished sentence. For rendering."""
        self.episode_return: float = 0.0
        """Undiscounted sum of the rewards of this episode. For rendering."""

    # ------------------------------------------------------------------ methods of a family

    @abstractmethod
    def _restart(self, options: Mapping[str, Any]) -> None:
        """Put the world into its start state; randomness from `self.np_random` only."""

    @abstractmethod
    def _describe(self) -> str:
        """Return the observation: the current state in words."""

    @abstractmethod
    def _listed_actions(self) -> list[str] | None:
        """Return a fresh list of the admissible texts in the family's order; None where the action space is open."""

    @abstractmethod
    def _execute(self, text: str) -> Outcome | None:
        """Execute `text`, or return None, the world untouched, if it is outside the command set."""

    @abstractmethod
    def _pass_time(self) -> Outcome:
        """Let one unit of time pass without an action, the cost of an invalid one; nothing is drawn or moved."""

    @abstractmethod
    def _family_info(self, *, acted: bool) -> dict[str, Any]:
        """Return the family's own fields of `info`, fresh objects.

        Args:
            acted: Whether `info` describes an action; False at a reset and after the end of an episode.
        """

    def _get_world(self) -> World:
        """Return everything that distinguishes this world from a fresh one, as plain picklable data.

        By default this is `_world`.

        Raises:
            StateError: If there is no `_world`: without this error a copy would silently miss the world.
        """
        if not self.has_state:
            raise StateError(
                f"Expected {type(self).__name__} to keep its world in self._world; got None. Fix: keep it there, or "
                "override _get_world() and _set_world()."
            )
        return self._world

    def _set_world(self, world: World) -> None:
        """Restore the state of `_get_world`; after an error `set_state` puts every attribute back."""
        self._world = world

    def _configuration(self) -> dict[str, Any]:
        """Return the constructor arguments that shape the world; a state fits only an environment with equal ones."""
        return {}

    def oracle_action(self) -> str:
        """Return the text an optimal policy would choose now.

        Raises:
            NotImplementedError: If the family has no oracle.
        """
        raise NotImplementedError(f"{type(self).__name__} has no oracle. Fix: use an id that has one.")

    # ------------------------------------------------------------------ public methods

    def render(self) -> Any:
        """Return a text (`"ansi"`), an RGB image (`"rgb_array"`, uint8, (height, width, 3)), or None without a mode."""
        if self.render_mode is None:
            return None
        if not self.renderer:
            return super().render()
        return getattr(importlib.import_module(self.renderer), self.render_mode)(self)

    def admissible_actions(self) -> list[str] | None:
        """Return the texts listed as possible now, a fresh list; None where the action space is open."""
        actions = self._listed_actions()
        if actions is None or self._order_key is None:
            return actions
        return sorted(actions, key=self._rank)

    def _rank(self, text: str) -> bytes:
        """Return the rank of a text in this episode's order: a keyed hash, so that it needs no list of all texts."""
        if text not in self._ranks:
            key = self._order_key or b""
            self._ranks[text] = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), key=key).digest()
        return self._ranks[text]

    # ------------------------------------------------------------------ gymnasium's interface

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start an episode.

        Args:
            seed: Seed of `self.np_random`; the same seed and actions give the same trajectory.
            options: Options that `_restart` reads; the environments registered here have none.

        Returns:
            Observation and info.
        """
        super().reset(seed=seed)
        self._restart(options or {})
        self._order_key = self.np_random.bytes(_ORDER_KEY_LENGTH) if self.shuffle_actions else None
        self._ranks = {}
        self._last = Outcome(0.0, False, False, False)
        self.last_action, self.episode_return = None, 0.0
        info = self._info(invalid=False, acted=False)
        return self._observation(info), info

    def step(self, action: Tokens) -> tuple[str, SupportsFloat, bool, bool, dict[str, Any]]:
        """Execute a token sequence; see `step_text`.

        Args:
            action: Token ids of `self.action_space`, shape `(max_length,)`. An unfinished sentence is invalid.

        Raises:
            ActionError: If the action's type, shape or range is wrong.
            ResetNeeded: If it is called before the first reset.
        """
        return self.step_text(self.action_space.decode_finished(action))

    def step_text(self, text: str | None) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Execute an action given as text; None is an unfinished, therefore invalid, sentence.

        Returns:
            Observation, reward, terminated, truncated, info.

        Raises:
            ActionError: If `text` is neither a `str` nor None.
            ResetNeeded: If it is called before the first reset.
        """
        if text is not None and not isinstance(text, str):
            raise ActionError(f"Expected the action's text as a str; got {type(text).__name__}. Fix: pass a str.")
        if self._last is None:
            raise gym.error.ResetNeeded("Expected reset() before step(). Fix: obs, info = env.reset(seed=0).")
        if self._last.terminated or self._last.truncated:
            return self._stay_over(self._last)
        outcome = None if text is None else self._execute(text)
        invalid = outcome is None
        if outcome is None:
            outcome = self._checked("_pass_time", self._pass_time())
            outcome = outcome._replace(reward=outcome.reward + self.invalid_action_reward)
        else:
            outcome = self._checked("_execute", outcome)
        self._last = outcome
        self.last_action = text
        self.episode_return += outcome.reward
        info = self._info(invalid=invalid, acted=True)
        return self._observation(info), outcome.reward, outcome.terminated, outcome.truncated, info

    def _checked(self, method: str, outcome: object) -> Outcome:
        """Return the outcome of a family's method in Python's types: numpy's scalars are no state."""
        if isinstance(outcome, Outcome):
            with contextlib.suppress(RewardError):
                return Outcome(finite_reward(outcome.reward, self), *map(bool, outcome[1:]))
        raise LangEnvsError(
            f"Expected {type(self).__name__}.{method} to return an Outcome with a finite reward; got {outcome!r:.200}. "
            "Fix: return lang_envs.core.Outcome(reward, terminated, truncated, success)."
        )

    def _stay_over(self, last: Outcome) -> tuple[str, float, bool, bool, dict[str, Any]]:
        gym.logger.warn("step() after the end of the episode changes nothing. Fix: call reset() when it ends.")
        info = self._info(invalid=False, acted=False)
        return self._observation(info), 0.0, last.terminated, last.truncated, info

    def _observation(self, info: Mapping[str, Any]) -> TextObservation:
        text = self._describe()
        if not isinstance(text, str) or len(text) > self.observation_space.max_length:
            got, fix = repr(text), "return a str"
            if isinstance(text, str):
                got, fix = f"{len(text)} characters", "raise max_observation_length"
            raise LangEnvsError(
                f"Expected {type(self).__name__} to describe itself in a str of at most "
                f"{self.observation_space.max_length} characters; got {got:.80}. Fix: {fix}."
            )
        return TextObservation(text, info["admissible_actions"])

    def _info(self, *, invalid: bool, acted: bool) -> dict[str, Any]:
        last = self._last or Outcome(0.0, False, False, False)
        info = {
            "admissible_actions": self.admissible_actions(),
            "invalid_action": invalid,
            "success": last.success,
            **self._family_info(acted=acted),
        }
        if self.oracle_info:
            info["oracle_action"] = None if last.terminated or last.truncated else self.oracle_action()
        return info

    # ------------------------------------------------------------------ state

    @property
    def has_state(self) -> bool:
        """Whether `get_state` finds the world, in `_world` or by an own `_get_world`; else it raises."""
        return self._last is None or self._world is not None or type(self)._get_world is not LangEnv._get_world

    def get_state(self) -> dict[str, Any]:
        """Return everything needed to continue this episode elsewhere, as plain picklable data."""
        state = {
            "env": self._identity(),
            "last": None if self._last is None else tuple(self._last),
            "last_action": self.last_action,
            "episode_return": self.episode_return,
            "order_key": self._order_key,
            "np_random": copy.deepcopy(self.np_random.bit_generator.state),
            "world": copy.deepcopy(self._get_world()),
        }
        return {**state, "digest": _digest(state)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state of `get_state`; an error leaves the environment as it was.

        Changes are noticed by the entry `digest`; without it, a program may change a state and restore it.

        Raises:
            StateError: If the state belongs to another environment, is damaged, or is not a state.
        """
        before = dict(self.__dict__)
        try:
            self._restore(state)
        except Exception as error:  # damage can raise anything, in any depth
            self.__dict__.clear()
            self.__dict__.update(before)
            if isinstance(error, StateError):
                raise
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise StateError(
                f"Expected an intact state; got a damaged one ({reason}). Fix: use get_state()."
            ) from error

    def _restore(self, state: Mapping[str, Any]) -> None:
        expected = {"env", "last", "last_action", "episode_return", "order_key", "np_random", "world", "digest"}
        if not isinstance(state, Mapping) or {*state, "digest"} != expected:
            raise StateError(
                f"Expected a state with keys {sorted(expected)}; got another object. Fix: use get_state()."
            )
        if state["env"] != self._identity():
            raise StateError(
                f"Expected a state of {self._identity()!r}; got one of {state['env']!r}. "
                "Fix: make the environment with the id and arguments it was saved with."
            )
        if "digest" in state and state["digest"] != _digest({key: state[key] for key in state if key != "digest"}):
            raise ValueError("its digest differs")
        kind = getattr(np.random, state["np_random"]["bit_generator"])
        if not issubclass(kind, np.random.BitGenerator):
            raise TypeError("its generator is none")
        generator = np.random.Generator(kind())
        generator.bit_generator.state = copy.deepcopy(state["np_random"])
        self._set_world(copy.deepcopy(state["world"]))
        self.np_random = generator
        self._order_key, self._ranks = state["order_key"], {}
        self._last = None if state["last"] is None else Outcome(*state["last"])
        self.last_action, self.episode_return = state["last_action"], state["episode_return"]
        if "digest" not in state:  # a world that a program put in
            float(self.episode_return)
            self._describe()

    def _identity(self) -> str:
        name = self.spec.id if self.spec is not None else type(self).__name__
        shared = {"invalid_action_reward": self.invalid_action_reward, "shuffle_actions": self.shuffle_actions}
        return f"{name} {self._configuration() | shared}"


def language_env(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """Return the language environment inside wrappers: the innermost one of text observations and the same actions.

    It is `env.unwrapped` where that has such spaces, and else the wrapper that translates an environment without them,
    or that changes token sequences to others.
    """
    layers = [env]
    while isinstance(layers[-1], gym.Wrapper):
        layers.append(layers[-1].env)

    def is_language_env(layer: Any) -> bool:
        spaces = getattr(layer, "observation_space", None), getattr(layer, "action_space", None)
        return isinstance(spaces[0], TextSpace) and isinstance(spaces[1], TokenSequence)

    language_envs = [layer for layer in layers if is_language_env(layer)]
    same_actions = [layer for layer in language_envs if layer.action_space is language_envs[0].action_space]
    return same_actions[-1] if same_actions else env.unwrapped


def oracle(env: gym.Env[Any, Any]) -> str:
    """Return the text that an optimal policy would choose now.

    Args:
        env: An environment after its first reset; it or one of its wrappers has `oracle_action()`, as every id of
            `lang_envs` has.

    Raises:
        LangEnvsError: If there is no such method.
        NotImplementedError: If it derives from `LangEnv` and its family has no oracle.
    """
    if not env.has_wrapper_attr("oracle_action"):
        raise LangEnvsError(
            f"Expected an environment with an oracle_action() method; got {env.unwrapped}. "
            "Fix: use an id that has one, or another agent."
        )
    return str(env.get_wrapper_attr("oracle_action")())


def room_for_actions(texts: Iterable[str]) -> int:
    """Return an action length in which every text fits as bytes, with an end token; at least the default."""
    return max(MAX_ACTION_LENGTH, 1 + max(len(text.encode()) for text in texts))


def room_for_list(texts: Iterable[str]) -> int:
    """Return a length in which a list of texts fits as JSON; at least the default."""
    return max(MAX_LIST_LENGTH, len(json.dumps(list(texts), ensure_ascii=False)))


def _digest(state: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical(state).encode("utf-8", "surrogatepass")).hexdigest()


def _canonical(value: object) -> str:
    """Return a text that equal plain data has in every process; of other objects, their type alone."""
    parts: Iterable[str] = ()
    if isinstance(value, Mapping):
        parts = sorted(f"{_canonical(key)}: {_canonical(item)}" for key, item in value.items())
    elif isinstance(value, set | frozenset):
        parts = sorted(map(_canonical, value))
    elif isinstance(value, tuple | list):
        parts = map(_canonical, value)
    elif isinstance(value, np.ndarray):
        parts = (str(value.dtype), str(value.shape), value.tobytes().hex())
    elif value is None or isinstance(value, str | bytes | int | float | Enum | np.generic):
        parts = (repr(value),)
    return f"{type(value).__name__}({', '.join(parts)})"
