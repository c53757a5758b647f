"""Text for messages: suggestions for misspelt names, escapes for untrusted text."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

__all__ = ["MAX_NAME", "listed", "nearest", "printable", "shown"]

MAX_NAME = 60
"""Maximum number of characters of a foreign name in a prompt or a message."""
_MAX_LISTED = 20
_MAX_KNOWN = 40


def nearest(word: str, known: Iterable[str], otherwise: str = "", n: int = 3) -> str:
    """Suggest known names for an unknown one.

    Args:
        word: Unknown name; its case does not matter.
        known: Known names.
        otherwise: Text to return if none is similar; by default a sentence that lists the known names.
        n: Maximum number of suggestions.
    """
    names = {str(one).casefold(): str(one) for one in known}
    near = [names[match] for match in difflib.get_close_matches(str(word).casefold(), names, n=n, cutoff=0.5)]
    if near:
        return f"Did you mean {' or '.join(near)}?"
    shortened = [*sorted(names.values())[:_MAX_KNOWN], *(["..."] if len(names) > _MAX_KNOWN else [])]
    return otherwise or f"Known: {', '.join(shortened) or 'none'}."


def printable(line: str) -> str:
    """Escape characters that could end a line, hide it or move a terminal's cursor."""
    return "".join(c if c.isprintable() or c == "\t" else c.encode("unicode_escape").decode("ascii") for c in line)


def shown(name: object) -> str:
    """Quote a foreign name, cut to its first characters."""
    return repr(str(name)[:MAX_NAME])


def listed(names: Sequence[str]) -> str:
    """Quote foreign names, with commas between them, not too many."""
    return ", ".join(map(shown, names[:_MAX_LISTED])) + (", ..." if names[_MAX_LISTED:] else "")
