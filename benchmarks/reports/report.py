"""Reports of results files: tables in the terminal and in Markdown, and the pictures beside them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table
from rich.text import Text

from benchmarks.reports.labels import labels_remark
from benchmarks.reports.rollouts import Rollout, read_rollout
from benchmarks.reports.statistics import probability_of_improvement
from benchmarks.reports.tables import markdown_table
from benchmarks.runner.errors import ResultFileError
from benchmarks.runner.lines import read_lines
from benchmarks.runner.results import METRICS, Cell, load, normalised
from lang_envs.report import Metric
from lang_envs.report.page import printed
from lang_envs.report.results import steps_file
from lang_envs.report.statistics import LEVEL, RESAMPLES, Estimate, estimate, interquartile_mean, mean
from lang_envs.text import markdown_code, markdown_text

MAIN = ("return", "success", "steps", "invalid_rate")
_IN_TERMINAL = ("discounted_return", "success", "steps", "invalid_rate")
_WIDE_TERMINAL, _MIN_NAME_WIDTH = 110, 14
"""Widths in characters: of a terminal with room for all of these columns, and of the narrowest name."""
_ANSWER = 100
"""Maximum number of letters of an answer that is shown."""
_PICTURES = ("scores.png", "improvement.png", "credit.png")
_DETAILS = tuple(name for name in METRICS if name not in (*MAIN, "discounted_return"))


class Aggregate(NamedTuple):
    """An agent over all the tasks that all agents of a report share.

    Attributes:
        agent: Name of the agent.
        n_envs: Number of shared tasks.
        success: Interquartile mean of the success rates; None where a task has no success.
        score: Interquartile mean of the returns between random (0) and optimal play (1), on the tasks that have such a
            scale; None if none has.
        n_scored: Number of tasks with such a scale.
    """

    agent: str
    n_envs: int
    success: Estimate | None
    score: Estimate | None
    n_scored: int


class Improvement(NamedTuple):
    """Estimate of how often one agent does better than another, on the tasks that both have played."""

    first: str
    second: str
    n_envs: int
    probability: Estimate


# ---------------------------------------------------------------------- numbers


def shown(value: Estimate | None, metric: Metric) -> str:
    """Return an estimate as text, see `lang_envs.report.page.printed`; empty where there is none."""
    return "" if value is None else printed(*value, metric)


def aggregates(cells: Sequence[Cell]) -> list[Aggregate]:
    """Compute aggregates of every agent over the tasks that all of them have played; empty for fewer than two tasks."""
    by_agent = _grouped(cells, "agent")
    tasks = [task for task, members in _grouped(cells, "task").items() if len(members) == len(by_agent)]
    if len(tasks) < 2:
        return []
    rows = []
    for agent, members in by_agent.items():
        chosen = [cell for task in tasks for cell in members if cell.task == task]
        scores = [value for value in map(normalised, chosen) if value is not None]
        score = estimate(scores) if scores else None
        rates = [cell.scores("success") for cell in chosen]
        success = estimate(rates) if all(map(len, rates)) else None
        rows.append(Aggregate(agent, len(tasks), success, score, len(scores)))
    return rows


def improvements(cells: Sequence[Cell]) -> list[Improvement]:
    """Compare every pair of agents, the better one first, by discounted return, on the tasks that both have played.

    Seeds that lack episodes are left out.
    """
    whole = [cell for cell in map(Cell.of_whole_seeds, cells) if cell.episodes]
    scores = {
        agent: {cell.task: cell.scores("discounted_return") for cell in members}
        for agent, members in _grouped(whole, "agent").items()
    }
    pairs = []
    for pair in itertools.combinations(scores, 2):
        tasks = [task for task in scores[pair[0]] if task in scores[pair[1]]]
        if not tasks:
            continue
        ordered = [
            Improvement(*names, len(tasks), probability_of_improvement(*([scores[n][t] for t in tasks] for n in names)))
            for names in (pair, pair[::-1])
        ]
        pairs.append(ordered[ordered[0].probability.value < 0.5])
    return pairs


def _grouped(cells: Sequence[Cell], name: str) -> dict[str, list[Cell]]:
    """Group cells by agent or by task."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(getattr(cell, name), []).append(cell)
    return groups


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
    for task, members in _grouped(cells, "task").items():
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
    """Write a section for every task, then the agents over all tasks, and in pairs."""
    returns = METRICS["discounted_return"]
    parts = [_task_section(task, members) for task, members in _grouped(cells, "task").items()]
    over_all, pairs = aggregates(cells), improvements(cells)
    if over_all:
        scale = f"IQM of scores, random 0, oracle 1 ({over_all[0].n_scored} tasks)"
        rows = [
            (
                markdown_text(aggregate.agent),
                shown(aggregate.score, returns),
                shown(aggregate.success, METRICS["success"]),
            )
            for aggregate in over_all
        ]
        table = markdown_table(("agent", scale, "IQM of success"), rows)
        parts.insert(0, f"## All {over_all[0].n_envs} tasks\n\n{table}")
    if pairs:
        rows = [
            (
                f"{markdown_text(pair.first)} better than {markdown_text(pair.second)}",
                str(pair.n_envs),
                shown(pair.probability, returns),
            )
            for pair in pairs
        ]
        parts.append(f"## Probability of improvement\n\n{markdown_table(('', 'tasks', 'probability'), rows)}")
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


def write_report(files: Sequence[Path], folder: Path, rollout: str | None = None) -> list[Path]:
    """Write report.md and its pictures.

    Args:
        files: Results files.
        folder: Folder to write to; created if missing.
        rollout: `ENV/SEED/EPISODE` whose token credit is drawn; None for the first success with token credit, or else
            the first episode with it.

    Returns:
        Paths of the written files.

    Raises:
        ReportError: If a file cannot be read or is not a valid results file.
        ResultFileError: If the episode is missing, has not ended or has no credit.
    """
    from benchmarks.reports.credit_picture import credit_picture
    from benchmarks.reports.plots import plot_improvements, plot_scores
    from benchmarks.runner.files import write_picture
    from lang_envs.files import write_bytes

    cells = load(files)
    if not cells:
        raise ResultFileError("Expected at least one episode; got none. Fix: python -m benchmarks run.")
    written = [write_picture(folder / "scores.png", plot_scores(cells))]
    pairs = improvements(cells)
    if pairs:
        probabilities = {f"{pair.first} > {pair.second}": pair.probability for pair in pairs}
        written.append(write_picture(folder / "improvement.png", plot_improvements(probabilities)))
    rollout_shown = _rollout_of(files, rollout)
    if rollout_shown is not None:
        written.append(write_picture(folder / "credit.png", credit_picture(rollout_shown)))
    text = _markdown(cells, rollout_shown, [path.name for path in written])
    earlier = folder / "report.md"
    shown_before = earlier.read_text(encoding="utf-8", errors="replace") if earlier.is_file() else ""
    for name in _PICTURES:  # of an earlier report, about other results
        if folder / name not in written and f"![{name}]({name})" in shown_before:
            (folder / name).unlink(missing_ok=True)
    return [write_bytes(folder / "report.md", text.encode()), *written]


def _rollout_of(files: Sequence[Path], wanted: str | None) -> Rollout | None:
    for path in files:
        rollout = read_rollout(path, wanted) if steps_file(path).exists() else None
        if rollout is not None:
            return rollout
    if wanted is not None:
        raise ResultFileError(
            f"Expected an episode with token credit as ENV/SEED/EPISODE; {wanted} is in none of the files of steps. "
            "Fix: record one by `run --steps` with an agent that values tokens."
        )
    return None


def _machine(header: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in header["versions"].items())
    text = f"On {header['cpu']}, {header['cores']} cores; Python {header['python']}, {versions}."
    return markdown_text(text)


def _markdown(cells: Sequence[Cell], rollout: Rollout | None, pictures: Sequence[str]) -> str:
    by_seed = f"Means over seeds, a seed counting as the mean of its episodes; {LEVEL:.0%} intervals by a stratified"
    parts = [
        "# Report",
        f"{by_seed} bootstrap over seeds ({RESAMPLES:,} resamples). IQM: interquartile mean. One seed has no interval.",
        markdown_tables(cells),
        "## Pictures",
        *(f"![{name}]({name})" for name in pictures if name.endswith(".png")),
    ]
    if rollout is not None:
        parts.append(f"Token credit of {markdown_text(rollout.title)}; all episodes: [report.html](report.html).")
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
