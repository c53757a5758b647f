"""Every state of a home that can be reached from reset, as arrays for dynamic programming."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from lang_envs.envs.virtualhome.admissible import admissible_commands
from lang_envs.envs.virtualhome.rules import Fact, HomeState, Rules
from lang_envs.envs.virtualhome.tasks import TASKS, HomeTask, with_distractors

LIMIT = 50
"""Steps of an episode."""


@dataclass(frozen=True)
class HomeGraph:
    """States in order of discovery: 0 is the start, and goal states are not expanded.

    Arrays have shape (states, commands) or (states,). A refused command leads back to its state; so does every command
    of a goal state, where none succeeds and none is listed.
    """

    task: HomeTask
    states: list[HomeState]
    facts: list[frozenset[Fact]]
    after: NDArray[np.int64]
    succeeds: NDArray[np.bool_]
    listed: NDArray[np.bool_]
    goal: NDArray[np.bool_]

    @cached_property
    def going_on(self) -> NDArray[np.int64]:
        """States that are no goal."""
        return np.flatnonzero(~self.goal)

    @cached_property
    def lists(self) -> list[tuple[int, ...]]:
        """Indices of the listed commands of each state, in the order of the set; empty at a goal."""
        return [tuple(np.flatnonzero(row).tolist()) for row in self.listed]

    @cached_property
    def features(self) -> list[tuple[int, ...]]:
        """Feature vector of each state."""
        return [self.task.features(facts) for facts in self.facts]

    def reachable(self, allowed: NDArray[np.bool_]) -> NDArray[np.int64]:
        """States that can be reached by the allowed commands, the start and goals included."""
        reached, frontier = {0}, [0]
        while frontier:
            state = frontier.pop()
            fresh = set(self.after[state, allowed[state]].tolist()) - reached
            reached |= fresh
            frontier += fresh
        return np.array(sorted(reached))

    def distance(self, allowed: NDArray[np.bool_] | None = None) -> NDArray[np.float64]:
        """Fewest allowed commands from each state to the goal; infinite in a dead end."""
        detour = 0.0 if allowed is None else np.where(allowed, 0.0, np.inf)
        distance, nearer = np.full(len(self.states), np.nan), np.where(self.goal, 0.0, np.inf)
        while not np.array_equal(distance, nearer):
            distance, nearer = nearer, np.where(self.goal, 0.0, (1 + nearer[self.after] + detour).min(axis=1))
        return distance

    def expect(self, allowed: NDArray[np.bool_], *, discount: float = 1.0, length: bool = False) -> float:
        """Value of the start within the limit, under uniform play over the allowed commands.

        The first step is undiscounted: a success at step t is worth `discount ** (t - 1)`.

        Args:
            allowed: Allowed commands, shape (states, commands).
            discount: Factor on the future per step.
            length: Count steps instead of successes.
        """
        chance = allowed / np.maximum(allowed.sum(axis=1, keepdims=True), 1)
        gain = np.ones(self.after.shape) if length else self.goal[self.after]
        future = np.zeros(len(self.states))
        for _ in range(LIMIT):
            future = np.where(self.goal, 0.0, (chance * (gain + discount * future[self.after])).sum(axis=1))
        return float(future[0])

    def plans(self, allowed: NDArray[np.bool_] | None = None) -> list[tuple[int, ...]]:
        """Every shortest sequence of commands from the start to a goal."""
        distance = self.distance(allowed)

        def ways(state: int) -> list[tuple[int, ...]]:
            if self.goal[state]:
                return [()]
            nearer = np.flatnonzero(distance[self.after[state]] == distance[state] - 1)
            if allowed is not None:
                nearer = nearer[allowed[state, nearer]]
            return [(int(command), *rest) for command in nearer for rest in ways(self.after[state, command])]

        return ways(0)


@lru_cache
def home_graph(task_name: str, *distractors: str) -> HomeGraph:
    """Exhaustive search from the start state, over all commands."""
    task = with_distractors(TASKS[task_name], distractors)
    rules = Rules(task.scene)
    states, index = [rules.start()], {rules.start(): 0}
    facts, goal, after, succeeds, listed = [], [], [], [], []
    for state in states:  # grows while it is read
        facts.append(rules.perceive(state))
        goal.append(task.is_reached(facts[-1]))
        results = [None if goal[-1] else rules.execute(state, command) for command in task.commands]
        for result in results:
            if result is not None and result not in index:
                index[result] = len(states)
                states.append(result)
        offered = () if goal[-1] else admissible_commands(task, facts[-1])
        after.append([index[state if result is None else result] for result in results])
        succeeds.append([result is not None for result in results])
        listed.append([command in offered for command in task.commands])
    return HomeGraph(task, states, facts, *map(np.array, (after, succeeds, listed, goal)))
