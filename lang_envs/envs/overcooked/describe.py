"""The kitchen in words: observation and feature vector. Reads states, knows no rules.

The observation conveys exactly: the number of boards; the things in view at their first place; the contents of each
board in view and of the hand; whether the cook stands at a board; the goal. Equal facts, equal text; other facts,
other text.
"""

from __future__ import annotations

from lang_envs.envs.overcooked.kitchen import BOWL, HAND, Item, KitchenState
from lang_envs.envs.overcooked.macro_actions import in_view
from lang_envs.envs.overcooked.tasks import KitchenTask

_ORDINALS = ("first", "second")


def observation(task: KitchenTask, state: KitchenState, view_radius: int) -> str:
    """Return the observation: an unfinished sentence that an action completes."""
    sentences = [f"The kitchen has {'one cutting board' if task.n_boards == 1 else 'two cutting boards'}."]
    homes = (*zip(task.foods, task.food_homes, range(len(task.foods)), strict=True), ("bowl", task.bowl_home, BOWL))
    at_home = [
        f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
        for name, home, item in homes
        if state.cell_of(item) == home and in_view(state.agent, home, view_radius)
    ]
    if at_home:
        where = "is on the table" if len(at_home) == 1 else "are on separate tables"
        sentences.append(f"{_join(at_home)} {where}.".capitalize())
    for board, cell in enumerate(task.boards):
        lying = state.item_at(cell)
        if lying is not None and in_view(state.agent, cell, view_radius):
            sentences.append(f"On the {board_name(task, board)} lies {_thing(task, state, lying)}.")
    held, near_board = state.item_at(HAND), board_here(task, state)
    hands = "Your hands are empty" if held is None else f"You hold {_thing(task, state, held)}"
    sentences.append(
        f"{hands}." if near_board is None else f"{hands} and you are at the {board_name(task, near_board)}."
    )
    dish = _join([f"chopped {food}" for food in task.foods if food in task.goal])
    sentences.append(f"The order is a bowl with {dish} and nothing else. To get it served, you")
    return " ".join(sentences)


def features(task: KitchenTask, state: KitchenState, view_radius: int) -> tuple[int, ...]:
    """Return the raw vector of the original task: coordinates (and chop counts) of things in view, else zeros.

    Order: each food (row, column, chops), bowl, boards, serving hatch, cook (row, column), one-hot of the task.
    """
    values: list[int] = []
    for item in (*range(len(task.foods)), BOWL):
        cell = state.cell_of(item)
        entry = (*cell,) if item == BOWL else (*cell, state.foods[item].chops)
        values += entry if in_view(state.agent, cell, view_radius) else (0,) * len(entry)
    for cell in (*task.boards, task.serving):
        values += cell if in_view(state.agent, cell, view_radius) else (0, 0)
    one_hot = [int(index == task.index) for index in range(task.n_tasks)]
    return (*values, *state.agent, *one_hot)


def board_here(task: KitchenTask, state: KitchenState) -> int | None:
    """Return the board that the cook stands at."""
    stands = [task.stand_cell(board) for board in task.boards]
    return stands.index(state.agent) if state.agent in stands else None


def board_name(task: KitchenTask, board: int) -> str:
    """Return the noun of a board, with its number where there are several."""
    return "cutting board" if task.n_boards == 1 else f"{_ORDINALS[board]} cutting board"


def _thing(task: KitchenTask, state: KitchenState, item: Item) -> str:
    if item != BOWL:
        return f"{'a chopped' if state.foods[item].chopped else 'an unchopped'} {task.foods[item]}"
    contents = [f"chopped {task.foods[food]}" for food in state.contents()]
    return f"a bowl with {_join(contents)}" if contents else "an empty bowl"


def _join(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
