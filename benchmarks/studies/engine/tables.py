"""Tables of a comparison of methods, from its JSON file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from benchmarks.studies.engine.findings import MEASURES, primary_table
from benchmarks.studies.engine.pieces import identifier
from lang_envs.report import Table


def planned_comparisons(content: Mapping[str, Any]) -> Table:
    """Return the planned comparisons of a study."""
    remark = "Corrected by Holm over all rows."
    if content.get("beside_runs"):
        remark += f" Id of what was measured beside the curves: {identifier(content['study'], 'beside')}."
    return Table("Planned comparisons", *primary_table(content["primary"]), remark)


def curve_tables(content: Mapping[str, Any]) -> Iterator[Table]:
    """Yield a table for each task with learning curves, the method with the largest area first."""
    head = ("", "rate", "seeds", *MEASURES.values(), "last success", "reached 95 % of optimal", "learned", "s a run")
    for one in content["comparisons"]:
        rows = []
        for name in one["order"]["area"]:
            found = one["methods"][name]
            reached = sorted(step for step in found["steps_to_optimum"] or () if step is not None)
            of, n_never = f"{len(reached)} of {len(found['seeds'])}", len(found["seeds"]) - len(reached)
            median = np.median([*reached, *[np.inf] * n_never]) if reached else np.inf
            rows.append(
                (
                    name,
                    f"{found['learning_rate']:g}{'*' if found['at_edge_of_rates'] else ''}",
                    str(len(found["seeds"])),
                    *(interval_cell(found[measure]) for measure in MEASURES),
                    f"{found['final_success']:.1%}",
                    f"{of}, median {median:,.0f}" if np.isfinite(median) else of,
                    "" if found["learned"] is None else f"{found['learned']:.0%}",
                    f"{found['cpu_seconds']:.0f}",
                )
            )
        if rows:
            yield Table(f"{one['task']} ({one['env']})", head, rows, " ".join(_about(content["study"], one)))


def _about(study: str, one: Mapping[str, Any]) -> Iterator[str]:
    """Yield the sentences below the heading of a task."""
    yield f"{one['steps']:,} steps, {one['evaluation']['episodes']} episodes every {one['evaluation']['every']:,}."
    methods, facts = one["methods"], one["facts"]
    if any(found["at_edge_of_rates"] for found in methods.values()):
        yield "*: the smallest or the largest rate that was tried."
    if facts is not None:
        yield f"Choices per action: {facts['choices_per_action']:.2f} of {facts['tokens_per_action']:.1f} tokens."
        yield f"Random {facts['random']:.3f}, oracle {facts['oracle']:.3f}."
    for name, found in methods.items():
        if found["further"]:
            yield f"{name} with {found['further']}, after too few seeds had learned."
    yield f"Id: {identifier(study, one['task'])}."


def interval_cell(one: Mapping[str, float | None]) -> str:
    """Format an estimate with its interval; empty where it is unknown."""
    known = [f"{value:.3f}" for value in (one["value"], one["low"], one["high"]) if value is not None]
    return "" if one["value"] is None else known[0] if len(known) < 3 else f"{known[0]} [{known[1]}, {known[2]}]"
