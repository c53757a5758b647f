"""Texts of a report without home folders, keys and passwords."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = ["flat_facts", "without_private"]

_HOMES = re.compile(r"(?<![\w.~])/(?:home|Users)/[^/\s'\":,;()]+")
_ACCOUNT = re.compile(r"(?<=://)[^/\s'\"]*@")
_NAME = r"(?:api_?key|(?:access|auth|hub|hf)_?token|password|passwd|secret)"
_SECRET = re.compile(rf"(?i)((?<![a-z]){_NAME}['\"]?\s*[=:]\s*['\"]?)[^\s,;'\"]+")


def without_private(text: str) -> str:
    """Return a text with home folders written as `~`, and without keys, passwords and accounts of addresses."""
    home = str(Path.home())
    if len(home) > 1:
        text = re.sub(rf"(?<![\w.~]){re.escape(home)}(?![\w.-])", "~", text)
    return _SECRET.sub(r"\1...", _ACCOUNT.sub("", _HOMES.sub("~", text)))


def flat_facts(name: str, value: object) -> Iterator[tuple[str, str]]:
    """Yield the leaves of nested mappings as texts, by dotted names; keys and passwords as `...`."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from flat_facts(f"{name}.{key}", inner)
    elif value and re.search(rf"(?i)(?:^|[._]){_NAME}$", name):
        yield name, "..."
    else:
        yield name, ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
