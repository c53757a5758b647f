"""Reports of results files: tables in the terminal and in Markdown, and the picture beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from benchmarks.reports.comparisons import comparison_tables, grouped, shown
from benchmarks.reports.labels import labels_remark
from benchmarks.reports.tables import markdown_table
from benchmarks.runner.errors import ResultFileError
from benchmarks.runner.lines import read_lines
from benchmarks.runner.results import METRICS, Cell, load
from lang_envs.report.results import steps_file
from lang_envs.report.statistics import LEVEL, RESAMPLES, Estimate, estimate, interquartile_mean, mean
from lang_envs.text import markdown_code, markdown_text

MAIN = ("return", "success", "steps", "invalid_rate")
_IN_TERMINAL = ("discounted_return", "success", "steps", "invalid_rate")
_WIDE_TERMINAL, _MIN_NAME_WIDTH = 110, 14
"""Widths in characters: of a terminal with room for all of these columns, and of the narrowest name."""
_ANSWER = 100
"""Maximum number of letters of an answer that is shown."""
_NAMES = ("task", "agent", "first", "second")
"""Heads of columns with names, which are escaped."""
_DETAILS = tuple(name for name in METRICS if name not in (*MAIN, "discounted_return"))


def _estimates(cell: Cell, names: Sequence[str]) -> dict[str, Estimate | None]:
    """Return means by metric; None where the episodes lack it."""
    scores = {name: cell.scores(name) for name in names}
    return {name: estimate([values], mean) if len(values) else None for name, values in scores.items()}


# ---------------------------------------------------------------------- the terminal


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
            numbers = [
                shown(value if value is None or name in names[:2] else Estimate(value.value, None, None), METRICS[name])
                for name, value in _estimates(cell, names).items()
            ]
            table.add_row(Text("" if number else task), Text(cell.agent), _counted(cell), *numbers)
    return table


def _counted(cell: Cell) -> str:
    return str(cell.expected) if cell.is_complete else f"{len(cell.episodes)} of {cell.expected}"


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


# ---------------------------------------------------------------------- Markdown


def markdown_tables(cells: Sequence[Cell]) -> str:
    """Write the agents over all tasks, a section for every task, then the agents in pairs."""
    parts = [_task_section(task, members) for task, members in grouped(cells, "task").items()]
    for table in comparison_tables(cells):
        n_names = sum(name in _NAMES for name in table.head)  # the columns of names come first
        rows = [(*map(markdown_text, row[:n_names]), *row[n_names:]) for row in table.rows]
        section = f"## {table.title}\n\n{table.remark}\n\n{markdown_table(table.head, rows)}"
        parts.insert(0 if table.head[0] == "agent" else len(parts), section)
    return "\n\n".join(parts)


def _task_section(task: str, cells: Sequence[Cell]) -> str:
    discount = next(env["discount"] for env in cells[0].header["envs"] if env["id"] == cells[0].env)
    head = ["agent", "episodes", f"return, discounted {discount:g} per move", "IQM of it"]
    head += [METRICS[name].title for name in MAIN]
    rows = []
    for cell in cells:
        scores, metric = [cell.scores("discounted_return")], METRICS["discounted_return"]
        both = [shown(estimate(scores, statistic), metric) for statistic in (mean, interquartile_mean)]
        main = [shown(value, METRICS[name]) for name, value in _estimates(cell, MAIN).items()]
        rows.append([markdown_text(cell.agent), _counted(cell), *both, *main])
    if any(episode.get("data") == "synthetic" for cell in cells for episode in cell.episodes):
        remark = "Made-up rows: scores say nothing about the table."
    else:
        remark = labels_remark(cells[0].env, cells[0].header["env_settings"])
    parts = [f"## {markdown_text(task)}", *([f"**{remark}**"] if remark else []), markdown_table(head, rows)]
    # Details that only some tasks or agents have; costs of zero are left out.
    estimates = {cell.agent: _estimates(cell, _DETAILS) for cell in cells}
    names = [name for name in _DETAILS if any((value := row[name]) and value.value for row in estimates.values())]
    if names:
        rows = [
            [markdown_text(agent), *(shown(row[name], METRICS[name]) for name in names)]
            for agent, row in estimates.items()
        ]
        parts.append(markdown_table(("agent", *(METRICS[name].title for name in names)), rows))
    return "\n\n".join(parts)


# ---------------------------------------------------------------------- the whole report


def write_report(files: Sequence[Path], folder: Path) -> list[Path]:
    """Write report.md and the picture of scores.

    Args:
        files: Results files.
        folder: Folder to write to; created if missing.

    Returns:
        Paths of the written files.

    Raises:
        ReportError: If a file cannot be read or is not a valid results file.
        ResultFileError: If there is no episode.
    """
    from benchmarks.reports.plots import plot_scores
    from benchmarks.runner.files import write_picture
    from lang_envs.files import write_bytes

    cells = load(files)
    if not cells:
        raise ResultFileError("Expected at least one episode; got none. Fix: python -m benchmarks run.")
    picture = write_picture(folder / "scores.png", plot_scores(cells))
    return [write_bytes(folder / "report.md", _markdown(cells).encode()), picture]


def _machine(header: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in header["versions"].items())
    text = f"On {header['cpu']}, {header['cores']} cores; Python {header['python']}, {versions}."
    return markdown_text(text)


def _markdown(cells: Sequence[Cell]) -> str:
    by_seed = f"Means over seeds, a seed counting as the mean of its episodes; {LEVEL:.0%} intervals by a stratified"
    parts = [
        "# Report",
        f"{by_seed} bootstrap over seeds ({RESAMPLES:,} resamples). IQM: interquartile mean. One seed has no interval.",
        markdown_tables(cells),
        "![scores](scores.png)",
        "All episodes: [report.html](report.html).",
    ]
    headers = [cell.header for cell in cells]
    made = dict.fromkeys(markdown_code(header["command"]) for header in headers if "command" in header)
    parts += ["## How it was measured", "\n".join(f"* {command}" for command in made) or "Not recorded."]
    machine = ("cpu", "cores", "python", "versions")
    recorded = [header for header in headers if all(name in header for name in machine)]  # other programs need not
    parts += dict.fromkeys(map(_machine, recorded))
    missing = [cell for cell in cells if not cell.is_complete]
    if missing:
        names = "; ".join(
            f"{markdown_text(cell.agent)} on {markdown_text(cell.task)} ({_counted(cell)})" for cell in missing
        )
        parts.insert(1, f"**Not complete:** {names}.")
    return "\n\n".join(parts) + "\n"
