"""Names of strangers' columns, short enough for a message."""

from __future__ import annotations

from collections.abc import Sequence

from lang_envs.datasets.errors import TableError

MAX_NAME = 60
"""Characters of a name that go into the prompt or a message."""
_MAX_SHOWN = 20


def listed(names: Sequence[str]) -> str:
    """Names with commas between them, not too many."""
    return ", ".join(shown(name) for name in names[:_MAX_SHOWN]) + (", ..." if names[_MAX_SHOWN:] else "")


def shown(name: object) -> str:
    """A name in quotes, cut."""
    return repr(str(name)[:MAX_NAME])


def check_names(names: list[str]) -> None:
    """Refuse a name that occurs twice."""
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise TableError(f"Expected every column once; got {listed(twice)} more than once. Fix: rename them.")
