"""Tables about the benchmark: agents by name, and the leaderboard, from the committed files of the agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from _families import FAMILIES, rows_of
from _tables import code, table

from benchmarks.agents import KINDS
from benchmarks.reports.labels import labels_remark
from benchmarks.reports.leaderboard import entries
from benchmarks.reports.report import markdown_text, shown
from benchmarks.reports.statistics import estimate, mean
from benchmarks.runner.episodes import FAMILY_FIELDS
from benchmarks.runner.results import METRICS

__all__ = ["agent_table", "episode_fields", "leaderboard_families", "leaderboard_tasks"]

_MARKS = "†‡§¶"
"""Of remarks on labels, in the order in which they come."""
_COLUMNS = ("discounted_return", "success", "steps", "invalid_rate", "ran_share", "best_score")


def agent_table(_: str) -> str:
    """Agents by name."""
    rows = [
        (code(f"{name}:{kind.argument}" if kind.argument else name), kind.help, code(kind.extra) if kind.extra else "")
        for name, kind in KINDS.items()
    ]
    return table(("`--agent`", "who", "extra"), [*rows, (code("module:name"), "a callable or an `Agent` of yours", "")])


def episode_fields(_: str) -> str:
    """Further rows of a table: the fields that some families add."""
    return "\n".join(f"| {code(name)} | {meaning} |" for name, meaning in FAMILY_FIELDS.items())


def leaderboard_families(_: str) -> str:
    """Every agent over the tasks of a family: those that have played most of them first, best first among equals."""
    ranked = []
    for name, family in FAMILIES.items():
        for entry in entries():
            tasks = [entry["tasks"][row.id] for row in rows_of(name) if row.id in entry["tasks"]]
            scored = _strata(tasks, "score")
            if scored:
                score, success = estimate(scored), estimate(_strata(tasks, "success"))
                cells = (markdown_text(entry["agent"]["name"]), str(len(scored)))
                cells += (shown(score, METRICS["discounted_return"]), shown(success, METRICS["success"]))
                ranked.append(((family.title, -len(scored), -score.value), cells))
    rows = [(place[0], *cells) for place, cells in sorted(ranked)]
    return table(("family", "agent", "tasks", "IQM of scores, random 0, oracle 1", "IQM of success"), rows)


def leaderboard_tasks(family: str) -> str:
    """Every agent on every task of a family, the best first."""
    known, rows = entries(), []
    names = [name for name in _COLUMNS if any(name in task["scores"] for task in _tasks(known, family))]
    marks: dict[str, str] = {}
    for row in rows_of(family):
        remark = labels_remark(row.id)
        found = [(entry["agent"]["name"], entry["tasks"][row.id]) for entry in known if row.id in entry["tasks"]]
        for agent, task in sorted(found, key=lambda one: -float(np.mean(one[1]["scores"]["discounted_return"]))):
            played = f"{task['episodes']} x {len(task['seeds'])}"
            numbers = [_cell(task, name) for name in names]
            mark = marks.setdefault(remark, _MARKS[len(marks)]) if remark else ""
            rows.append((f"[{row.id}](environments/{row.id}.md){mark}", markdown_text(agent), played, *numbers))
    head = ("task", "agent", "episodes x seeds", *(METRICS[name].title for name in names))
    commands = dict.fromkeys(code(task["command"].partition(" --env ")[0]) for task in _tasks(known, family))
    footnotes = "".join(f"\n\n{mark} {remark}" for remark, mark in marks.items())
    return f"{table(head, rows)}{footnotes}\n\nCommands begin with {', '.join(commands)}; whole in the files."


def _tasks(known: Sequence[dict[str, Any]], family: str) -> list[dict[str, Any]]:
    ids = {row.id for row in rows_of(family)}
    return [task for entry in known for env_id, task in entry["tasks"].items() if env_id in ids]


def _strata(tasks: Sequence[dict[str, Any]], name: str) -> list[np.ndarray]:
    return [np.array(task["scores"][name]) for task in tasks if name in task["scores"]]


def _cell(task: dict[str, Any], name: str) -> str:
    scores = _strata([task], name)
    return shown(estimate(scores, mean), METRICS[name]) if scores else ""
