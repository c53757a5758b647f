"""Convert observations of an environment or a user to a policy's input: a text and its admissible actions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from lang_envs import TextObservation, TextSpace, TokenSequence
from lang_envs.arguments import reward_number
from lang_envs.core import MAX_LIST_LENGTH
from lang_envs.wrappers import AdmissibleObservation
from lang_envs.wrappers.admissible import (
    EpisodeContext,
    admissible_observation,
    admissible_space,
    mark_success,
    observation_with_actions,
    text_of_action,
)
from poad_sb3.errors import ObservationError, UnsupportedEnvError
from poad_sb3.prompts import Context, PastStep, Question
from poad_sb3.prompts.templates import ContextSpec
from poad_sb3.vec_env.rewards import guard_rewards, with_number_rewards
from poad_sb3.vec_env.workers import guard_workers

_KEYS = frozenset({"text", "admissible_actions"})
_CONTEXT = "context"


class ActionKind(StrEnum):
    """Kind of the actions of an environment; its `metadata["actions"]`."""

    LISTED = "listed"
    """One of the admissible actions."""
    TEXT = "text"
    """Any text."""
    CODE = "code"
    """Any text, executed as a program."""

    @property
    def action_sampling(self) -> str:
        """Sampling that `action_sampling="auto"` means."""
        return "trie" if self is ActionKind.LISTED else "free"

    @property
    def model(self) -> str:
        """Model that `model="auto"` means."""
        return "pocket-coder" if self is ActionKind.CODE else "pocket"


def action_kind(env: VecEnv) -> ActionKind:
    """Return the kind of actions that an environment declares; `LISTED` if it declares none.

    Raises:
        UnsupportedEnvError: If the kind is unknown.
    """
    metadata = env.get_attr("metadata", indices=[0])[0] if env.has_attr("metadata") else None
    declared = (metadata or {}).get("actions", ActionKind.LISTED)
    if declared not in list(ActionKind):
        raise UnsupportedEnvError(
            f"Expected metadata['actions'] to be one of {[str(kind) for kind in ActionKind]}; got {declared!r}. "
            "Fix: correct it in the environment's class."
        )
    return ActionKind(declared)


def episode_context(spec: ContextSpec) -> EpisodeContext:
    """Return the context that a prompt needs, as before an episode."""
    return EpisodeContext(spec.history, spec.fields)


def question_of(
    text: str, admissible_actions: Sequence[str] | None, info: Mapping[str, Any], context: EpisodeContext
) -> Question:
    """Return the question at a step of an episode that is played without SB3's vector environments.

    Args:
        text: Text of the observation.
        admissible_actions: Listed actions; None where any text is one.
        info: Info of the step; fields that the prompt shows come from here.
        context: Context of the episode.
    """
    packed = context.pack(info) if context.is_wanted else None
    return parse_observation(admissible_observation(text, admissible_actions, packed))[0][0]


def parse_observation(observation: Any) -> tuple[list[Question], bool]:
    """Return the questions in an observation, and whether it is a batch.

    Args:
        observation: Mapping with `text` and `admissible_actions` (JSON), and perhaps `context` (JSON), each a `str` or
            an array of them; or a `TextObservation`, or a sequence of them.

    Raises:
        ObservationError: If it is anything else.
    """
    if isinstance(observation, list) and observation and all(isinstance(item, Question) for item in observation):
        return observation, True  # the output of `LLMPolicy.obs_to_tensor`
    observation = _as_mapping(observation)
    if not isinstance(observation, Mapping) or set(observation) - {_CONTEXT} != _KEYS:
        got = sorted(map(str, observation)) if isinstance(observation, Mapping) else type(observation).__name__
        raise ObservationError(
            f"Expected an observation that carries its admissible actions; got {got}. Fix: pass what reset() or step() "
            "of a lang_envs environment returned, call predict(text, admissible_actions=info['admissible_actions']), "
            "or wrap the environment in lang_envs.wrappers.AdmissibleObservation."
        )
    texts, lists = (
        np.asarray(observation["text"], dtype=object),
        np.asarray(observation["admissible_actions"], dtype=object),
    )
    packed = np.asarray(observation.get(_CONTEXT, np.full(texts.shape, "null")), dtype=object)
    if not texts.shape == lists.shape == packed.shape or texts.ndim > 1:
        raise ObservationError(
            f"Expected as many lists as texts, in at most one dimension; got shapes {texts.shape}, {lists.shape} "
            f"and {packed.shape}."
        )
    if not texts.size:
        raise ObservationError("Expected at least one observation; got none. Fix: pass one text, or a batch of them.")
    triples = list(zip(*map(np.atleast_1d, (texts, lists, packed)), strict=True))
    for text, listed, context in triples:
        if not isinstance(text, str) or not isinstance(listed, str) or not isinstance(context, str):
            raise ObservationError(
                "Expected text, admissible_actions and context to be str; got "
                f"{type(text).__name__}, {type(listed).__name__}, {type(context).__name__}. "
                "Fix: use AdmissibleObservation."
            )
    questions = [Question(str(t), _parse_actions(str(a)), _parse_context(str(c))) for t, a, c in triples]
    return questions, texts.ndim == 1


def _as_mapping(observation: Any) -> Any:
    """Put the lists that observations carry beside their texts; other values are returned unchanged."""
    if isinstance(observation, TextObservation):
        return admissible_observation(observation, observation.admissible_actions)
    if _is_batch(observation) and all(isinstance(text, TextObservation) for text in observation):
        return _stacked([admissible_observation(text, text.admissible_actions) for text in observation])
    return observation


def without_lists(observation: Any) -> Any:
    """Give texts no list of actions: a policy that samples freely needs none."""
    if isinstance(observation, str):
        return TextObservation(observation)
    if _is_batch(observation) and all(isinstance(text, str) for text in observation):
        return [TextObservation(text) for text in observation]
    return observation


def _is_batch(observation: Any) -> bool:
    if isinstance(observation, np.ndarray):
        return observation.ndim == 1 and observation.size > 0
    return isinstance(observation, list | tuple) and len(observation) > 0


def _stacked(rows: Sequence[Mapping[str, str]]) -> dict[str, NDArray[np.object_]]:
    return {key: np.array([row[key] for row in rows], dtype=object) for key in (rows[0] if rows else _KEYS)}


def _parse_context(packed: str) -> Context | None:
    try:
        context = json.loads(packed)
        if context is None:
            return None
        history = tuple(PastStep(str(text), str(done)) for text, done in context["history"])
        return Context(history, tuple((str(name), str(text)) for name, text in context["fields"].items()))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ObservationError(
            f"Expected context as JSON of history and fields; got {packed[:120]!r}. "
            "Fix: use lang_envs.wrappers.AdmissibleObservation."
        ) from error


def merge_admissible(
    observation: Any,
    admissible_actions: Sequence[str] | Sequence[Sequence[str]] | None,
) -> Any:
    """Put a list given beside a text (or lists beside texts) into the observation."""
    if admissible_actions is None:
        return observation
    if isinstance(admissible_actions, str):
        raise ObservationError(
            f"Expected a list of admissible actions; got the str {admissible_actions[:80]!r}. Fix: pass a list of str."
        )
    if isinstance(observation, str) and all(isinstance(action, str) for action in admissible_actions):
        return admissible_observation(observation, [str(action) for action in admissible_actions])
    if isinstance(observation, Mapping):
        raise ObservationError(
            "Expected a text with a list of actions, or an observation that brings its own; got both. "
            "Fix: leave admissible_actions out."
        )
    is_batch = isinstance(observation, list | tuple | np.ndarray) and np.ndim(observation) == 1
    if (
        not is_batch
        or len(observation) != len(admissible_actions)
        or any(isinstance(a, str) for a in admissible_actions)
    ):
        raise ObservationError(
            "Expected a str with a list of actions, or as many texts as lists; got "
            f"{type(observation).__name__} with {len(admissible_actions)} lists. Fix: give each text its own list."
        )
    return _stacked(
        [admissible_observation(text, actions) for text, actions in zip(observation, admissible_actions, strict=True)]
    )


@lru_cache(maxsize=256)
def _parse_actions(listed: str) -> tuple[str, ...] | None:
    try:
        actions = json.loads(listed)
    except json.JSONDecodeError as error:
        raise ObservationError(
            f"Expected admissible_actions as a JSON list of strings; got {listed[:120]!r}. "
            "Fix: use lang_envs.wrappers.AdmissibleObservation."
        ) from error
    if actions is None:
        return None
    if not isinstance(actions, list) or not all(isinstance(action, str) for action in actions):
        raise ObservationError(f"Expected admissible_actions as a JSON list of strings; got {listed[:120]!r}.")
    return tuple(dict.fromkeys(actions))  # a phrase listed twice is one action


class VecAdmissibleObservation(VecEnvWrapper):
    """`AdmissibleObservation` for a vector environment that was made without it.

    Args:
        venv: Vector of environments.
        context_spec: Fields that the prompt shows beside the observation.

    Attributes:
        contexts: Context of the episode in each environment.

    Raises:
        InfoError: In a reset or step, as `AdmissibleObservation`.
    """

    def __init__(self, venv: VecEnv, context_spec: ContextSpec = ContextSpec()) -> None:  # noqa: B008 - immutable
        if not isinstance(venv.observation_space, TextSpace):
            raise UnsupportedEnvError(f"Expected TextSpace observations; got {venv.observation_space}.")
        self._action_texts: list[str] = []
        self.contexts = [episode_context(context_spec)] * venv.num_envs
        longest = getattr(venv.action_space, "max_length", 0)
        lists = venv.get_attr("max_list_length") if venv.has_attr("max_list_length") else [MAX_LIST_LENGTH]
        self._max_list_length = max(lists)
        space = admissible_space(venv.observation_space, self._max_list_length, self.contexts[0], longest)
        super().__init__(venv, observation_space=space)

    def reset(self) -> VecEnvObs:
        """Reset all environments."""
        texts = self.venv.reset()
        self.contexts = [context.begun(str(text)) for context, text in zip(self.contexts, texts, strict=True)]
        return self._observations(texts, self._reset_infos())

    def step_async(self, actions: NDArray[np.int64]) -> None:
        """Begin a step, and keep its actions as text for the history."""
        keeps = self.contexts[0].n_steps > 0
        self._action_texts = [text_of_action(self.action_space, action) for action in actions] if keeps else []
        super().step_async(actions)

    def step_wait(self) -> VecEnvStepReturn:
        """Wait for the step; where an episode ended, the list is that of the new episode."""
        texts, rewards, dones, infos = self.venv.step_wait()
        if np.ndim(rewards) != 1 or rewards.dtype.kind != "f":  # of environments in other processes
            numbers = [reward_number(reward, f"environment {n}") for n, reward in enumerate(rewards)]
            rewards = np.array(numbers, dtype=np.float32)
        fresh, fresh_texts = self._reset_infos(), [str(text) for text in np.asarray(texts, dtype=object)]
        for index, (done, info) in enumerate(zip(dones, infos, strict=True)):
            mark_success(info)
            seen = str(info["terminal_observation"] if done else fresh_texts[index])
            if self._action_texts:
                self.contexts[index] = self.contexts[index].after(self._action_texts[index], seen)
            if done:
                info["terminal_observation"] = self._observation(index, seen, info)
                self.contexts[index] = self.contexts[index].begun(fresh_texts[index])
        current = [new if done else info for done, info, new in zip(dones, infos, fresh, strict=True)]
        return self._observations(texts, current), rewards, dones, infos

    def _reset_infos(self) -> list[dict[str, Any]]:
        # Wrappers in between shadow reset_infos with empty dicts (SB3 base_vec_env.py), so ask the innermost.
        return self.venv.unwrapped.reset_infos

    def _observations(self, texts: Any, infos: Sequence[dict[str, Any]]) -> dict[str, np.ndarray]:
        return _stacked(
            [self._observation(index, text, info) for index, (text, info) in enumerate(zip(texts, infos, strict=True))]
        )

    def _observation(self, index: int, text: Any, info: dict[str, Any]) -> dict[str, str]:
        return observation_with_actions(text, info, self.contexts[index], self._max_list_length)


def wrap_language_env(
    env: gym.Env[Any, Any] | VecEnv | str,
    context_spec: ContextSpec = ContextSpec(),  # noqa: B008 - immutable
) -> gym.Env[Any, Any] | VecEnv:
    """Wrap an environment (or the id of one, or a vector of them) to return the observations that a policy needs.

    Args:
        env: Environment to wrap.
        context_spec: Fields that the policy's prompt shows beside the observation:
            `model.policy.lm.prompter.template.context_spec`.

    Raises:
        UnsupportedEnvError: If its observations are not text or its actions not token sequences.
    """
    if isinstance(env, gym.vector.VectorEnv):
        raise UnsupportedEnvError(
            f"Expected an environment or a Stable-Baselines3 VecEnv; got Gymnasium's {type(env).__name__}. "
            "Fix: stable_baselines3.common.env_util.make_vec_env(id, n_envs)."
        )
    made = gym.make(env) if isinstance(env, str) else env
    if not isinstance(made, gym.Env | VecEnv):
        raise UnsupportedEnvError(
            f"Expected an environment, the id of one, or a Stable-Baselines3 VecEnv; got {made!r:.80}. "
            "Fix: pass gym.make(id), or make_vec_env(id, n_envs)."
        )
    guard_workers(made)
    if isinstance(made, VecEnv):
        guard_rewards(made)
    else:
        made = with_number_rewards(made)
    space = made.observation_space
    if not isinstance(made.action_space, TokenSequence):
        raise UnsupportedEnvError(
            f"Expected an environment with a lang_envs.TokenSequence action space; got {made.action_space}. "
            "Fix: take off the wrapper that changes its actions, such as TextAction, or give your environment a "
            "TokenSequence."
        )
    if isinstance(space, gym.spaces.Dict) and set(space.spaces) - {_CONTEXT} == _KEYS:
        if any(context_spec) and _CONTEXT not in space.spaces:
            raise UnsupportedEnvError(
                f"Expected an environment that brings what the prompt shows; got {space}. Fix: leave the wrapper to "
                f"the algorithm, or AdmissibleObservation(env, history={context_spec.history}, "
                f"fields={context_spec.fields})."
            )
        return made
    if not isinstance(space, TextSpace):
        raise UnsupportedEnvError(
            f"Expected an environment with text observations (lang_envs.TextSpace); got {space}. "
            "Fix: use a lang_envs environment, or remove the wrapper that changes its observations."
        )
    if isinstance(made, VecEnv):
        return VecAdmissibleObservation(made, context_spec)
    return AdmissibleObservation(made, history=context_spec.history, fields=context_spec.fields)
