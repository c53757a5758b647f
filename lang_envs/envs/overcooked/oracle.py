"""Optimal play: fewest macro-actions to a correct delivery, then fewest primitives."""

from __future__ import annotations

from functools import lru_cache

from lang_envs.envs.overcooked.kitchen import Event, KitchenState, Rules
from lang_envs.envs.overcooked.macro_actions import execute, macros_of
from lang_envs.envs.overcooked.tasks import KitchenTask
from lang_envs.envs.planning import PlanTable


def best_macro(task: KitchenTask, state: KitchenState, view_radius: int) -> int:
    """Return the index of the first macro-action of the shortest plan to a correct delivery.

    Shortest in macro-actions, then in primitives, then lowest indices first. After the delivery it is 0.
    """
    return _table(task, view_radius).best(state) or 0


@lru_cache(maxsize=64)
def _table(task: KitchenTask, view_radius: int) -> PlanTable[KitchenState]:
    rules, macros = Rules(task), macros_of(task)

    def expand(state: KitchenState) -> list[tuple[tuple[int, ...], KitchenState | None]]:
        runs = [execute(rules, state, macro, view_radius) for macro in macros]
        return [((1, len(run.moves)), None if run.events[-1] is Event.DELIVERED else run.state) for run in runs]

    return PlanTable(expand)
