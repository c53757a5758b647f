"""Trainings in several processes: ranks that split the passes through the model, and environments on Ray."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from poad_sb3.distributed.ranks import Ranks, current_ranks, end_ranks, start_ranks

__all__ = ["Ranks", "current_ranks", "end_ranks", "start_ranks"]


def __getattr__(name: str) -> Any:
    """Import the ranks at their first use: Ray actors measure agents without torch."""
    if name in __all__:
        return getattr(import_module("poad_sb3.distributed.ranks"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
