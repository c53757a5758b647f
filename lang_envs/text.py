"""Text for messages: suggestions for misspelt names, escapes for untrusted text, one for each target."""

from __future__ import annotations

import difflib
import html
import re
import unicodedata
from collections.abc import Iterable, Sequence

__all__ = ["MAX_NAME", "listed", "markdown_text", "nearest", "one_line", "printable", "shown", "terminal_text"]

MAX_NAME = 60
"""Maximum number of characters of a foreign name in a prompt or a message."""
_MAX_LISTED = 20
_MAX_KNOWN = 40
_MARKUP = re.compile(
    r"[\\`*{}|~$]"  # anywhere
    r"|(?<![^\W_])_|_(?![^\W_])"  # inside a word it is no emphasis
    r"|^[#+\-=!?]|^\d+[.)]"  # only at the beginning
    r"|:(?=//)|(?<=www)\.",  # addresses, which become links by themselves
    re.IGNORECASE,
)


def nearest(word: str, known: Iterable[str], otherwise: str = "", n: int = 3) -> str:
    """Suggest known names for an unknown one.

    Args:
        word: Unknown name; its case does not matter.
        known: Known names.
        otherwise: Text to return if none is similar; by default a sentence that lists the known names.
        n: Maximum number of suggestions.
    """
    names = {str(name).casefold(): str(name) for name in known}
    near = [names[match] for match in difflib.get_close_matches(str(word).casefold(), names, n=n, cutoff=0.5)]
    if near:
        return f"Did you mean {' or '.join(near)}?"
    shortened = [*sorted(names.values())[:_MAX_KNOWN], *(["..."] if len(names) > _MAX_KNOWN else [])]
    return otherwise or f"Known: {', '.join(shortened) or 'none'}."


def printable(line: str) -> str:
    """Escape characters that could end a line, hide it or move a terminal's cursor."""
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() or c == "\t" else c.encode("unicode_escape").decode("ascii") for c in line)


def one_line(text: str) -> str:
    """Return a text as one printable line, for names in rows, captions and sentences."""
    return printable(" ".join(text.split()))


def terminal_text(text: str) -> str:
    """Escape a text for a terminal; its lines stay lines, and spaces of any width stay spaces."""
    if text.isprintable():
        return text
    lines = text.split("\n")
    return "\n".join("".join(c if unicodedata.category(c) == "Zs" else printable(c) for c in line) for line in lines)


def markdown_text(text: str) -> str:
    """Escape a text for Markdown, as one line: no markup, HTML, formula or link."""
    line = html.escape(one_line(text), quote=False)
    escaped = _MARKUP.sub(lambda match: f"{match[0][:-1]}&#{ord(match[0][-1])};", line)
    return re.sub(r"([\[\]])", r"\\\1", escaped)  # which is easier to read, and all dialects know it


def shown(name: object) -> str:
    """Quote a foreign name, cut to its first characters."""
    return repr(str(name)[:MAX_NAME])


def listed(names: Sequence[str]) -> str:
    """Quote foreign names, with commas between them, not too many."""
    return ", ".join(map(shown, names[:_MAX_LISTED])) + (", ..." if names[_MAX_LISTED:] else "")
