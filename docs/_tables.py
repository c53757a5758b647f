"""Pieces of Markdown that are read off the live code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import griffe
import gymnasium as gym
import numpy as np
from _root import ROOT

import poad_sb3.settings

__all__ = [
    "arguments",
    "code",
    "described_attributes",
    "docstring",
    "episode",
    "info_fields",
    "percent",
    "quoted",
    "table",
]

_LONGEST_SHOWN = 40  # characters of a text of several lines
_NUMBER = re.compile(r"[-+]?[\d,]*\.?\d+(e-?\d+)?( %)?")


# ---------------------------------------------------------------------- Markdown


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; columns of numbers are set flush right."""
    rows = [tuple(row) for row in rows]
    filled = [[cell for cell in column if cell] for column in zip(*rows, strict=True)]
    numeric = [bool(cells) and all(map(_NUMBER.fullmatch, cells)) for cells in filled] or [False] * len(head)
    lines = [head, ["---:" if right else "---" for right in numeric], *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def code(text: str) -> str:
    """Text as code."""
    return f"`{text}`"


def quoted(text: str) -> str:
    """An observation: a sentence as a quotation, several lines as code that is shown only."""
    return f"```py\n{text}\n```" if "\n" in text else f"> {text}"


def percent(rate: float) -> str:
    """A rate to three digits: 0.0030437 is 0.304 %, 1 is 100 %."""
    return f"{f'{100 * rate:#.3g}'.rstrip('.')} %"


# ---------------------------------------------------------------------- docstrings


@lru_cache
def docstring(path: str) -> tuple[griffe.DocstringSection, ...]:
    """Sections of the docstring of `package.module.Class`."""
    return tuple(_class(path).docstring.parse("google"))


def _class(path: str) -> griffe.Class:
    package, _, rest = path.partition(".")
    return _package(package)[rest]


@lru_cache
def _package(name: str) -> griffe.Module:
    return griffe.load(name, search_paths=[str(ROOT)])


def _described(path: str, kind: griffe.DocstringSectionKind) -> dict[str, str]:
    section = next(section for section in docstring(path) if section.kind is kind)
    return {entry.name: " ".join(entry.description.split()) for entry in section.value}


def described_attributes(path: str) -> dict[str, str]:
    """Attributes of a class, with what its docstring says of them."""
    return _described(path, griffe.DocstringSectionKind.attributes)


def arguments(path: str) -> str:
    """Table of a class's arguments: names and defaults from its signature, meaning from its docstring."""
    owners = ["lang_envs.core.LangEnv", path] if path.startswith("lang_envs.envs.") else [path]  # shared options first
    parameters = [one for owner in owners for one in _class(owner).members["__init__"].parameters]
    defaults = {parameter.name: parameter.default for parameter in parameters}
    described = _described(path, griffe.DocstringSectionKind.parameters)
    rows = [
        (code(name), "" if defaults[name] is None else code(str(defaults[name])), meaning)
        for name, meaning in described.items()
        if not name.startswith("_")
    ]
    return table(("argument", "default", "meaning"), rows)


def settings(name: str) -> str:
    """Table of the fields of `PPOSettings`, `SamplingSettings` or `ModelSettings`."""
    kind = getattr(poad_sb3.settings, name)
    kinds, helps = kind.kinds(), kind.help()
    rows = [
        (code(field), code(repr(default) if default == "" else str(default)), kinds[field].allowed, helps[field])
        for field, default in kind.defaults().items()
    ]
    return table(("argument", "default", "values", "meaning"), rows)


# ---------------------------------------------------------------------- episodes


def info_fields(info: dict[str, Any]) -> str:
    """Table of what `info` holds."""
    rows = [(code(key), code(type(value).__name__), code(_plain(value))) for key, value in info.items()]
    return table(("key of `info`", "type", "value"), rows)


def _plain(value: Any) -> str:
    if isinstance(value, str) and (not value or "\n" in value):
        return (
            repr(value) if len(value) <= _LONGEST_SHOWN else f"{value[:_LONGEST_SHOWN]!r}... ({len(value)} characters)"
        )
    return str(value.tolist() if isinstance(value, np.ndarray) else value)


def episode(env: gym.Env[Any, Any], actions: Iterable[str]) -> str:
    """Table of an episode that has been reset: what is said, what the family tells of it, what it earns."""
    rows, clock, total, counted = [], 0, 0.0, False
    for number, action in enumerate(actions, start=1):
        _, reward, terminated, truncated, info = env.unwrapped.step_text(action)
        total, counted = total + float(reward), "primitive_steps" in info
        clock += info.get("primitive_steps", 0)
        moves = (str(info["primitive_steps"]), str(clock)) if counted else ()
        rows.append((str(number), code(action), *moves, f"{float(reward):.6g}", f"{total:.6g}"))
        if terminated or truncated:
            break
    return table(("", "action", *(("primitives", "clock") if counted else ()), "reward", "sum"), rows)
