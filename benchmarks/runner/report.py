"""Reports of results files: tables in the terminal and in Markdown, and the pictures beside them."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table
from rich.text import Text

from benchmarks.runner.errors import ResultFileError
from benchmarks.runner.labels import labels_remark
from benchmarks.runner.results import METRICS, Cell, Metric, load, normalised
from benchmarks.runner.rollouts import Rollout, read_rollout
from benchmarks.runner.session import steps_file
from benchmarks.runner.statistics import (
    LEVEL,
    RESAMPLES,
    Estimate,
    estimate,
    interquartile_mean,
    mean,
    probability_of_improvement,
)

__all__ = [
    "Aggregate",
    "Improvement",
    "aggregates",
    "improvements",
    "markdown_table",
    "markdown_tables",
    "markdown_text",
    "overview_table",
    "shown",
    "write_report",
]

_MAIN = ("return", "success", "steps", "invalid_rate")
_IN_TERMINAL = ("discounted_return", "success", "steps", "invalid_rate")
_WIDE, _LEAST = 110, 14
"""Letters of a terminal that has room for all of these, and of a name."""
_PICTURES = ("scores.png", "improvement.png", "credit.png", "credit.html")
_DETAILS = tuple(name for name in METRICS if name not in (*_MAIN, "discounted_return"))


class Aggregate(NamedTuple):
    """An agent over all the tasks that all agents of a report share.

    Attributes:
        agent: Name.
        n_envs: How many those are.
        success: Interquartile mean of the success rates.
        score: Likewise of the returns between random (0) and optimal play (1), on the tasks that have such a scale;
            None if none has.
        n_scored: How many have.
    """

    agent: str
    n_envs: int
    success: Estimate
    score: Estimate | None
    n_scored: int


class Improvement(NamedTuple):
    """How often one agent does better than another on the tasks that both have played."""

    first: str
    second: str
    n_envs: int
    probability: Estimate


# ---------------------------------------------------------------------- numbers


def shown(one: Estimate, metric: Metric) -> str:
    """An estimate in words: `0.912 [0.900, 0.921]`, or `0.921` where all seeds got the same."""
    known = (end for end in one if end is not None)
    texts = [f"{100 * end:z.{metric.digits}f}" if metric.is_rate else f"{end:z.{metric.digits}f}" for end in known]
    texts = texts[: len(texts) if len(set(texts)) > 1 else 1]
    sign = " %" if metric.is_rate else ""
    return f"{texts[0]}{sign}" if len(texts) == 1 else f"{texts[0]}{sign} [{texts[1]}, {texts[2]}]"


def aggregates(cells: Sequence[Cell]) -> list[Aggregate]:
    """Every agent over the tasks that all of them have played; nothing unless there are two tasks or more."""
    by_agent = _by_agent(cells)
    tasks = _shared([dict.fromkeys(cell.task for cell in own) for own in by_agent.values()])
    if len(tasks) < 2:
        return []
    found = []
    for agent, own in by_agent.items():
        chosen = [cell for task in tasks for cell in own if cell.task == task]
        scores = [one for one in map(normalised, chosen) if one is not None]
        score = estimate(scores) if scores else None
        success = estimate([cell.scores("success") for cell in chosen])
        found.append(Aggregate(agent, len(tasks), success, score, len(scores)))
    return found


def improvements(cells: Sequence[Cell]) -> list[Improvement]:
    """Every pair of agents, by discounted return, on the tasks that both have played."""
    by_agent = {agent: {cell.task: cell for cell in own} for agent, own in _by_agent(cells).items()}
    agents, found = list(by_agent), []
    for number, first in enumerate(agents):
        for second in agents[number + 1 :]:
            tasks = _shared([by_agent[first], by_agent[second]])
            if tasks:
                strata = [
                    [by_agent[name][task].scores("discounted_return") for task in tasks] for name in (first, second)
                ]
                probability = probability_of_improvement(*strata)
                if probability.value < 0.5:  # the better one comes first
                    found.append(Improvement(second, first, len(tasks), probability_of_improvement(*strata[::-1])))
                else:
                    found.append(Improvement(first, second, len(tasks), probability))
    return found


def _by_agent(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    return {agent: [cell for cell in cells if cell.agent == agent] for agent in dict.fromkeys(c.agent for c in cells)}


def _shared(envs: Sequence[Mapping[str, object]]) -> list[str]:
    """Keys of the first that all others have."""
    return [key for key in envs[0] if all(key in one for one in envs[1:])]


def _by_task(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    return {task: [cell for cell in cells if cell.task == task] for task in dict.fromkeys(c.task for c in cells)}


def _estimates(cell: Cell, names: Sequence[str]) -> dict[str, Estimate]:
    """Means by metric, of those that the episodes have."""
    scores = {name: cell.scores(name) for name in names}
    return {name: estimate([one], mean) for name, one in scores.items() if len(one)}


# ---------------------------------------------------------------------- the terminal


def overview_table(cells: Sequence[Cell], width: int = 120) -> Table:
    """Means of every agent on every task, with intervals where the width of a terminal allows.

    Args:
        cells: What agents did.
        width: Letters of a line; in a narrow terminal there are fewer columns.
    """
    names = _IN_TERMINAL if width >= _WIDE else _IN_TERMINAL[:2]
    table = Table(box=None)
    table.add_column("task", style="cyan", overflow="fold", min_width=_LEAST)  # long names take several lines
    table.add_column("agent", overflow="fold", min_width=_LEAST)
    for title in ("episodes", *(METRICS[name].title for name in names)):
        table.add_column(title, justify="right", no_wrap=width >= _WIDE)
    for task, own in _by_task(cells).items():
        for number, cell in enumerate(own):
            found = _estimates(cell, names)
            numbers = [
                shown(
                    one if name in ("discounted_return", "success") else Estimate(one.value, None, None), METRICS[name]
                )
                for name, one in found.items()
            ]
            table.add_row(Text("" if number else task), Text(cell.agent), _counted(cell), *numbers)
    return table


def _counted(cell: Cell) -> str:
    return str(cell.expected) if cell.is_complete else f"{len(cell.episodes)} of {cell.expected}"


# ---------------------------------------------------------------------- Markdown


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; all columns but the first are set flush right."""
    lines = [head, [":---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def markdown_text(text: str) -> str:
    """A name that others have given, as text of one line: no markup, no HTML, no link."""
    return re.sub(r"([\\`*\[\]])", r"\\\1", html.escape(" ".join(text.split()), quote=False))


def _code(text: str) -> str:
    line = " ".join(text.split())
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    return f"{fence}{line}{fence}" if len(fence) == 1 else f"{fence} {line} {fence}"


def markdown_tables(cells: Sequence[Cell]) -> str:
    """A section for every task, then the agents over all tasks, and in pairs."""
    parts = [_task_section(task, own) for task, own in _by_task(cells).items()]
    over_all = aggregates(cells)
    if over_all:
        parts.insert(0, _aggregate_section(over_all))
    pairs = improvements(cells)
    if pairs:
        rows = [
            (
                f"{markdown_text(one.first)} better than {markdown_text(one.second)}",
                str(one.n_envs),
                shown(one.probability, METRICS["discounted_return"]),
            )
            for one in pairs
        ]
        parts.append(f"## Probability of improvement\n\n{markdown_table(('', 'tasks', 'probability'), rows)}")
    return "\n\n".join(parts)


def _aggregate_section(over_all: Sequence[Aggregate]) -> str:
    first, score, success = over_all[0], METRICS["discounted_return"], METRICS["success"]
    rows = [
        (markdown_text(one.agent), shown(one.score, score) if one.score else "", shown(one.success, success))
        for one in over_all
    ]
    scale = f"IQM of scores, random 0, oracle 1 ({first.n_scored} tasks)"
    return f"## All {first.n_envs} tasks\n\n{markdown_table(('agent', scale, 'IQM of success'), rows)}"


def _task_section(task: str, own: Sequence[Cell]) -> str:
    discount = next(env["discount"] for env in own[0].header["envs"] if env["id"] == own[0].env)
    head = ["agent", "episodes", f"return, discounted {discount:g} per move", "IQM of it"]
    head += [METRICS[name].title for name in _MAIN]
    rows = []
    for cell in own:
        scores, metric = [cell.scores("discounted_return")], METRICS["discounted_return"]
        both = [shown(estimate(scores, statistic), metric) for statistic in (mean, interquartile_mean)]
        rows.append(
            [markdown_text(cell.agent), _counted(cell), *both, *(shown(*pair) for pair in _with_metric(cell, _MAIN))]
        )
    return f"## {markdown_text(task)}\n\n{_remarks(own)}{markdown_table(head, rows)}{_details(own)}"


def _remarks(own: Sequence[Cell]) -> str:
    if any(episode.get("data") == "synthetic" for cell in own for episode in cell.episodes):
        return "**Made-up rows: scores say nothing about the table.**\n\n"
    remark = labels_remark(own[0].env, own[0].header["env_settings"])
    return f"**{remark}**\n\n" if remark else ""


def _details(own: Sequence[Cell]) -> str:
    """What only some tasks or agents have; costs of nothing are left out."""
    found = [dict(_estimates(cell, _DETAILS)) for cell in own]
    names = [name for name in _DETAILS if any(name in one and one[name].value for one in found)]
    if not names:
        return ""
    rows = [
        [markdown_text(cell.agent), *(shown(one[name], METRICS[name]) if name in one else "" for name in names)]
        for cell, one in zip(own, found, strict=True)
    ]
    return f"\n\n{markdown_table(('agent', *(METRICS[name].title for name in names)), rows)}"


def _with_metric(cell: Cell, names: Sequence[str]) -> Iterator[tuple[Estimate, Metric]]:
    for name, one in _estimates(cell, names).items():
        yield one, METRICS[name]


# ---------------------------------------------------------------------- the whole report


def write_report(files: Sequence[Path], folder: Path, rollout: str | None = None) -> list[Path]:
    """Write report.md and its pictures.

    Args:
        files: Results files.
        folder: Where to; made if it is not there.
        rollout: `ENV/SEED/EPISODE` whose token credit is drawn; None for the first success that has any.

    Returns:
        What was written.

    Raises:
        ResultFileError: If a file is no results file, or the episode is not there or has no credit.
    """
    from benchmarks.runner.credit_page import credit_html
    from benchmarks.runner.credit_picture import credit_picture
    from benchmarks.runner.files import write_bytes, write_picture
    from benchmarks.runner.plots import plot_improvements, plot_scores

    cells = load(files)
    if not cells:
        raise ResultFileError("Expected at least one episode; got none. Fix: python -m benchmarks run.")
    written = [write_picture(folder / "scores.png", plot_scores(cells))]
    pairs = improvements(cells)
    if pairs:
        written.append(write_picture(folder / "improvement.png", plot_improvements(pairs)))
    found = _rollout_of(files, rollout)
    if found is not None:
        written.append(write_picture(folder / "credit.png", credit_picture(found)))
        written.append(write_bytes(folder / "credit.html", credit_html(found).encode(errors="backslashreplace")))
    text = _markdown(cells, found, [path.name for path in written])
    for name in _PICTURES:  # of an earlier report, about other results
        if folder / name not in written:
            (folder / name).unlink(missing_ok=True)
    return [write_bytes(folder / "report.md", text.encode()), *written]


def _rollout_of(files: Sequence[Path], wanted: str | None) -> Rollout | None:
    for path in map(steps_file, files):
        found = read_rollout(path, wanted) if path.exists() else None
        if found is not None:
            return found
    if wanted is not None:
        raise ResultFileError(
            f"Expected an episode with token credit as ENV/SEED/EPISODE; {wanted} is in none of the files of steps. "
            "Fix: record one by `run --steps` with an agent that values tokens."
        )
    return None


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
        parts.append(
            f"Token credit of {markdown_text(rollout.title)}; with numbers on every token: [credit.html](credit.html)."
        )
    commands = dict.fromkeys(_code(cell.header["command"]) for cell in cells)
    parts += ["## How it was measured", "\n".join(f"* {command}" for command in commands)]
    parts += dict.fromkeys(_measured_with(cell.header) for cell in cells)
    missing = [cell for cell in cells if not cell.is_complete]
    if missing:
        names = "; ".join(f"{markdown_text(cell.agent)} on {cell.task} ({_counted(cell)})" for cell in missing)
        parts.insert(1, f"**Not complete:** {names}.")
    return "\n\n".join(parts) + "\n"


def _measured_with(header: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in header["versions"].items())
    return f"On {header['cpu']}, {header['cores']} cores; Python {header['python']}, {versions}."
