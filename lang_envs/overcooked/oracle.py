"""Optimal play by search over the macro-states that can be reached (a few dozen to about a thousand)."""

from __future__ import annotations

import heapq
from functools import lru_cache
from itertools import count

from lang_envs.overcooked.kitchen import Event, KitchenState, Rules
from lang_envs.overcooked.layout import KitchenTask
from lang_envs.overcooked.macro_actions import execute, macros_of

__all__ = ["shortest_plan"]


def shortest_plan(rules: Rules, state: KitchenState, view_radius: int) -> tuple[int, ...]:
    """Macro-action indices of the shortest way to a correct delivery.

    Shortest in macro-actions, then in primitives, then lowest indices first. From a state after the delivery, where
    nothing is left to do, the plan is the single macro-action 0.
    """
    return _search(rules.task, state, view_radius) or (0,)


@lru_cache(maxsize=65536)
def _search(task: KitchenTask, start: KitchenState, view_radius: int) -> tuple[int, ...]:
    rules, macros, order = Rules(task), macros_of(task), count()
    frontier: list[tuple[int, int, tuple[int, ...], int, KitchenState | None]] = [(0, 0, (), next(order), start)]
    seen: set[KitchenState] = set()
    while frontier:
        n_macros, n_primitives, plan, _, state = heapq.heappop(frontier)
        if state is None:  # delivered
            return plan
        if state in seen:
            continue
        seen.add(state)
        for index, macro in enumerate(macros):
            run = execute(rules, state, macro, view_radius)
            after = None if run.events[-1] is Event.DELIVERED else run.state
            entry = (n_macros + 1, n_primitives + len(run.moves), (*plan, index), next(order), after)
            heapq.heappush(frontier, entry)
    return ()
