"""Tables on the terminal and in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table

from lang_envs.cli.common import console
from lang_envs.text import one_line

_NUMBER = re.compile(r"[-+]?[\d,]*\.?\d+(e-?\d+)?( ?%)?( \[.*\])?")
"""Pattern of a number with its interval."""


def show_table(
    head: Sequence[str], rows: Iterable[Iterable[object]], *, title: str = "", caption: str = "", width: int = 0
) -> None:
    """Print a table; all columns but the first are set flush right, numbers have five digits."""
    table = Table(box=None, title=title or None, caption=caption or None)
    for number, name in enumerate(head):
        table.add_column(name, justify="right" if number else "left", no_wrap=not number)
    for row in rows:
        table.add_row(*map(_cell, row))
    console(width or None).print(table)


def show_records(title: str, records: Mapping[str, Mapping[str, Any]], columns: Sequence[str], width: int = 0) -> None:
    """Print some fields of records, a row for each name."""
    rows = ((name, *(record.get(column) for column in columns)) for name, record in records.items())
    show_table((title, *(column.replace("_", " ") for column in columns)), rows, width=width)


def _cell(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{one_line(str(name))}: {_cell(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return " to ".join(map(_cell, value))
    if value is None:
        return "-"
    return f"{value:.5g}" if isinstance(value, float) else f"{value:,}" if type(value) is int else one_line(str(value))


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; columns of numbers are set flush right."""
    rows = [tuple(row) for row in rows]
    filled = [[cell for cell in column if cell] for column in zip(*rows, strict=True)]
    numeric = [bool(cells) and all(map(_NUMBER.fullmatch, cells)) for cells in filled]
    lines = [head, ["---:" if right else "---" for right in numeric], *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
