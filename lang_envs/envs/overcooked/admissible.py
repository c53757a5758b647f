"""The admissible actions of the kitchen: one phrase for every macro-action, in the words that fit the state."""

from __future__ import annotations

from lang_envs.envs.overcooked.describe import board_here, board_name
from lang_envs.envs.overcooked.kitchen import BOWL, HAND, KitchenState
from lang_envs.envs.overcooked.macro_actions import Macro, Verb, in_view, macros_of
from lang_envs.envs.overcooked.tasks import KitchenTask


def admissible_phrases(task: KitchenTask, state: KitchenState, view_radius: int) -> tuple[str, ...]:
    """Return the phrase of every macro-action, in the order of `macros_of`."""
    return tuple(_phrase(task, state, macro, view_radius) for macro in macros_of(task))


def _phrase(task: KitchenTask, state: KitchenState, macro: Macro, view_radius: int) -> str:
    held = state.item_at(HAND)
    if macro.verb is Verb.GET_FOOD:
        food = task.foods[macro.target]
        return f"put the {food} in the bowl" if held == BOWL else f"pick up the {food}"
    if macro.verb is Verb.GET_BOWL:
        # "empty" is left out always in some tasks, else for a filled bowl that the cook can see
        is_visible = state.bowl == HAND or (state.bowl in task.boards and in_view(state.agent, state.bowl, view_radius))
        plain = not task.names_empty_bowl or (bool(state.contents()) and is_visible)
        return "take the bowl" if plain else "take the empty bowl"
    if macro.verb is Verb.GO_TO_BOARD:
        board = board_name(task, macro.target)
        if held is None or (held != BOWL and state.foods[held].chopped):
            return f"walk to the {board}"
        return f"put the {'bowl' if held == BOWL else task.foods[held]} on the {board}"
    if macro.verb is Verb.DELIVER:
        return "serve nothing" if held is None else "serve the dish"
    near_board = board_here(task, state)
    lying = None if near_board is None else state.item_at(task.boards[near_board])
    return "chop nothing" if lying is None or lying == BOWL else f"chop the {task.foods[lying]}"
