"""Tables of the study of architectures, from its committed results."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from _tables import code, table

from benchmarks.runner.machine import RESULTS

__all__ = ["architecture_table", "refused_table"]


def architecture_table(_: str) -> str:
    """Architectures with figures, and a sentence with their numbers."""
    study = json.loads((RESULTS / "architectures.json").read_text(encoding="utf-8"))
    measured = [row for row in study["rows"] if row.get("ratio") is not None]
    head = ("architecture", "ratio error", "log-prob error", "export error", "passes", "verdict")
    lines = [(code(row["name"]), *_figures(row), row["passes"], row["verdict"]) for row in measured]
    counts = Counter(row["verdict"] for row in study["rows"])
    numbers = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    made = f"Of {len(study['rows'])}: {numbers}. Made by `{study['command']}` with transformers "
    made += f"{study['versions']['transformers']}, peft {study['versions']['peft']} and torch "
    made += f"{study['versions']['torch']} on {study['cpu']}, commit `{study['commit'][:12]}`."
    return f"{made}\n\n{table(head, lines)}"


def refused_table(_: str) -> str:
    """Architectures without figures, and why."""
    study = json.loads((RESULTS / "architectures.json").read_text(encoding="utf-8"))
    missing = [row for row in study["rows"] if row.get("ratio") is None]
    lines = [(code(row["name"]), row["verdict"], code(row["reason"].replace("`", "'"))) for row in missing]
    return table(("architecture", "verdict", "reason"), lines)


def _figures(row: dict[str, Any]) -> Iterable[str]:
    return ["" if row[name] is None else f"{row[name]:.1e}" for name in ("ratio", "log_prob", "export")]
