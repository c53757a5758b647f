"""Admissible actions inside the observation, for tools that pass observations only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, SupportsFloat

import gymnasium as gym

from lang_envs.core import Tokens
from lang_envs.spaces import TextSpace

__all__ = ["AdmissibleObservation", "admissible_observation", "admissible_space", "mark_success"]

MAX_LIST_LENGTH = 16_384
"""Default bound on the characters of the JSON list."""


def admissible_space(text: TextSpace, max_list_length: int = MAX_LIST_LENGTH) -> gym.spaces.Dict:
    """The observation space `{"text": ..., "admissible_actions": JSON list}`."""
    return gym.spaces.Dict({"text": text, "admissible_actions": TextSpace(max_list_length)})


def admissible_observation(text: str, actions: Sequence[str] | None) -> dict[str, str]:
    """An element of `admissible_space`; an open action space is the JSON `null`."""
    listed = None if actions is None else [str(action) for action in actions]
    return {"text": str(text), "admissible_actions": json.dumps(listed, ensure_ascii=False)}


def mark_success(info: dict[str, Any]) -> None:
    """Say `is_success` too, which is what SB3 logs success rates from."""
    if "success" in info:
        info.setdefault("is_success", info["success"])


class AdmissibleObservation(gym.Wrapper[Any, Tokens, Any, Tokens], gym.utils.RecordConstructorArgs):
    """Observation becomes `{"text": str, "admissible_actions": JSON list of str}`.

    Stock tools (SB3's `evaluate_policy`, `EvalCallback`) hand a policy observations without `info`. A `str` subclass
    that carries the list is lost in `SubprocVecEnv`; a `Dict` of two texts survives everywhere. JSON, because
    actions may hold any character. `info["success"]` is repeated as `is_success`, which SB3's success rates read.

    Args:
        env: An environment with `TextSpace` observations and `info["admissible_actions"]`.
        max_list_length: Largest number of characters of the JSON list.

    Raises:
        TypeError: If the observations are not text.
        KeyError: At reset, if `info` has no `admissible_actions`.
    """

    def __init__(self, env: gym.Env[Any, Tokens], max_list_length: int = MAX_LIST_LENGTH) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, max_list_length=max_list_length)
        gym.Wrapper.__init__(self, env)
        if not isinstance(env.observation_space, TextSpace):
            raise TypeError(
                f"Expected an environment with TextSpace observations; got {env.observation_space}. "
                "Fix: wrap a lang_envs environment, or give yours a lang_envs.TextSpace."
            )
        self.observation_space = admissible_space(env.observation_space, max_list_length)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, str], dict[str, Any]]:
        """Start an episode."""
        text, info = self.env.reset(seed=seed, options=options)
        return self._observation(text, info), info

    def step(self, action: Tokens) -> tuple[dict[str, str], SupportsFloat, bool, bool, dict[str, Any]]:
        """One step of the wrapped environment."""
        text, reward, terminated, truncated, info = self.env.step(action)
        mark_success(info)
        return self._observation(text, info), reward, terminated, truncated, info

    def _observation(self, text: str, info: dict[str, Any]) -> dict[str, str]:
        if "admissible_actions" not in info:
            raise KeyError(
                f"Expected info to hold 'admissible_actions' (a list of str, or None); got keys {sorted(info)}. "
                "Fix: let the environment return it in every reset and step."
            )
        return admissible_observation(text, info["admissible_actions"])
