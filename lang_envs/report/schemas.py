"""Checks of JSON values, compiled from the JSON Schemas of the lines of results files.

The subset of JSON Schema 2020-12 that `schema/*.schema.json` use. Numbers have to be finite as well.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["KINDS", "Check", "WrongValueError", "checker_of", "compile_schema", "load_schema", "shown"]

KINDS = ("header", "episode", "step")
"""Kinds of lines of results files."""
_FOLDER = Path(__file__).parent / "schema"

Check = Callable[[Any], None]
_TYPES: Mapping[str, tuple[frozenset[type], str]] = {
    "string": (frozenset({str}), "a text"),
    "number": (frozenset({int, float}), "a finite number"),
    "integer": (frozenset({int, float}), "an integer"),
    "boolean": (frozenset({bool}), "true or false"),
    "null": (frozenset({type(None)}), "null"),
    "array": (frozenset({list}), "a list"),
    "object": (frozenset({dict}), "an object"),
}
"""Python types that `json` returns for each JSON type, and its name in messages."""
_KEYWORDS = frozenset(
    [
        *("$schema", "title", "description", "type", "const", "minimum", "maximum"),
        *("items", "prefixItems", "minItems", "maxItems"),
        *("required", "properties", "additionalProperties"),
    ]
)
_SHOWN = 60


class WrongValueError(Exception):
    """A value that does not agree with its schema.

    Attributes:
        expected: Expected value, in words.
        got: Actual value, as text.
        field: Names and indices that lead to the value, from the outside.
    """

    def __init__(self, expected: str, got: str, *field: str | int) -> None:
        super().__init__(expected, got)
        self.expected, self.got, self.field = expected, got, list(field)

    def __str__(self) -> str:
        """Return the fault in words, such as `seeds[0] is null instead of an integer`."""
        fault = "missing" if self.got == "none" else f"{self.got} instead of {self.expected}"
        return f"{self.path or 'the whole'} is {fault}"

    @property
    def path(self) -> str:
        """The field as text, such as `advantages.POAD[3]`."""
        parts = (f"[{part}]" if isinstance(part, int) else f".{shown(part)[1:-1]}" for part in self.field)
        return "".join(parts).removeprefix(".")


def shown(value: object) -> str:
    """Return the beginning of a JSON value in ASCII, so that it can be printed anywhere."""
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


@cache
def load_schema(kind: str) -> dict[str, Any]:
    """Return the schema of a kind of line, one of `KINDS`."""
    schema: dict[str, Any] = json.loads((_FOLDER / f"{kind}.schema.json").read_text(encoding="utf-8"))
    return schema


@cache
def checker_of(kind: str) -> Check:
    """Return the check of a kind of line; it raises `WrongValueError`."""
    return compile_schema(load_schema(kind))


def compile_schema(schema: Mapping[str, Any]) -> Check:
    """Return a function that raises `WrongValueError` where a value does not agree with a schema.

    Raises:
        ValueError: If the schema uses a keyword that is not implemented here.
    """
    if unknown := schema.keys() - _KEYWORDS:
        raise ValueError(f"Expected keywords among {sorted(_KEYWORDS)}; got {sorted(unknown)}.")
    names = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    kinds = frozenset[type]().union(*(_TYPES[name][0] for name in names))
    words = {"minimum": "at least", "maximum": "at most"}
    bounds = [f"{word} {schema[keyword]}" for keyword, word in words.items() if keyword in schema]
    limits = f" of {' and '.join(bounds)}" if bounds else ""
    expected = " or ".join(_TYPES[name][1] + limits * (name in ("number", "integer")) for name in names)
    checks: list[tuple[type, Check]] = []
    if kinds & {float}:
        checks += [(kind, _number_check(schema, expected, whole="integer" in names)) for kind in (int, float)]
    if kinds & {list}:
        checks.append((list, _array_check(schema)))
    if kinds & {dict}:
        checks.append((dict, _object_check(schema)))
    inner = dict(checks)
    constant = schema.get("const")

    def check(value: Any) -> None:
        kind = type(value)
        if kind not in kinds:
            raise WrongValueError(expected, shown(value))
        if kind in inner:
            inner[kind](value)
        if constant is not None and value != constant:
            raise WrongValueError(shown(constant), shown(value))

    return check


def _number_check(schema: Mapping[str, Any], expected: str, *, whole: bool) -> Check:
    smallest, largest = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)

    def check(value: float) -> None:
        if not (_are_finite([value]) and (not whole or int(value) == value) and smallest <= value <= largest):
            raise WrongValueError(expected, shown(value))

    return check


def _are_finite(values: Iterable[float]) -> bool:
    try:
        return all(map(math.isfinite, values))
    except OverflowError:  # an integer beyond the floats
        return False


def _array_check(schema: Mapping[str, Any]) -> Check:
    fewest, most = schema.get("minItems", 0), schema.get("maxItems", math.inf)
    first = [compile_schema(item) for item in schema.get("prefixItems", ())]
    each = compile_schema(schema["items"]) if "items" in schema else None
    are_plain = _plain_check(schema.get("items", {}))

    def check(values: list[Any]) -> None:
        if not fewest <= len(values) <= most:
            limits = f"{fewest} or more" if most == math.inf else str(most) if fewest == most else f"at most {most}"
            raise WrongValueError(f"a list of {limits}", f"{len(values)}")
        if are_plain is not None and are_plain(values):
            return
        for index, value in enumerate(values):
            check_item = first[index] if index < len(first) else each
            try:
                if check_item is not None:
                    check_item(value)
            except WrongValueError as error:
                error.field.insert(0, index)
                raise

    return check


def _plain_check(items: Mapping[str, Any]) -> Callable[[list[Any]], bool] | None:
    """Return a fast test of lists of texts and of numbers, that are most of a file; None for other lists."""
    if items.keys() - {"type", "description"} or items.get("type") not in ("string", "number"):
        return None
    kinds, is_text = _TYPES[items["type"]][0], items["type"] == "string"
    return lambda values: kinds.issuperset(map(type, values)) and (is_text or _are_finite(values))


def _object_check(schema: Mapping[str, Any]) -> Check:
    required = schema.get("required", ())
    checks = {name: compile_schema(item) for name, item in schema.get("properties", {}).items()}
    other = compile_schema(schema["additionalProperties"]) if "additionalProperties" in schema else None

    def check(values: dict[str, Any]) -> None:
        for name in required:
            if name not in values:
                raise WrongValueError("a value", "none", name)
        for name, value in values.items():
            check_value = checks.get(name, other)
            try:
                if check_value is not None:
                    check_value(value)
            except WrongValueError as error:
                error.field.insert(0, name)
                raise

    return check
