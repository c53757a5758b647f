"""The one table of environments; importing `lang_envs` registers its rows with Gymnasium.

An id is a contract: once released, its behaviour changes only under a new `-vN`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym

__all__ = ["ENV_ROWS", "EnvRow", "register_envs"]


@dataclass(frozen=True)
class EnvRow:
    """One environment id.

    Attributes:
        id: Gymnasium id.
        entry_point: `"module:Class"`; imported at the first `gym.make`.
        kwargs: Arguments that make this task out of its family.
        summary: One line for lists.
    """

    id: str
    entry_point: str
    summary: str
    kwargs: dict[str, Any] = field(default_factory=dict)


_KITCHEN = "lang_envs.overcooked.env:OvercookedEnv"

ENV_ROWS: tuple[EnvRow, ...] = (
    EnvRow(
        "Overcooked-TomatoSalad-v0",
        _KITCHEN,
        "One cook, one tomato, one board: chop it, fill the bowl, serve.",
        {"task": "tomato-salad"},
    ),
)


def register_envs() -> None:
    """Register every row that Gymnasium does not know yet.

    Time limits are the tasks' own budgets (they count primitives or attempts, and belong to `get_state`), so no
    `max_episode_steps` is registered and no `TimeLimit` wrapper is added.
    """
    for row in ENV_ROWS:
        if row.id not in gym.registry:
            gym.register(row.id, entry_point=row.entry_point, kwargs=row.kwargs)
