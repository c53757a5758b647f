"""Every macro-state of a kitchen that can be reached from reset, as arrays for dynamic programming."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lang_envs.envs.overcooked.env import KitchenReward
from lang_envs.envs.overcooked.kitchen import Event, KitchenState, Rules
from lang_envs.envs.overcooked.macro_actions import execute, macros_of
from lang_envs.envs.overcooked.tasks import TASKS, KitchenTask

VIEW_RADIUS = 2
LIMIT = 200
DISCOUNT = 0.99


@dataclass(frozen=True)
class MacroGraph:
    """States in order of discovery (0 is the start; states after a delivery are not entered).

    Arrays have shape (states, macros). `after` is meaningless where `delivered`.
    """

    task: KitchenTask
    states: list[KitchenState]
    after: NDArray[np.int64]
    primitives: NDArray[np.int64]
    rewards: NDArray[np.float64]
    delivered: NDArray[np.bool_]
    letters: list[list[str]]

    def expect(
        self,
        gain: NDArray[np.float64],
        *,
        macro_discount: float = 1.0,
        primitive_discount: float = 1.0,
        choose: Callable[..., NDArray[np.float64]] = np.mean,
    ) -> float:
        """Value of the start over (state, primitive time), within the limit that never cuts a macro-action.

        Args:
            gain: Reward of a macro-action, shape (states, macros).
            macro_discount: Factor on the future per macro-action.
            primitive_discount: Factor on the future per primitive.
            choose: Reduction over macro-actions: mean for random play, max for the optimum.
        """
        future = np.zeros((LIMIT + int(self.primitives.max()), len(self.states)))
        discount = macro_discount * primitive_discount**self.primitives * ~self.delivered
        for time in reversed(range(LIMIT)):
            future[time] = choose(gain + discount * future[time + self.primitives, self.after], axis=1)
        return float(future[0, 0])

    def times_reached(self) -> NDArray[np.bool_]:
        """Whether (primitive time, state) can be met before the limit, shape (LIMIT, states)."""
        reached = np.zeros((LIMIT, len(self.states)), dtype=bool)
        reached[0, 0] = True
        for time in range(LIMIT):
            then, going_on = time + self.primitives, ~self.delivered & reached[time, :, None]
            inside = going_on & (then < LIMIT)
            reached[then[inside], self.after[inside]] = True
        return reached

    def macros_to_delivery(self) -> NDArray[np.float64]:
        """Fewest macro-actions to a correct delivery from each state; infinite in a dead end."""
        distance = np.full(len(self.states), np.inf)
        for _ in self.states:
            distance = np.minimum(distance, 1 + np.where(self.delivered, 0, distance[self.after]).min(axis=1))
        return distance


@lru_cache
def macro_graph(task_name: str) -> MacroGraph:
    """Exhaustive search from the start state."""
    task = TASKS[task_name]
    rules, reward = Rules(task), KitchenReward()
    states, index = [rules.start()], {rules.start(): 0}
    rows: list[list[tuple[int, int, float, bool, str]]] = []
    for state in states:  # grows while it is read
        rows.append([])
        for macro in macros_of(task):
            run = execute(rules, state, macro, VIEW_RADIUS)
            delivered = run.events[-1] is Event.DELIVERED
            if not delivered and run.state not in index:
                index[run.state] = len(states)
                states.append(run.state)
            after = 0 if delivered else index[run.state]
            letters = "".join(move.value for move in run.moves)
            rows[-1].append((after, len(run.moves), reward.of_run(run.events), delivered, letters))
    columns = [[[entry[field] for entry in row] for row in rows] for field in range(5)]
    return MacroGraph(task, states, *(np.array(column) for column in columns[:4]), letters=columns[4])


def once_only(graph: MacroGraph) -> MacroGraph:
    """The same kitchen where chopping a food pays once: every state with every set of foods that have been paid for."""
    n_states = len(graph.states)
    n_foods = len(graph.task.foods)
    stroke = np.zeros_like(graph.after)  # bit of the food whose chopping earns a reward, or 0
    for state, macro in np.argwhere(~graph.delivered & (graph.rewards > 0)):
        pairs = zip(graph.states[state].foods, graph.states[graph.after[state, macro]].foods, strict=True)
        stroke[state, macro] = sum(1 << food for food, (was, now) in enumerate(pairs) if now.chopped > was.chopped)
    unpaid = graph.rewards - KitchenReward().chop * DISCOUNT ** (graph.primitives - 1)  # the last stroke is last
    sets = np.arange(1 << n_foods)
    return replace(
        graph,
        states=graph.states * len(sets),
        after=np.concatenate([(paid | stroke) * n_states + graph.after for paid in sets]),
        primitives=np.tile(graph.primitives, (len(sets), 1)),
        rewards=np.concatenate([np.where(stroke & paid, unpaid, graph.rewards) for paid in sets]),
        delivered=np.tile(graph.delivered, (len(sets), 1)),
        letters=graph.letters * len(sets),
    )
