"""Options of measurements."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import typer


def one_of(known: Collection[str], help: str = "", *names: str) -> Any:
    """Return an option whose values are some known names; others are refused."""

    def check(value: str | list[str] | None) -> str | list[str] | None:
        for one in [value] if isinstance(value, str) else value or ():
            if one not in known:
                raise typer.BadParameter(f"Expected one of {', '.join(known)}; got {one!r}.")
        return value

    listed = f"Among {', '.join(known)}. " if len(known) < 10 else ""
    return typer.Option(*names, metavar="NAME", callback=check, help=listed + help)
