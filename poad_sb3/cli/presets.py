"""Print presets."""

from __future__ import annotations

import json

from rich.console import Console
from rich.table import Table
from rich.text import Text

from poad_sb3.common.hyperparameters import preset
from poad_sb3.presets import PRESETS


def list_presets(console: Console) -> None:
    """Print one line for each preset."""
    table = Table("preset", "for", "from", box=None)
    for name, entry in PRESETS.items():
        table.add_row(Text(name, style="cyan", no_wrap=True), Text(", ".join(entry.methods)), Text(entry.summary))
    console.print(table)


def show_preset(console: Console, name: str) -> None:
    """Show the arguments of a preset for every algorithm, and its notes."""
    entry = PRESETS[name]
    columns = {algorithm: preset(name, algorithm) for algorithm in entry.methods}
    table = Table("argument", *columns, box=None)
    for argument in dict.fromkeys(key for arguments in columns.values() for key in arguments):
        cells = (_shown(arguments[argument]) if argument in arguments else "-" for arguments in columns.values())
        table.add_row(Text(argument, style="cyan", no_wrap=True), *map(Text, cells))
    console.print(Text(f"{name}: {entry.summary}; {entry.n_envs} environments", style="bold"))
    console.print(table)
    console.print(Text(entry.note))


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
