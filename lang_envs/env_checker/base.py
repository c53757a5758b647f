"""Checks: their form, their messages and their runner."""

from __future__ import annotations

import reprlib
import traceback
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym

from lang_envs.errors import LangEnvsError

__all__ = ["Check", "ConformanceError", "Make", "NotApplicableError", "Result", "Status", "expect", "run_check"]

Make = Callable[..., gym.Env[Any, Any]]
"""Function that makes a new instance of the environment under test; keyword arguments as for `gym.make`."""

_shorten = reprlib.Repr()
_shorten.maxstring = _shorten.maxother = 160
_shorten.maxlist = _shorten.maxdict = 8


class ConformanceError(LangEnvsError, AssertionError):
    """An environment breaks the contract; the message has the expected value, the actual one, and the fix."""


class NotApplicableError(LangEnvsError):
    """A check does not apply to an environment; the message gives the reason."""


class Check(NamedTuple):
    """One point of the contract.

    Attributes:
        name: Name of the function, for lists and tests.
        description: Description in one line.
        function: Function that raises `ConformanceError` or any error of the environment; `NotApplicableError` to be
            skipped.
    """

    name: str
    description: str
    function: Callable[[Make], None]


class Status(Enum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class Result(NamedTuple):
    """Outcome of one check; `message` is the reason of a failure or a skip."""

    name: str
    status: Status
    message: str = ""


def expect(condition: bool, expected: str, got: object, fix: str) -> None:
    """Raise where the contract is broken.

    Args:
        condition: Whether the contract is kept.
        expected: Text that completes "Expected ...".
        got: Value found: a `str` as it stands, anything else as its shortened `repr`.
        fix: Text that completes "Fix: ...".

    Raises:
        ConformanceError: If `condition` is false.
    """
    if not condition:
        shown = got if isinstance(got, str) else _shorten.repr(got)
        raise ConformanceError(f"Expected {expected}; got {shown}. Fix: {fix}.")


def run_check(check: Check, make: Make) -> Result:
    """Run one check; any exception becomes its result."""
    try:
        check.function(make)
    except NotApplicableError as reason:
        return Result(check.name, Status.SKIPPED, str(reason))
    except ConformanceError as error:
        return Result(check.name, Status.FAILED, str(error))
    except Exception as error:  # an environment under test may raise anything
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name}:{frame.lineno}"
        return Result(check.name, Status.FAILED, f"Expected no error; got {type(error).__name__}: {error} ({where}).")
    return Result(check.name, Status.PASSED)
