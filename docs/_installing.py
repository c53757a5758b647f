"""The table of extras, from what was installed and used."""

from __future__ import annotations

import json

from _tables import table

from benchmarks.performance.installing import uses
from benchmarks.runner.machine import RESULTS

__all__ = ["extras_table"]


def extras_table(_: str) -> str:
    """What each extra was seen to do alone, and what it took."""
    measured = json.loads((RESULTS / "installing.json").read_text(encoding="utf-8"))
    rows = [
        (
            f"`{extra}`" if extra != "nothing" else "none",
            uses.USES[extra].__doc__,
            f"{row['megabytes']:,}",
            str(len(row["versions"])),
            f"{row['install_seconds']:.0f}",
            f"{row['use_seconds']:.0f}",
        )
        for extra, row in measured["extras"].items()
    ]
    sizes = " and ".join(
        f"{name} {measured[f'{kind}_bytes'] / 1e6:.1f} MB"
        for name, kind in (("the wheel has", "wheel"), ("the source archive", "source"))
    )
    machine = f"Python {measured['python']}; {measured['cpu']}, {measured['cores']} cores."
    told = f"{sizes[0].upper()}{sizes[1:]}. {machine}"
    return f"{told}\n\n" + table(("extra", "what it did", "MB", "packages", "s, install", "s, use"), rows)
