"""Options of measurements."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any

import typer

from lang_bench.runner.errors import BenchmarkError

Count = Annotated[int, typer.Option(min=1)]
"""Type of an option for a size or a number of repeats."""


def one_of(choices: Collection[str], help: str = "", *names: str) -> Any:
    """Return an option that accepts known names only."""

    def check(value: str | list[str] | None) -> str | list[str] | None:
        for choice in [value] if isinstance(value, str) else value or ():
            if choice not in choices:
                raise typer.BadParameter(f"Expected one of {', '.join(choices)}; got {choice!r}.")
        return value

    listed = f"Among {', '.join(choices)}. " if len(choices) < 10 else ""
    return typer.Option(*names, metavar="NAME", callback=check, help=listed + help)


def parse_seeds(text: str) -> tuple[int, ...]:
    """Return the seeds of `0,1,2`.

    Raises:
        BenchmarkError: If the seeds are not integers.
    """
    try:
        return tuple(int(seed) for seed in text.split(",") if seed)
    except ValueError as error:
        message = f"Expected seeds as whole numbers with commas; got {text!r}. Fix: --seeds 0,1,2."
        raise BenchmarkError(message) from error
