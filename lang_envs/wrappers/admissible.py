"""Admissible actions, and earlier steps, inside the observation: for tools that pass observations only."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium as gym

from lang_envs.arguments import reward_number
from lang_envs.core import MAX_LIST_LENGTH, Tokens
from lang_envs.errors import InfoError
from lang_envs.spaces import TextSpace, TokenSequence

_CHARACTERS_PER_CHARACTER = 6
"""Maximum number of characters that one character takes in JSON."""


class EpisodeContext(NamedTuple):
    """Fields packed beside an observation, of one episode.

    Attributes:
        n_steps: Number of latest steps that are packed.
        fields: Names of fields of `info` that are packed; each must be a `str`.
        text: Text of the present observation.
        recent: Latest steps, oldest first: observation and action.
    """

    n_steps: int = 0
    fields: tuple[str, ...] = ()
    text: str = ""
    recent: tuple[tuple[str, str], ...] = ()

    @property
    def is_wanted(self) -> bool:
        """Whether there is anything to pack."""
        return self.n_steps > 0 or bool(self.fields)

    def begun(self, text: str) -> EpisodeContext:
        """Start a new episode with this observation."""
        return self._replace(text=str(text), recent=())

    def after(self, action: str, text: str) -> EpisodeContext:
        """Append a step: the action and the next observation."""
        recent = (*self.recent, (self.text, action))[-self.n_steps :] if self.n_steps else ()
        return self._replace(text=str(text), recent=recent)

    def pack(self, info: Mapping[str, Any]) -> str:
        """Return the steps and the fields as JSON.

        Raises:
            InfoError: If `info` lacks one of the fields, or a field is not a text.
        """
        for name in self.fields:
            if not isinstance(info.get(name), str):
                raise InfoError(
                    f"Expected info[{name!r}] to be a str in every reset and step; got keys {sorted(info)}. "
                    "Fix: leave it out of fields, or use a prompt that does not need it."
                )
        packed = {"history": self.recent, "fields": {name: info[name] for name in self.fields}}
        return json.dumps(packed, ensure_ascii=False)


def admissible_space(
    text: TextSpace,
    max_list_length: int = MAX_LIST_LENGTH,
    context: EpisodeContext = EpisodeContext(),  # noqa: B008 - immutable
    max_action_length: int = 0,
) -> gym.spaces.Dict:
    """Return the space `{"text": ..., "admissible_actions": JSON list}`, with `"context"` if wanted.

    Args:
        text: Space of the observation.
        max_list_length: Maximum number of characters of the list.
        context: Fields to pack.
        max_action_length: Maximum number of characters of an action.
    """
    spaces: dict[str, gym.Space[Any]] = {"text": text, "admissible_actions": TextSpace(max_list_length)}
    if context.is_wanted:
        texts = context.n_steps + len(context.fields)
        longest = _CHARACTERS_PER_CHARACTER * (texts * text.max_length + context.n_steps * max_action_length)
        spaces["context"] = TextSpace(longest + MAX_LIST_LENGTH)
    return gym.spaces.Dict(spaces)


def admissible_observation(text: str, actions: Sequence[str] | None, context: str | None = None) -> dict[str, str]:
    """Return an element of `admissible_space`; an open action space is the JSON `null`.

    Raises:
        InfoError: If `actions` is a single text, or no list at all.
    """
    if isinstance(actions, str | bytes) or not isinstance(actions, Iterable | None):
        raise InfoError(
            f"Expected admissible_actions as a list of str, or None; got {actions!r:.80}. "
            "Fix: a list, also of a single action."
        )
    listed = None if actions is None else [str(action) for action in actions]
    packed = {} if context is None else {"context": context}
    return {"text": str(text), "admissible_actions": json.dumps(listed, ensure_ascii=False), **packed}


def admissible_actions_of(info: Mapping[str, Any]) -> Any:
    """Return the listed actions of a reset or step, None where any text is one.

    Raises:
        InfoError: If `info` has no `admissible_actions`.
    """
    if "admissible_actions" not in info:
        raise InfoError(
            f"Expected info['admissible_actions'] in every reset and step; got keys {sorted(info)}. "
            "Fix: let the environment return it (None where any text is allowed)."
        )
    return info["admissible_actions"]


def observation_with_actions(
    text: str, info: Mapping[str, Any], context: EpisodeContext, max_list_length: int
) -> dict[str, str]:
    """Return the element of `admissible_space` for a reset or step.

    Args:
        text: Text of the observation.
        info: Info of the reset or step.
        context: Context of the episode.
        max_list_length: Maximum number of characters of the list.

    Raises:
        InfoError: If `info` lacks the list or a field of the context, or the list is longer than `max_list_length`.
    """
    packed = context.pack(info) if context.is_wanted else None
    observation = admissible_observation(text, admissible_actions_of(info), packed)
    length = len(observation["admissible_actions"])
    if length > max_list_length:
        raise InfoError(
            f"Expected a list of at most {max_list_length} characters as JSON; got {length}. "
            f"Fix: AdmissibleObservation(env, max_list_length={length}) or more, or an attribute of that name in the "
            "environment's class."
        )
    return observation


def text_of_action(space: Any, action: Any) -> str:
    """Return the text of an action; an action that the space could not hold has none."""
    text: str | None = space.decode_finished(action)
    return "(too long)" if text is None else text


def mark_success(info: dict[str, Any]) -> None:
    """Repeat `success` as `is_success`, the key of SB3's success rates."""
    if "success" in info:
        info.setdefault("is_success", info["success"])


class AdmissibleObservation(gym.Wrapper[Any, Tokens, Any, Tokens], gym.utils.RecordConstructorArgs):
    """Observation becomes `{"text": str, "admissible_actions": JSON list of str}`, and `"context"` if asked for.

    Stock tools (SB3's `evaluate_policy`, `EvalCallback`) hand a policy observations without `info`. A `str` subclass
    that carries the list is lost in `SubprocVecEnv`; a `Dict` of two texts survives everywhere. JSON, because
    actions may hold any character. `info["success"]` is repeated as `is_success` for SB3's success rates.

    Args:
        env: An environment with `TextSpace` observations and `info["admissible_actions"]`.
        max_list_length: Largest number of characters of the JSON list. By default `max_list_length` of the environment:
            16,384, or as many as its longest list has.
        history: Number of latest steps of the episode that are packed into `"context"`, for prompts that show them.
        fields: Fields of `info` that are packed there too, such as `("prefix", "suffix")`.

    Raises:
        TypeError: If the observations are not text, `history` comes without a `TokenSequence` of actions, `fields` is a
            text, or a reward is no single number (`RewardError`).
        InfoError: If `info` lacks `admissible_actions` or one of the fields, a field is not a text, or a list is longer
            than `max_list_length`.
    """

    def __init__(
        self,
        env: gym.Env[Any, Tokens],
        max_list_length: int | None = None,
        history: int = 0,
        fields: Sequence[str] = (),
    ) -> None:
        gym.utils.RecordConstructorArgs.__init__(
            self, max_list_length=max_list_length, history=history, fields=tuple(fields)
        )
        gym.Wrapper.__init__(self, env)
        if isinstance(history, bool) or not isinstance(history, int) or history < 0:
            raise TypeError(f"Expected history to be a number of steps, 0 or more; got {history!r}.")
        if history and not isinstance(env.action_space, TokenSequence):
            raise TypeError(
                f"Expected an environment with a TokenSequence action space for history; got {env.action_space}. "
                "Fix: put this wrapper inside those that change actions."
            )
        if isinstance(fields, str):
            raise TypeError(f"Expected fields as a sequence of names; got {fields!r}. Fix: fields=({fields!r},).")
        self.episode_context = EpisodeContext(history, tuple(fields))
        if not isinstance(env.observation_space, TextSpace):
            raise TypeError(
                f"Expected an environment with TextSpace observations; got {env.observation_space}. "
                "Fix: wrap a lang_envs environment, or give yours a lang_envs.TextSpace."
            )
        if max_list_length is None:
            has_own = env.has_wrapper_attr("max_list_length")
            max_list_length = env.get_wrapper_attr("max_list_length") if has_own else MAX_LIST_LENGTH
        self._max_list_length = max_list_length
        longest = getattr(env.action_space, "max_length", 0)
        self.observation_space = admissible_space(env.observation_space, max_list_length, self.episode_context, longest)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, str], dict[str, Any]]:
        """Start an episode."""
        text, info = self.env.reset(seed=seed, options=options)
        self.episode_context = self.episode_context.begun(text)
        return self._observation(text, info), info

    def step(self, action: Tokens) -> tuple[dict[str, str], float, bool, bool, dict[str, Any]]:
        """Make one step of the wrapped environment."""
        text, reward, terminated, truncated, info = self.env.step(action)
        if self.episode_context.n_steps:
            self.episode_context = self.episode_context.after(text_of_action(self.env.action_space, action), text)
        mark_success(info)
        reward = reward_number(reward, self.env.unwrapped)
        return self._observation(text, info), reward, terminated, truncated, info

    def _observation(self, text: str, info: dict[str, Any]) -> dict[str, str]:
        return observation_with_actions(text, info, self.episode_context, self._max_list_length)
