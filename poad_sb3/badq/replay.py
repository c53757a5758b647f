"""`TransitionBuffer`: replay buffer of the latest transitions, stored as questions and action indices."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from poad_sb3.prompts import Question


class Transition(NamedTuple):
    """One environment step, or several in a row.

    Attributes:
        question: Question before the step.
        action: Index of the action taken.
        reward: Reward of the step; for several steps their discounted sum.
        following: Question after the step: after a time limit the true final one, after the end of the task None.
        steps: Number of steps between `question` and `following`.
        ends: Whether the episode ended here, for any reason. Then the next stored item is no continuation, even if its
            question reads the same as `following`.
    """

    question: Question
    action: int
    reward: float
    following: Question | None
    steps: int = 1
    ends: bool = False


class TransitionBuffer:
    """Replay buffer. No features are kept: the frozen model can compute them again at any time.

    Args:
        capacity: Maximum number of transitions; the oldest are replaced.
        n_envs: Number of environments, whose steps are added in turn.
    """

    def __init__(self, capacity: int, n_envs: int = 1) -> None:
        self.capacity, self.n_envs = capacity, n_envs
        self._items: list[Transition] = []
        self._position = 0

    def __len__(self) -> int:
        return len(self._items)

    def add(self, transition: Transition) -> None:
        """Store a transition."""
        if len(self._items) < self.capacity:
            self._items.append(transition)
        else:
            self._items[self._position] = transition
        self._position = (self._position + 1) % self.capacity

    def leave_episodes(self) -> None:
        """Mark the end of all running episodes: the environments were reset before their episodes ended."""
        for back in range(1, min(self.n_envs, len(self._items)) + 1):
            index = (self._position - back) % len(self._items)
            self._items[index] = self._items[index]._replace(ends=True)

    def sample(self, size: int, rng: np.random.Generator, n_steps: int = 1, gamma: float = 1.0) -> list[Transition]:
        """Sample transitions uniformly, with replacement.

        Args:
            size: Number of transitions to sample.
            rng: Random generator.
            n_steps: Maximum number of steps of an episode to join, fewer at its end and at the end of the buffer.
            gamma: Discount of the joined rewards.

        Raises:
            ValueError: If the buffer is empty.
        """
        if not self._items:
            raise ValueError("Expected transitions to sample from; the buffer is empty. Fix: add() some first.")
        return [self._joined(int(age), n_steps, gamma) for age in rng.integers(len(self._items), size=size)]

    def _joined(self, age: int, n_steps: int, gamma: float) -> Transition:
        """Join the steps from the one with index `age`, counted from the oldest."""
        first = last = self._at(age)
        reward, steps = first.reward, 1
        while steps < n_steps and age + steps * self.n_envs < len(self._items):
            following = self._at(age + steps * self.n_envs)
            if last.ends or last.following != following.question:  # the other: an error lost a step between
                break
            reward += gamma**steps * following.reward
            last, steps = following, steps + 1
        return Transition(first.question, first.action, reward, last.following, steps, last.ends)

    def _at(self, age: int) -> Transition:
        oldest = self._position if len(self._items) == self.capacity else 0
        return self._items[(oldest + age) % len(self._items)]

    def latest_questions(self, limit: int) -> list[Question]:
        """Return distinct questions of the buffer, at most `limit`, the latest first."""
        questions: dict[Question, None] = {}
        for age in reversed(range(len(self._items))):
            questions.setdefault(self._at(age).question)
            if len(questions) == limit:
                break
        return list(questions)

    def __getstate__(self) -> dict[str, Any]:
        """Store each distinct question once: most recur many times."""
        table: dict[Question | None, int] = {}
        rows = [
            (
                table.setdefault(transition.question, len(table)),
                transition.action,
                transition.reward,
                table.setdefault(transition.following, len(table)),
                transition.ends,
            )
            for transition in self._items
        ]
        return {
            "capacity": self.capacity,
            "n_envs": self.n_envs,
            "position": self._position,
            "questions": list(table),
            "rows": rows,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.capacity, self.n_envs, self._position = state["capacity"], state["n_envs"], state["position"]
        questions = state["questions"]
        self._items = [
            Transition(questions[index], action, reward, questions[next_index], ends=ends)
            for index, action, reward, next_index, ends in state["rows"]
        ]
