"""`poad presets`: list the presets, or show one."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from lang_envs.cli.common import console
from lang_envs.text import nearest
from poad_sb3.cli.common import fail
from poad_sb3.common.hyperparameters import preset
from poad_sb3.presets import PRESETS


def presets(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Show this one in full.")] = None,
) -> None:
    """List the presets, or show one."""
    if name is None:
        table = Table("preset", "for", "from", box=None)
        for row, entry in PRESETS.items():
            table.add_row(Text(row, style="cyan", no_wrap=True), Text(", ".join(entry.methods)), Text(entry.summary))
        console().print(table)
    elif name in PRESETS:
        _show(name)
    else:
        fail(f"There is no preset {name!r}. {nearest(name, PRESETS)}")


def _show(name: str) -> None:
    """Show the arguments of a preset for every algorithm, and its notes."""
    entry = PRESETS[name]
    columns = {algorithm: preset(name, algorithm) for algorithm in entry.methods}
    table = Table("argument", *columns, box=None)
    for argument in dict.fromkeys(key for arguments in columns.values() for key in arguments):
        values = [arguments.get(argument, "-") for arguments in columns.values()]
        cells = (value if isinstance(value, str) else json.dumps(value) for value in values)
        table.add_row(Text(argument, style="cyan", no_wrap=True), *map(Text, cells))
    console().print(Text(f"{name}: {entry.summary}; {entry.n_envs} environments", style="bold"))
    console().print(table)
    console().print(Text(entry.note))
