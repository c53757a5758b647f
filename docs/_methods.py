"""The study of the methods as a table: what `python -m benchmarks.methods` wrote."""

from __future__ import annotations

import json

from _tables import code, table

from benchmarks.environment import RESULTS

__all__ = ["methods_table"]


def methods_table(_: str = "") -> str:
    """Area under the learning curves of the methods, with intervals."""
    path = RESULTS / "methods.json"
    if not path.exists():
        return "Not measured yet: `python -m benchmarks.methods run` makes the numbers."
    study = json.loads(path.read_text(encoding="utf-8"))
    rows = [
        (
            code(name),
            f"{one['learning_rate']:g}",
            str(len(one["seeds"])),
            f"{one['untrained']:.3f}",
            f"{one['area']:.3f}",
            f"{one['interval'][0]:.3f} to {one['interval'][1]:.3f}",
            f"{one['final']:.3f}",
        )
        for name, one in study["methods"].items()
    ]
    head = ("method", "learning rate", "seeds", "untrained", "area", "95 % (Student's t)", "last return")
    where = f"{code(study['env'])}, {study['steps']:,} steps, evaluated by sampling; {study['cpu']}."
    note = "The area is that under the curve, divided by its width."
    return f"{table(head, rows)}\n\n{where} {note}\n\n![Learning curves of the methods](../assets/methods.png)"
