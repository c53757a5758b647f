"""From what an environment or a user hands over to what a policy acts on: a text and its admissible actions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from lang_envs import TextSpace, TokenSequence
from lang_envs.wrappers import AdmissibleObservation
from lang_envs.wrappers.admissible import admissible_observation, admissible_space, mark_success
from poad_sb3.errors import ObservationError, UnsupportedEnvError

__all__ = ["Question", "VecAdmissibleObservation", "merge_admissible", "parse_observation", "wrap_language_env"]

_KEYS = frozenset({"text", "admissible_actions"})


class Question(NamedTuple):
    """What the policy is asked: a prompt and the actions it may choose from (None: any text)."""

    text: str
    actions: tuple[str, ...] | None


def parse_observation(observation: Any) -> tuple[list[Question], bool]:  # noqa: ANN401 - checked here
    """Questions in an observation, and whether it is a batch.

    Args:
        observation: Mapping with `text` and `admissible_actions` (JSON), each a `str` or an array of them.

    Raises:
        ObservationError: If it is anything else.
    """
    if not isinstance(observation, Mapping) or set(observation) != _KEYS:
        got = sorted(map(str, observation)) if isinstance(observation, Mapping) else type(observation).__name__
        raise ObservationError(
            f"Expected an observation with 'text' and 'admissible_actions'; got {got}. Fix: wrap the environment in "
            "lang_envs.wrappers.AdmissibleObservation (model.get_env() is wrapped already), or call "
            "predict(text, admissible_actions=info['admissible_actions'])."
        )
    texts, lists = (
        np.asarray(observation["text"], dtype=object),
        np.asarray(observation["admissible_actions"], dtype=object),
    )
    if texts.shape != lists.shape or texts.ndim > 1:
        raise ObservationError(
            f"Expected as many lists as texts, in at most one dimension; got shapes {texts.shape} and {lists.shape}."
        )
    pairs = list(zip(np.atleast_1d(texts), np.atleast_1d(lists), strict=True))
    for text, listed in pairs:
        if not isinstance(text, str) or not isinstance(listed, str):
            raise ObservationError(
                "Expected text and admissible_actions to be str; got "
                f"{type(text).__name__} and {type(listed).__name__}. Fix: use AdmissibleObservation."
            )
    return [Question(str(text), _parse_actions(str(listed))) for text, listed in pairs], texts.ndim == 1


def merge_admissible(
    observation: Any,  # noqa: ANN401 - checked here and in parse_observation
    admissible_actions: Sequence[str] | Sequence[Sequence[str]] | None,
) -> Any:  # noqa: ANN401
    """Put a list given beside a text (or lists beside texts) into the observation."""
    if admissible_actions is None:
        return observation
    if isinstance(admissible_actions, str):
        raise ObservationError(
            f"Expected a list of admissible actions; got the str {admissible_actions[:80]!r}. Fix: pass a list of str."
        )
    if isinstance(observation, str) and all(isinstance(action, str) for action in admissible_actions):
        return admissible_observation(observation, [str(action) for action in admissible_actions])
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
    pairs = [admissible_observation(text, one) for text, one in zip(observation, admissible_actions, strict=True)]
    return {key: np.array([pair[key] for pair in pairs], dtype=object) for key in _KEYS}


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
    """`AdmissibleObservation` for a vector environment that was made without it."""

    def __init__(self, venv: VecEnv) -> None:
        if not isinstance(venv.observation_space, TextSpace):
            raise UnsupportedEnvError(f"Expected TextSpace observations; got {venv.observation_space}.")
        super().__init__(venv, observation_space=admissible_space(venv.observation_space))

    def reset(self) -> VecEnvObs:
        """Reset all environments."""
        texts = self.venv.reset()
        return self._observations(texts, self._reset_infos())

    def step_wait(self) -> VecEnvStepReturn:
        """Wait for the step; where an episode ended, the list is that of the new episode."""
        texts, rewards, dones, infos = self.venv.step_wait()
        fresh = self._reset_infos()
        for info in infos:
            mark_success(info)
        for done, info in zip(dones, infos, strict=True):
            if done:
                final = str(info["terminal_observation"])
                info["terminal_observation"] = admissible_observation(final, self._actions(info))
        current = [new if done else info for done, info, new in zip(dones, infos, fresh, strict=True)]
        return self._observations(texts, current), rewards, dones, infos

    def _reset_infos(self) -> list[dict[str, Any]]:
        # Wrappers in between shadow reset_infos with empty dicts (SB3 base_vec_env.py), so ask the innermost.
        return self.venv.unwrapped.reset_infos

    def _observations(self, texts: Any, infos: Sequence[dict[str, Any]]) -> dict[str, np.ndarray]:  # noqa: ANN401
        pairs = [admissible_observation(text, self._actions(info)) for text, info in zip(texts, infos, strict=True)]
        return {key: np.array([pair[key] for pair in pairs], dtype=object) for key in _KEYS}

    @staticmethod
    def _actions(info: dict[str, Any]) -> Any:  # noqa: ANN401 - list or None
        if "admissible_actions" not in info:
            raise UnsupportedEnvError(
                f"Expected info['admissible_actions'] in every reset and step; got keys {sorted(info)}. "
                "Fix: let the environment return it (None where any text is allowed)."
            )
        return info["admissible_actions"]


def wrap_language_env(env: gym.Env[Any, Any] | VecEnv | str) -> gym.Env[Any, Any] | VecEnv:
    """Give an environment (or the id of one, or a vector of them) the observations a policy needs.

    Raises:
        UnsupportedEnvError: If its observations are not text or its actions not token sequences.
    """
    if isinstance(env, gym.vector.VectorEnv):
        raise UnsupportedEnvError(
            f"Expected an environment or a Stable-Baselines3 VecEnv; got Gymnasium's {type(env).__name__}. "
            "Fix: stable_baselines3.common.env_util.make_vec_env(id, n_envs)."
        )
    made = gym.make(env) if isinstance(env, str) else env
    space = made.observation_space
    if not isinstance(made.action_space, TokenSequence):
        raise UnsupportedEnvError(
            f"Expected an environment with a lang_envs.TokenSequence action space; got {made.action_space}. "
            "Fix: use a lang_envs environment, or give yours a TokenSequence (docs: environment contract)."
        )
    if isinstance(space, gym.spaces.Dict) and set(space.spaces) == _KEYS:
        return made
    if not isinstance(space, TextSpace):
        raise UnsupportedEnvError(
            f"Expected an environment with text observations (lang_envs.TextSpace); got {space}. "
            "Fix: use a lang_envs environment, or remove the wrapper that changes its observations."
        )
    return VecAdmissibleObservation(made) if isinstance(made, VecEnv) else AdmissibleObservation(made)
