"""Tables of a comparison of methods, from its JSON file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from benchmarks.studies.engine.findings import AREAS, MEASURES, as_predicted
from benchmarks.studies.engine.pieces import identifier
from lang_envs.report import Table


def planned_comparisons(content: Mapping[str, Any]) -> Table:
    """Return the planned comparisons of a study."""
    remark = "Corrected by Holm over all rows."
    if content.get("beside_runs"):
        remark += f" Id of what was measured beside the curves: {identifier(content['study'], 'beside')}."
    head = ("task", "choices", "comparison", "verdict", "predicted (came true)", "effect", "p, corrected", "seeds")
    came_true = {None: "", True: " (yes)", False: " (no)"}
    rows = [
        (
            row["task"],
            "" if row["choices_per_action"] is None else f"{row['choices_per_action']:.2f}",
            row["comparison"],
            row["verdict"],
            row["prediction"] + came_true[as_predicted(row)],
            effect_of(row),
            f"{row['corrected_p']:.2g}" if row["effect"] else "",
            ", ".join(map(str, row["seeds"])),
        )
        for row in content["primary"]
    ]
    return Table("Planned comparisons", head, rows, remark)


def effect_of(row: Mapping[str, Any]) -> str:
    """Show the effect of a row: a difference of areas with its interval, another measure with its name."""
    if not row["effect"]:
        return ""
    name = "" if row["effect_is"] == AREAS else f"{row['effect_is']} "
    return name + interval_cell(row["effect"])


def curve_tables(content: Mapping[str, Any]) -> Iterator[Table]:
    """Yield a table for each task with learning curves, the method with the largest area first."""
    head = ("", "rate", "seeds", *MEASURES.values(), "last success", "reached 95 % of optimal", "learned", "s a run")
    for comparison in content["comparisons"]:
        rows = []
        for name in comparison["order"]["area"]:
            method = comparison["methods"][name]
            reached = sorted(step for step in method["steps_to_optimum"] or () if step is not None)
            of, n_never = f"{len(reached)} of {len(method['seeds'])}", len(method["seeds"]) - len(reached)
            median = np.median([*reached, *[np.inf] * n_never]) if reached else np.inf
            rows.append(
                (
                    name,
                    f"{method['learning_rate']:g}{'*' if method['at_edge_of_rates'] else ''}",
                    str(len(method["seeds"])),
                    *(interval_cell(method[measure]) for measure in MEASURES),
                    f"{method['final_success']:.1%}",
                    f"{of}, median {median:,.0f}" if np.isfinite(median) else of,
                    "" if method["learned"] is None else f"{method['learned']:.0%}",
                    f"{method['cpu_seconds']:.0f}",
                )
            )
        if rows:
            yield Table(
                f"{comparison['task']} ({comparison['env']})",
                head,
                rows,
                " ".join(_about(content["study"], comparison)),
            )


def _about(study: str, comparison: Mapping[str, Any]) -> Iterator[str]:
    """Yield the sentences below the heading of a task."""
    yield (
        f"{comparison['steps']:,} steps, {comparison['evaluation']['episodes']} episodes every "
        f"{comparison['evaluation']['every']:,}."
    )
    methods, facts = comparison["methods"], comparison["facts"]
    if any(method["at_edge_of_rates"] for method in methods.values()):
        yield "*: the smallest or the largest rate that was tried."
    if facts is not None:
        yield f"Choices per action: {facts['choices_per_action']:.2f} of {facts['tokens_per_action']:.1f} tokens."
        yield f"Random {facts['random']:.3f}, oracle {facts['oracle']:.3f}."
    for name, method in methods.items():
        if method["further"]:
            yield f"{name} with {method['further']}, after too few seeds had learned."
    yield f"Id: {identifier(study, comparison['task'])}."


def interval_cell(interval: Mapping[str, float | None]) -> str:
    """Format an estimate with its interval; empty where it is unknown."""
    ends = [f"{value:.3f}" for value in (interval["value"], interval["low"], interval["high"]) if value is not None]
    return "" if interval["value"] is None else ends[0] if len(ends) < 3 else f"{ends[0]} [{ends[1]}, {ends[2]}]"
