"""The numbers of the kitchen's page: the reward of farming chops, and the values of plans by discount."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import gymnasium as gym
import numpy as np

from benchmarks.performance.env_scores import explore, random_policy

ENV_ID = "Overcooked-TomatoSalad-v0"
PAGE = Path(__file__).parents[4] / "docs/environments/overcooked.md"
FIRST_CHOP = ("pick up the tomato", "put the tomato on the cutting board", "chop the tomato")
FARMING = (*FIRST_CHOP, "pick up the tomato", "serve the dish", *FIRST_CHOP)
SHORTEST, BOWL_FIRST = (0, 2, 4, 0, 1, 3), (0, 2, 4, 1, 0, 3)
"""Two ways to serve the salad, as positions in the admissible list: fetch the tomato to the bowl, or the bowl to it."""


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
        """Smallest discount per action at which the best plan never delivers."""
        low, high = 0.95, 0.99
        for _ in range(16):
            middle = (low + high) / 2
            low, high = (low, middle) if self.farms(middle) else (middle, high)
        return high


@cache
def kitchen() -> KitchenGraph:
    """The graph of random play, where every situation lists every macro-action, in one order."""
    graph = explore(gym.make(ENV_ID, disable_env_checker=True).unwrapped, random_policy)
    shape = (len(graph.worlds), -1)
    targets, rewards, delivered = (
        np.array([getattr(edge, name) for edge in graph.edges]).reshape(shape)
        for name in ("target", "reward", "success")
    )
    return KitchenGraph(np.maximum(targets, 0), rewards, delivered)


def test_the_page_shows_what_farming_pays() -> None:
    env = gym.make(ENV_ID, disable_env_checker=True).unwrapped
    env.reset(seed=0)
    page, clock, total = PAGE.read_text(encoding="utf-8"), 0, 0.0
    for number, action in enumerate(FARMING, start=1):
        _, reward, *_, info = env.step_text(action)
        clock, total = clock + info["primitive_steps"], total + reward
        numbers = f"{info['primitive_steps']} | {clock} | {reward:.6g} | {total:.6g}"
        assert f"| {number} | `{action}` | {numbers} |" in page


def test_the_page_shows_the_values_of_plans() -> None:
    graph, page = kitchen(), PAGE.read_text(encoding="utf-8")
    for gamma in (0.99, 0.98, 0.97, 0.95):
        numbers = (graph.value(SHORTEST, gamma), graph.value(BOWL_FIRST, gamma), graph.endless_value(gamma))
        row = (f"{gamma:g}", *map("{:.3f}".format, numbers), "farms" if graph.farms(gamma) else "delivers")
        assert f"| {' | '.join(row)} |" in page
    assert f"Farming is the best plan for `gamma` above {graph.farming_threshold():.4f}." in page
