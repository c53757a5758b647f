"""Results files in the terminal: means of every agent on every task, and a remark on invalid actions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from lang_bench.reports.comparisons import grouped, shown
from lang_bench.runner.lines import read_lines
from lang_bench.runner.results import METRICS, Cell
from lang_envs.report.results import steps_file
from lang_envs.report.statistics import Estimate, estimate, mean
from lang_envs.text import one_line

_IN_TERMINAL = ("discounted_return", "success", "steps", "invalid_rate")
_WIDE_TERMINAL, _MIN_NAME_WIDTH = 110, 14
"""Widths in characters: of a terminal with room for all of these columns, and of the narrowest name."""
_ANSWER = 100
"""Maximum number of letters of an answer that is shown."""


def overview_table(cells: Sequence[Cell], width: int = 120) -> Table:
    """Return a table of the means of every agent on every task, with intervals in a wide terminal.

    Args:
        cells: Results of agents.
        width: Characters of a line; a narrow terminal shows fewer columns.
    """
    names = _IN_TERMINAL if width >= _WIDE_TERMINAL else _IN_TERMINAL[:2]
    table = Table(box=None)
    table.add_column("task", style="cyan", overflow="fold", min_width=_MIN_NAME_WIDTH)  # long names take several lines
    table.add_column("agent", overflow="fold", min_width=_MIN_NAME_WIDTH)
    for title in ("episodes", *(METRICS[name].title for name in names)):
        table.add_column(title, justify="right", no_wrap=width >= _WIDE_TERMINAL)
    for task, members in grouped(cells, "task").items():
        for number, cell in enumerate(members):
            numbers = []
            for column, name in enumerate(names):
                scores = cell.scores(name)
                value = estimate([scores], mean) if len(scores) else None
                if value is not None and column > 1:
                    value = Estimate(value.value, None, None)
                numbers.append(shown(value, METRICS[name]))
            played = str(cell.expected) if cell.is_complete else f"{len(cell.episodes)} of {cell.expected}"
            table.add_row(Text("" if number else one_line(task)), Text(one_line(cell.agent)), played, *numbers)
    return table


def invalid_remark(cells: Sequence[Cell], path: Path) -> str:
    """Return a sentence if more than half of all actions of a file were invalid; empty otherwise.

    Args:
        cells: Content of the file.
        path: Path of the results file; the last such answer is read from its steps, if they are recorded.
    """
    episodes = [episode for cell in cells for episode in cell.episodes]
    n_invalid, n = (sum(episode[name] for episode in episodes) for name in ("invalid_actions", "steps"))
    if 2 * n_invalid <= n:
        return ""
    counted = f"{n_invalid:,} of {n:,} actions were invalid"
    if not cells[0].header["steps"]:
        return f"{counted}. Fix: --steps, with another --out, records the answers."
    lines = (line.record for line in read_lines(steps_file(path)))
    *_, last = (line["action"] or line["note"] for line in lines if line.get("invalid"))
    return f"{counted}; the last answer was {last[:_ANSWER]!r}. Fix: read the answers in {steps_file(path)}."
