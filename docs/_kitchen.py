"""The kitchen as a table of situations, for the numbers of its page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lang_envs.overcooked import describe
from lang_envs.overcooked.env import KitchenReward, OvercookedEnv
from lang_envs.overcooked.kitchen import Event, KitchenState, Rules
from lang_envs.overcooked.macro_actions import execute, macros_of

__all__ = ["KitchenGraph", "kitchen_graph"]


class KitchenGraph(NamedTuple):
    """Every situation of the kitchen between actions; arrays are `[states, macro-actions]`, state 0 is the start."""

    env: OvercookedEnv
    states: list[KitchenState]
    after: np.ndarray
    rewards: np.ndarray
    delivered: np.ndarray

    def views(self, position: int) -> list[str]:
        """All phrases that the list shows at a position."""
        lists = [describe.admissible_phrases(self.env.task, state, self.env.view_radius) for state in self.states]
        return sorted({phrases[position] for phrases in lists})

    def value(self, macros: Sequence[int], gamma: float) -> float:
        """Return of a plan, discounted per action."""
        state, total = 0, 0.0
        for number, macro in enumerate(macros):
            total += gamma**number * self.rewards[state, macro]
            state = self.after[state, macro]
        return total

    def _iterate(self, gamma: float) -> np.ndarray:
        values = np.zeros(len(self.states))
        for _ in range(int(40 / (1 - gamma))):
            values = self._backup(values, gamma).max(axis=1)
        return values

    def _backup(self, values: np.ndarray, gamma: float) -> np.ndarray:
        return self.rewards + gamma * ~self.delivered * values[self.after]

    def endless_value(self, gamma: float) -> float:
        """Value of the start without a time limit."""
        return float(self._iterate(gamma)[0])

    def farms(self, gamma: float) -> bool:
        """Whether the best plan without a time limit never delivers."""
        best = self._backup(self._iterate(gamma), gamma).argmax(axis=1)
        state = 0
        for _ in self.states:
            if self.delivered[state, best[state]]:
                return False
            state = self.after[state, best[state]]
        return True

    def farming_threshold(self) -> float:
        """Smallest discount per action with which the best plan never delivers."""
        low, high = 0.95, 0.99
        for _ in range(16):
            middle = (low + high) / 2
            low, high = (low, middle) if self.farms(middle) else (middle, high)
        return high


def kitchen_graph(env: OvercookedEnv) -> KitchenGraph:
    """Exhaustive search from the start."""
    rules, reward = Rules(env.task), KitchenReward()
    states = [rules.start()]
    rows: list[list[tuple[int, float, bool]]] = []
    for state in states:  # grows while it is read
        rows.append([])
        for macro in macros_of(env.task):
            run = execute(rules, state, macro, env.view_radius)
            delivered = run.events[-1] is Event.DELIVERED
            if not delivered and run.state not in states:
                states.append(run.state)
            rows[-1].append((0 if delivered else states.index(run.state), reward.of_run(run.events), delivered))
    columns = [np.array([[entry[field] for entry in row] for row in rows]) for field in range(3)]
    return KitchenGraph(env, states, *columns)
