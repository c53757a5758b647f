"""Texts and settings without keys, passwords and home folders: results are published with settings and commands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, overload

__all__ = ["flat_facts", "without_private", "without_secrets"]

_HOMES = re.compile(r"(?<![\w.~])/(?:home|Users)/[^/\s'\":,;()]+")
_ACCOUNT = re.compile(r"(?<=://)[^/\s'\"]*@")
_QUERY = re.compile(r"(://[^?#\s'\"]*)[?#][^\s'\"]*")
_NAME = (
    r"(?:(?:x-)?(?:api|access|secret|private)[_-]?key|(?:access|auth|hub|hf|api|bearer)[_-]?token|password|passwd|secret"
    r"|authorization)"
)
_VALUE = r"(?:(?P<quote>['\"]).*?(?P=quote)|[^\s,;'\"{}\[\]]+)"
_SECRET = re.compile(rf"(?i)((?<![a-z]){_NAME}['\"]?\s*[=:]\s*|['\"]token['\"]\s*:\s*|(?<![\w-])token=){_VALUE}")
_ARGUMENT = re.compile(rf"(?is)((?:[\w-]+[=.])*(?:(?:[\w-]*[_-])?{_NAME}|token))=.*")
"""Pattern of a secret setting in a command; its value may have spaces."""
_IS_SECRET = re.compile(rf"(?i)(?:^|[._-]){_NAME}$|(?:^|\.)token$")


def without_secrets(value: Any) -> Any:
    """Return texts, also of nested mappings and lists, without keys, passwords, and accounts and queries of addresses.

    The value of a setting with a name such as `api_key`, `password` or `token` becomes "...", also in "NAME=VALUE".
    """
    return _hidden(value, _without_secrets)


@overload
def without_private(value: str) -> str: ...
@overload
def without_private(value: Any) -> Any: ...
def without_private(value: Any) -> Any:
    """Return texts, also of nested mappings and lists, without secrets, and with home folders written as `~`."""
    return _hidden(value, lambda text: _without_secrets(_without_homes(text)))


def _hidden(value: Any, hide: Callable[[str], str]) -> Any:
    if isinstance(value, Mapping):
        return {
            name: "..." if item and _IS_SECRET.search(str(name)) else _hidden(item, hide)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_hidden(item, hide) for item in value]
    return hide(value) if isinstance(value, str) else value


def _without_secrets(text: str) -> str:
    if argument := _ARGUMENT.fullmatch(text):
        return f"{argument[1]}=..."
    without_accounts = _QUERY.sub(r"\1", _ACCOUNT.sub("", text))
    return _SECRET.sub(lambda match: f"{match[1]}{match['quote'] or ''}...{match['quote'] or ''}", without_accounts)


def _without_homes(text: str) -> str:
    home = str(Path.home())
    if len(home) > 1:
        text = re.sub(rf"(?<![\w.~]){re.escape(home)}(?![\w.-])", "~", text)
    return _HOMES.sub("~", text)


def flat_facts(name: str, value: object) -> Iterator[tuple[str, str]]:
    """Yield the leaves of nested mappings as texts, by dotted names; keys and passwords as `...`."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from flat_facts(f"{name}.{key}", inner)
    elif value and _IS_SECRET.search(name):
        yield name, "..."
    else:
        yield name, ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
