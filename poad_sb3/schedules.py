"""Learning rates: constant, falling during training, or any function of the progress remaining.

Importing this module imports nothing of the `llm` extra.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stable_baselines3.common.type_aliases import Schedule

__all__ = ["is_linear", "schedule_of"]

_LINEAR = re.compile(r"lin_(\d.*)")


def is_linear(rate: object) -> bool:
    """Whether it is `"lin_NUMBER"`: a rate that falls from that number to 0 during training.

    So RL Baselines3 Zoo writes it. It is text, which a command line, a preset and a study can hold and a function not.
    """
    return isinstance(rate, str) and _number(rate) is not None


def schedule_of(name: str, rate: object) -> Schedule:
    """A learning rate as a function of the progress remaining, which falls from 1 to 0.

    Args:
        name: Of the argument, for the error.
        rate: A number, `"lin_NUMBER"` (see `is_linear`), or a function.

    Raises:
        ValueError: For anything else, and for numbers that are negative or not finite.
    """
    from stable_baselines3.common.utils import FloatSchedule, LinearSchedule

    if callable(rate):
        return FloatSchedule(rate)
    first = _number(rate)
    if first is None:
        raise ValueError(
            f"Expected {name} to be a number of at least 0, one that falls to 0 during training ('lin_3e-3'), or a "
            f"function of the progress remaining; got {rate!r}."
        )
    return FloatSchedule(LinearSchedule(first, 0.0, 1.0) if isinstance(rate, str) else first)


def _number(rate: object) -> float | None:
    """What it begins with; None if it is no rate."""
    if isinstance(rate, str):
        found = _LINEAR.fullmatch(rate)
        rate = found[1] if found else None
    try:
        number = None if isinstance(rate, bool) else float(rate)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return number if number is not None and math.isfinite(number) and number >= 0 else None
