"""Optimal play: fewest commands to the goal, from the whole graph of states."""

from __future__ import annotations

from functools import lru_cache

from lang_envs.envs.planning import PlanTable
from lang_envs.envs.virtualhome.admissible import admissible_commands
from lang_envs.envs.virtualhome.rules import Command, HomeState, Rules
from lang_envs.envs.virtualhome.tasks import DISTRACTORS, TASKS, HomeTask, with_distractors


def best_command(task: HomeTask, state: HomeState) -> Command:
    """Return the first command of a shortest plan to the goal.

    Among several, listed ones come first, then the order of the set decides.

    All commands of the set count, because some situations have no way out by the listed ones. In a state that has
    reached the goal it is the first of the set.
    """
    index = _table(task.name, len(task.distractors)).best(_anonymous(task, state))
    return task.commands[0 if index is None else index]


def _anonymous(task: HomeTask, state: HomeState) -> HomeState:
    """Return the state with the first names for the distractors: plans do not depend on their names."""
    names = dict(zip(task.distractors, DISTRACTORS, strict=False))
    return state._replace(near=frozenset(names.get(name, name) for name in state.near)) if names else state


@lru_cache(maxsize=8)  # 4 for each task
def _table(task_name: str, n_distractors: int) -> PlanTable[HomeState]:
    task = with_distractors(TASKS[task_name], tuple(DISTRACTORS)[:n_distractors])
    rules = Rules(task.scene)

    def expand(state: HomeState) -> list[tuple[tuple[int, ...], HomeState | None]]:
        facts = rules.perceive(state)
        if task.is_reached(facts):
            return []
        listed = admissible_commands(task, facts)
        choices: list[tuple[tuple[int, ...], HomeState | None]] = []
        for command in task.commands:
            after = rules.execute(state, command) or state
            reached = after != state and task.is_reached(rules.perceive(after))
            choices.append(((1, int(command not in listed)), None if reached else after))
        return choices

    return PlanTable(expand)
