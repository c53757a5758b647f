"""Schedules of learning rates and clip ranges: constants, falling lines, functions of the progress remaining.

Importing this module imports nothing of the `llm` extra.
"""

from __future__ import annotations

import math
import numbers
import re
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stable_baselines3.common.type_aliases import Schedule

__all__ = ["SCHEDULED", "is_linear", "schedule_of", "warn_if_nothing_is_learned"]

SCHEDULED = ("learning_rate", "critic_learning_rate", "clip_range", "clip_range_vf")
"""Arguments of the on-policy algorithms that may be schedules."""

_LINEAR = re.compile(r"lin_([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)")


def is_linear(rate: object) -> bool:
    """Whether it is `"lin_NUMBER"`: a schedule that falls from that number to 0 during training.

    So RL Baselines3 Zoo writes it. It is text, which a command line, a preset and a study can hold and a function not.
    As in SB3, an update has the rate of the moment after its rollout: the last one has 0.
    """
    return isinstance(rate, str) and _number(rate) is not None


def schedule_of(name: str, rate: object) -> Schedule:
    """Return a learning rate or clip range as a function of the progress remaining, which falls from 1 to 0.

    Args:
        name: Of the argument, for the error. A clip range must be above 0 at the start.
        rate: A number, `"lin_NUMBER"` (see `is_linear`), or a function.

    Raises:
        ValueError: For anything else, and for numbers that are out of range or not finite.
    """
    from stable_baselines3.common.utils import FloatSchedule, LinearSchedule

    if callable(rate):
        return FloatSchedule(rate)
    first = _number(rate)
    is_clip = name.startswith("clip_range")
    if first is None or (is_clip and first == 0):
        least, example = ("a positive number", "lin_0.2") if is_clip else ("a number of at least 0", "lin_3e-3")
        raise ValueError(
            f"Expected {name} to be {least}, one that falls to 0 during training ({example!r}), or a "
            f"function of the progress remaining; got {rate!r}."
        )
    return FloatSchedule(LinearSchedule(first, 0.0, 1.0) if isinstance(rate, str) else first)


def _number(rate: object) -> float | None:
    """What it begins with; None if it is no rate."""
    if isinstance(rate, str):
        found = _LINEAR.fullmatch(rate)
        number = float(found[1]) if found else math.nan
    elif isinstance(rate, numbers.Real) and not isinstance(rate, bool):
        try:
            number = float(rate)
        except OverflowError:
            return None
    else:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def warn_if_nothing_is_learned(rate: object, now: float) -> None:
    """Warn of a first update that is the last as well, where a falling rate is 0.

    Args:
        rate: As it was given.
        now: What it is at the first update.
    """
    if now == 0 and is_linear(rate):
        warnings.warn(
            f"Expected training of several rollouts; learning_rate={rate!r} has fallen to 0 at the first update, which "
            "changes nothing. Fix: train for more steps at once, or give a number.",
            RuntimeWarning,
            stacklevel=3,
        )
