"""The kitchen as a table of situations, for the numbers of its page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.performance.env_scores import Graph

__all__ = ["KitchenGraph", "kitchen_graph"]


class KitchenGraph(NamedTuple):
    """Every situation of the kitchen between actions; arrays are `[situations, macro-actions]`, 0 is the start."""

    after: np.ndarray
    rewards: np.ndarray
    delivered: np.ndarray

    def value(self, macros: Sequence[int], gamma: float) -> float:
        """Return of a plan, discounted per action."""
        state, total = 0, 0.0
        for number, macro in enumerate(macros):
            total += gamma**number * self.rewards[state, macro]
            state = self.after[state, macro]
        return total

    def _iterate(self, gamma: float) -> np.ndarray:
        values = np.zeros(len(self.after))
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
        for _ in self.after:
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


def kitchen_graph(graph: Graph) -> KitchenGraph:
    """The graph of random play in a kitchen, where every situation lists every macro-action, in one order."""
    shape = (len(graph.worlds), -1)
    targets, rewards, delivered = (
        np.array([getattr(edge, name) for edge in graph.edges]).reshape(shape)
        for name in ("target", "reward", "success")
    )
    return KitchenGraph(np.maximum(targets, 0), rewards, delivered)
