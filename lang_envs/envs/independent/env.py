"""`IndependentDecisions`: the episode of KeyToken, MultiKey, the length trap and Parity."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

from lang_envs.arguments import check_integer
from lang_envs.core import LangEnv, Outcome, room_for_list

_MIN_TIME = 50
"""Smallest time limit by default, steps."""


class _World(NamedTuple):
    """State of an episode.

    Attributes:
        target: Random numbers of a decision: those of the right words, or of a sign.
        answers: Whether each decision so far was right.
        steps: Steps of the episode, invalid ones included.
        n_correct: Number of right keys of the last action; 0 for an invalid one.
    """

    target: tuple[int, ...]
    answers: tuple[bool, ...]
    steps: int
    n_correct: int


class IndependentDecisions(LangEnv[_World]):
    """A number of decisions, each with a target of its own drawn from `self.np_random`; all actions always listed."""

    metadata = {**LangEnv.metadata, "render_modes": ["ansi", "rgb_array"]}  # noqa: RUF012 - gymnasium's
    renderer = "lang_envs.envs.independent.render"
    noun: str = "order"
    """Word for the target of a decision."""
    question: str = "You take"
    """Beginning of the sentence that an action ends."""

    def _set_up(self, actions: tuple[str, ...], horizon: int, max_steps: int | None, target: tuple[int, ...]) -> None:
        """Prepare the episodes; `target` is that of the state before the first reset."""
        self.sentences = actions
        """All actions of the task."""
        self.max_list_length = room_for_list(actions)
        self._numbers = {sentence: number for number, sentence in enumerate(actions)}
        check_integer("horizon", horizon, 1)
        self.max_steps = max(_MIN_TIME, 2 * horizon) if max_steps is None else max_steps
        check_integer("max_steps", self.max_steps, horizon)
        self.horizon = horizon
        self._world = _World(target, (), 0, 0)

    # ------------------------------------------------------------------ methods of a task

    @abstractmethod
    def _draw(self) -> tuple[int, ...]:
        """Draw the target of a decision."""

    @abstractmethod
    def _score(self, number: int) -> tuple[float, int, bool]:
        """Return the reward of an action times the horizon, its right keys, and whether it is right."""

    def _idle_reward(self) -> float:
        """Return the reward of a step without an answer, times the horizon."""
        return 0.0

    @property
    @abstractmethod
    def order(self) -> str:
        """Target of the present decision in words."""

    @property
    @abstractmethod
    def legend(self) -> str:
        """Words of the task in one line, for rendering."""

    @abstractmethod
    def key_places(self, text: str) -> list[int]:
        """Return the words of an action that decide, counted from 0; none of a text that is no action."""

    # ------------------------------------------------------------------ public attributes

    @property
    def answers(self) -> tuple[bool, ...]:
        """Whether each decision of this episode was right."""
        return self._world.answers

    @property
    def elapsed_steps(self) -> int:
        """Steps of this episode, invalid ones included."""
        return self._world.steps

    @property
    def is_over(self) -> bool:
        """Whether all decisions are made."""
        return len(self._world.answers) == self.horizon

    # ------------------------------------------------------------------ the world

    def _restart(self, options: Mapping[str, Any]) -> None:
        self._world = _World(self._draw(), (), 0, 0)

    def _describe(self) -> str:
        n_left = self.horizon - len(self._world.answers)
        if not n_left:
            return f"No {self.noun}s are left."
        return f"The {self.noun} is {self.order}. {self.noun.capitalize()}s left: {n_left}. {self.question}"

    def _listed_actions(self) -> list[str]:
        return list(self.sentences)

    def _execute(self, text: str) -> Outcome | None:
        if text not in self._numbers:
            return None
        reward, n_correct, right = self._score(self._numbers[text])
        answers = (*self._world.answers, right)
        target = self._world.target if len(answers) == self.horizon else self._draw()
        self._world = _World(target, answers, self._world.steps + 1, n_correct)
        return self._outcome(reward / self.horizon)

    def _pass_time(self) -> Outcome:
        self._world = self._world._replace(steps=self._world.steps + 1, n_correct=0)
        return self._outcome(self._idle_reward() / self.horizon)

    def _outcome(self, reward: float) -> Outcome:
        out_of_time = self._world.steps >= self.max_steps and not self.is_over
        return Outcome(reward, self.is_over, out_of_time, self.is_over and all(self._world.answers))
