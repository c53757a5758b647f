"""Text of strangers, made fit for a terminal, a comment or a log."""

from __future__ import annotations

__all__ = ["printable"]


def printable(line: str) -> str:
    """A line without characters that could end it, hide it or move a terminal's cursor."""
    return "".join(c if c.isprintable() or c == "\t" else c.encode("unicode_escape").decode("ascii") for c in line)
