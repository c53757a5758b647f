"""Check command-line settings against the annotations of their target."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lang_bench.agents.base import AgentError


def hints_of(target: Callable[..., object]) -> dict[str, Any]:
    """Return the annotations of the parameters of a callable; `Any` where there is none."""
    try:
        signature = inspect.signature(target, eval_str=True)
    except Exception:  # an annotation may be any expression, with names imported for type checkers only
        signature = inspect.signature(target)
    return {
        parameter.name: Any if parameter.annotation is parameter.empty else parameter.annotation
        for parameter in signature.parameters.values()
    }


def check_settings(
    name: str, settings: Mapping[str, object], allowed: Iterable[str] | None, hints: Mapping[str, Any]
) -> None:
    """Refuse settings that are not known (None for any), and values of the wrong type.

    Raises:
        AgentError: For the first unknown or ill-typed setting.
    """
    allowed = None if allowed is None else list(allowed)
    for setting, value in settings.items():
        if allowed is not None and setting not in allowed:
            listed = ", ".join(allowed) or "it has none"
            raise AgentError(f"Expected settings of {name!r}; got {setting!r}. Known: {listed}.")
        hint = hints.get(setting, Any)
        if not _fits(value, hint):
            wanted = getattr(hint, "__name__", hint) if isinstance(hint, type) else hint
            raise AgentError(
                f"Expected {setting} of {name!r} to be {wanted}; got {value!r}, which is {type(value).__name__}."
            )


def _fits(value: object, hint: Any) -> bool:
    """Return whether a value has a type, as far as plain types go; an integer is accepted as a float."""
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    kinds_of = [typing.get_origin(kind) or kind for kind in (typing.get_args(hint) if is_union else (hint,))]
    if Any in kinds_of or not all(isinstance(kind, type) for kind in kinds_of):  # not checkable here
        return True
    if isinstance(value, bool):
        return bool in kinds_of
    return isinstance(value, tuple(kinds_of)) or (isinstance(value, int) and float in kinds_of)
