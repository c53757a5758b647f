"""A text in, a text out: the environment that all bridges drive, and that GEM and AgileRL use as it is."""

from __future__ import annotations

import operator
from typing import Any

import gymnasium as gym
import numpy as np

from lang_envs.agents import random_agent
from lang_envs.answers import parse_action, show_actions
from lang_envs.arguments import check_integer
from lang_envs.core import oracle
from lang_envs.wrappers import TextAction

OVER = "The episode is over."
"""Observation of a step after the end, for systems that learn of an end by words alone."""


class TextEnv(gym.Wrapper[str, str, str, str]):
    """An environment of `lang_envs` for programs that know texts alone.

    Observations show the admissible actions; an action is the answer of a language model, and is understood with
    quotation marks, bullets and full stops around it (`lang_envs.parse_action`). `info` is that of the environment.
    A step after the end changes nothing.

    Args:
        task: Id of the environment.
        seed: Seed of the first reset that has none.
        lists_actions: Whether the observation shows the admissible actions.
        max_turns: Number of actions after which an episode is truncated; None for the environment's own limit alone.
        **kwargs: Arguments of `gym.make`.

    Raises:
        ValueError: If `max_turns` is less than 1.

    Attributes:
        rewards: Rewards of the episode so far.
        is_over: Whether the episode has ended.
        success: Whether it reached its goal.
        truncated: Whether a limit ended it.
    """

    def __init__(
        self,
        task: str,
        *,
        seed: int | None = None,
        lists_actions: bool = True,
        max_turns: int | None = None,
        **kwargs: Any,
    ) -> None:
        if max_turns is not None:
            check_integer("max_turns", max_turns, 1)
        super().__init__(TextAction(gym.make(task, **kwargs)))
        self.task, self.lists_actions, self.max_turns = task, lists_actions, max_turns
        self.rewards: list[float] = []
        self.is_over, self.success, self.truncated = False, False, False
        self._seed = seed
        self._info: dict[str, Any] = {"admissible_actions": None}
        self._rng = np.random.default_rng(None if seed is None else (seed, 1))

    @property
    def admissible_actions(self) -> list[str] | None:
        """Actions that are admissible now; None where any text is."""
        actions = self._info["admissible_actions"]
        return None if actions is None else list(actions)

    @property
    def episode_return(self) -> float:
        """Undiscounted sum of the rewards of the episode so far."""
        return float(sum(self.rewards))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begin an episode."""
        seed, self._seed = (self._seed if seed is None else seed), None
        text, self._info = self.env.reset(seed=None if seed is None else operator.index(seed), options=options)
        self.rewards, self.is_over, self.success, self.truncated = [], False, False, False
        return self._shown(text), dict(self._info)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Do the action that an answer means."""
        if self.is_over:
            return OVER, 0.0, not self.truncated, self.truncated, dict(self._info)
        meant = parse_action(action, self.admissible_actions) if isinstance(action, str) else action
        text, reward, terminated, truncated, self._info = self.env.step(meant)
        self.rewards.append(float(reward))
        truncated = truncated or (len(self.rewards) == self.max_turns and not terminated)
        self.is_over, self.truncated, self.success = terminated or truncated, truncated, bool(self._info["success"])
        return self._shown(text), float(reward), terminated, truncated, dict(self._info)

    def oracle_action(self) -> str:
        """Return the action of an optimal policy; see `lang_envs.oracle`."""
        return oracle(self.env)

    def sample_random_action(self) -> str:
        """Draw an action: one of those listed, each as likely, or a sentence where any text is one."""
        return random_agent(self._rng)(self, "", self.admissible_actions)

    def _shown(self, text: str) -> str:
        return show_actions(text, self.admissible_actions if self.lists_actions and not self.is_over else None)


text_env = TextEnv
"""Make a `TextEnv` by the id of its task."""
