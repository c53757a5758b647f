"""Checks of arguments that environments share."""

from __future__ import annotations

import contextlib
import math
import numbers
from collections.abc import Iterable
from typing import SupportsFloat, TypeGuard

import numpy as np

from lang_envs.errors import RewardError

__all__ = ["check_choice", "check_flags", "check_integer", "finite_reward", "is_number", "reward_number"]


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a finite real number, numpy's included, and not a bool."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an int beyond all floats
        return False


def check_integer(name: str, value: object, least: int, most: float = math.inf) -> None:
    """Raise unless the value is a Python integer in a range, and not a bool.

    Raises:
        ValueError: If the value is not an integer in the range.
    """
    if type(value) is not int or not least <= value <= most:
        limits = f"of at least {least}" if most == math.inf else f"from {least} to {most}"
        fix = f" Fix: int({name})." if isinstance(value, np.integer) else ""
        raise ValueError(f"Expected {name} to be an integer {limits}; got {value!r:.80}.{fix}")


def check_choice(name: str, value: object, choices: Iterable[object]) -> None:
    """Raise unless the value is one of the choices, of the same type.

    Raises:
        ValueError: If the value is not one of the choices.
    """
    choices = list(choices)
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        raise ValueError(f"Expected {name} to be one of {choices}; got {value!r}. Fix: choose one of them.")


def check_flags(**flags: object) -> None:
    """Raise unless every value is True or False; a text such as "False" would count as true.

    Raises:
        TypeError: If a value is not a bool.
    """
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise TypeError(f"Expected {name} to be True or False; got {flag!r}.")


def reward_number(reward: object, env: object) -> float:
    """Return the reward of a step as a float: that of a number, or of an array or tensor that holds one number.

    Args:
        reward: Reward as the environment returned it. NaN and infinity are returned too.
        env: Environment, for the message.

    Raises:
        RewardError: If the reward is anything else.
    """
    if type(reward) is float:
        return reward
    with contextlib.suppress(TypeError, ValueError, OverflowError, RuntimeError):  # of numpy, and of torch
        number = reward.item() if hasattr(reward, "item") else reward
        if isinstance(number, SupportsFloat) and not bool(getattr(reward, "mask", False)):  # of a masked array
            return float(number)
    raise RewardError(
        f"Expected a number as reward of {env}; got {' '.join(repr(reward).split())[:80]}. "
        "Fix: return a float from its step()."
    )


def finite_reward(reward: object, env: object) -> float:
    """Return the reward of a step as a finite float; see `reward_number`.

    Raises:
        RewardError: If the reward is no single number, or not finite.
    """
    number = reward_number(reward, env)
    if not math.isfinite(number):
        raise RewardError(f"Expected a finite number as reward of {env}; got {number}. Fix: correct the environment.")
    return number
