"""Optimal play in small deterministic worlds: shortest ways to the goal, by search over all states.

Oracles of the simulated families use it; states and actions are theirs, this module knows neither.
"""

from __future__ import annotations

import heapq
import threading
from collections import defaultdict
from collections.abc import Callable, Hashable
from itertools import count
from typing import Generic, TypeVar

State = TypeVar("State", bound=Hashable)
Cost = tuple[int, ...]

_LOCK = threading.RLock()
"""Lock of the tables, shared by the process: while one thread explores, another must not read half of it."""


class PlanTable(Generic[State]):
    """The best action in every state that can be reached from the states asked about.

    Costs are tuples that are added place by place and compared from the left: `(1, 5)` is one action of five moves,
    and a plan of fewer actions wins for any number of moves. Equal plans are decided by the lowest action index.

    Args:
        expand: Function from a state to `(cost, state after)` of every action in order; the state after is None at the
            goal.
    """

    def __init__(self, expand: Callable[[State], list[tuple[Cost, State | None]]]) -> None:
        self._expand = expand
        self._choices: dict[State, list[tuple[Cost, State | None]]] = {}
        self._costs: dict[State | None, Cost] = {}

    def cost(self, state: State) -> Cost | None:
        """Return the cost of the best plan from a state; None if no plan reaches the goal."""
        with _LOCK:
            if state not in self._choices:
                self._explore(state)
                self._measure()
            return self._costs.get(state)

    def best(self, state: State) -> int | None:
        """Return the index of the first action of the best plan; None if no plan reaches the goal."""
        with _LOCK:
            total = self.cost(state)
            if total is None:
                return None
            for index, (cost, after) in enumerate(self._choices[state]):
                rest = self._costs.get(after)
                if rest is not None and _sum(cost, rest) == total:
                    return index
        raise AssertionError("unreachable: a state with a cost has an action that pays it")

    def _explore(self, start: State) -> None:
        frontier = [start]
        while frontier:
            state = frontier.pop()
            if state not in self._choices:
                self._choices[state] = self._expand(state)
                frontier += [after for _, after in self._choices[state] if after is not None]

    def _measure(self) -> None:
        """Run Dijkstra's algorithm from the goal, backwards."""
        before: dict[State | None, list[tuple[Cost, State]]] = defaultdict(list)
        for state, choices in self._choices.items():
            for cost, after in choices:
                before[after].append((cost, state))
        order = count()
        queue: list[tuple[Cost, int, State | None]] = [((), next(order), None)]
        self._costs = {}
        while queue:
            total, _, reached = heapq.heappop(queue)
            if reached in self._costs:
                continue
            self._costs[reached] = total
            for cost, earlier in before[reached]:
                heapq.heappush(queue, (_sum(cost, total), next(order), earlier))


def _sum(cost: Cost, rest: Cost) -> Cost:
    return tuple(a + b for a, b in zip(cost, rest, strict=True)) if rest else cost
