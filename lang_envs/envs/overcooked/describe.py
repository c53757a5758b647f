"""The kitchen in words: observation, admissible phrases, feature vector. Reads states, knows no rules.

The observation conveys exactly: the number of boards; which things are in view at home; what lies on each board in
view; what is in hand and whether the cook stands at a board; the goal. Same facts, same text; other facts, other text.
"""

from __future__ import annotations

from lang_envs.envs.overcooked.kitchen import BOWL, HAND, Item, KitchenState
from lang_envs.envs.overcooked.macro_actions import Macro, Verb, in_view, macros_of
from lang_envs.envs.overcooked.tasks import KitchenTask

_ORDINALS = ("first", "second")


def observation(task: KitchenTask, state: KitchenState, view_radius: int) -> str:
    """The observation: an unfinished sentence that an action completes."""
    dish = _join([f"chopped {food}" for food in task.foods if food in task.goal])
    sentences = [
        f"The kitchen has {'one cutting board' if task.n_boards == 1 else 'two cutting boards'}.",
        _things_at_home(task, state, view_radius),
        *(_board_content(task, state, board, view_radius) for board in range(task.n_boards)),
        _hands_and_place(task, state),
        f"The order is a bowl with {dish} and nothing else. To get it served, you",
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def admissible_phrases(task: KitchenTask, state: KitchenState, view_radius: int) -> tuple[str, ...]:
    """The phrase of every macro-action, in the order of `macros_of`."""
    return tuple(_phrase(task, state, macro, view_radius) for macro in macros_of(task))


def features(task: KitchenTask, state: KitchenState, view_radius: int) -> tuple[int, ...]:
    """The raw vector of the original task: coordinates (and chop counts) of what is in view, zeros for the rest.

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


def _things_at_home(task: KitchenTask, state: KitchenState, view_radius: int) -> str:
    homes = (*zip(task.foods, task.food_homes, range(len(task.foods)), strict=True), ("bowl", task.bowl_home, BOWL))
    seen = [
        _with_article(name)
        for name, home, item in homes
        if state.cell_of(item) == home and in_view(state.agent, home, view_radius)
    ]
    if not seen:
        return ""
    where = "is on the table" if len(seen) == 1 else "are on separate tables"
    return f"{_join(seen)} {where}.".capitalize()


def _board_content(task: KitchenTask, state: KitchenState, board: int, view_radius: int) -> str:
    cell = task.boards[board]
    item = state.item_at(cell)
    if item is None or not in_view(state.agent, cell, view_radius):
        return ""
    return f"On the {_board_name(task, board)} lies {_thing(task, state, item)}."


def _hands_and_place(task: KitchenTask, state: KitchenState) -> str:
    held = state.item_at(HAND)
    hands = "Your hands are empty" if held is None else f"You hold {_thing(task, state, held)}"
    board = _board_here(task, state)
    return f"{hands}." if board is None else f"{hands} and you are at the {_board_name(task, board)}."


def _board_here(task: KitchenTask, state: KitchenState) -> int | None:
    stands = [task.stand_cell(board) for board in task.boards]
    return stands.index(state.agent) if state.agent in stands else None


def _thing(task: KitchenTask, state: KitchenState, item: Item) -> str:
    if item != BOWL:
        return f"{'a chopped' if state.foods[item].chopped else 'an unchopped'} {task.foods[item]}"
    contents = [f"chopped {task.foods[food]}" for food in state.contents()]
    return f"a bowl with {_join(contents)}" if contents else "an empty bowl"


def _board_name(task: KitchenTask, board: int) -> str:
    return "cutting board" if task.n_boards == 1 else f"{_ORDINALS[board]} cutting board"


def _phrase(task: KitchenTask, state: KitchenState, macro: Macro, view_radius: int) -> str:
    held = state.item_at(HAND)
    if macro.verb is Verb.GET_FOOD:
        food = task.foods[macro.target]
        return f"put the {food} in the bowl" if held == BOWL else f"pick up the {food}"
    if macro.verb is Verb.GET_BOWL:
        return "take the bowl" if _bowl_is_plain(task, state, view_radius) else "take the empty bowl"
    if macro.verb is Verb.GO_TO_BOARD:
        return _board_phrase(task, state, macro.target)
    if macro.verb is Verb.DELIVER:
        return "serve nothing" if held is None else "serve the dish"
    return _chop_phrase(task, state)


def _bowl_is_plain(task: KitchenTask, state: KitchenState, view_radius: int) -> bool:
    """Whether the phrase leaves out "empty": always in some tasks, else for a filled bowl that the cook can see."""
    if not task.names_empty_bowl:
        return True
    seen_on_board = state.bowl in task.boards and in_view(state.agent, state.bowl, view_radius)
    return bool(state.contents()) and (state.bowl == HAND or seen_on_board)


def _board_phrase(task: KitchenTask, state: KitchenState, board: int) -> str:
    held, name = state.item_at(HAND), _board_name(task, board)
    if held == BOWL:
        return f"put the bowl on the {name}"
    if held is not None and not state.foods[held].chopped:
        return f"put the {task.foods[held]} on the {name}"
    return f"walk to the {name}"


def _chop_phrase(task: KitchenTask, state: KitchenState) -> str:
    board = _board_here(task, state)
    item = None if board is None else state.item_at(task.boards[board])
    return "chop nothing" if item is None or item == BOWL else f"chop the {task.foods[item]}"


def _with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _join(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
