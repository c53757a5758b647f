"""The one-file HTML report of results files: their statistics, put beside the episodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from lang_bench.reports.comparisons import comparison_tables
from lang_bench.reports.labels import labels_remark
from lang_bench.runner.results import METRICS, Cell, load
from lang_envs.redaction import without_private
from lang_envs.report import Report, Score, read_run, size_lines, write_report
from lang_envs.report.statistics import LEVEL, RESAMPLES, estimate, mean

_MAIN = ("return", "success", "steps", "invalid_rate")
"""Metrics that are shown where they are 0 too."""
_COLUMNS = [name for name in METRICS if name != "discounted_return"]


def report_of(files: Sequence[Path]) -> Report:
    """Return the report of some results files of `run`.

    Raises:
        ResultFileError: If two files hold the same agent on the same task.
        ReportError: If a file cannot be read or is not valid.
    """
    read, cells = [read_run(path) for path in files], load(files)
    about = (
        f"Means over seeds, a seed counting as the mean of its episodes; {LEVEL:.0%} intervals by a stratified "
        f"bootstrap over seeds ({RESAMPLES:,} resamples). One seed has no interval."
    )
    metrics = [METRICS[name] for name in ("discounted_return", *_COLUMNS)]
    return Report(
        _title(cells),
        runs=[run for run, _ in read],
        metrics=metrics,
        scores=_scores(cells),
        episodes=[episode for _, episodes in read for episode in episodes],
        about=(about, *dict.fromkeys(_remarks(cells))),
        tables=[
            table._replace(rows=[[without_private(text) for text in row] for row in table.rows])
            for table in comparison_tables(cells)
        ],
    )


def write_html(files: Sequence[Path], path: Path, *, pictures: int = 20, shown: int | None = None) -> list[str]:
    """Write the report of some results files as one HTML file. Returns the lines to print."""
    write_report(report_of(files), path, pictures=pictures, shown=shown)
    return size_lines(path)


def _scores(cells: Sequence[Cell]) -> list[Score]:
    """Return the means of each cell; details of a task that are 0 for all its agents are left out."""
    scores = []
    for cell in cells:
        for name in ("discounted_return", *_COLUMNS):
            by_seed = cell.scores(name)
            if len(by_seed):
                counts = (len(by_seed), len(cell.episodes), cell.expected)
                scores.append(
                    Score(
                        without_private(cell.agent),
                        without_private(cell.task),
                        name,
                        *estimate([by_seed], mean),
                        *counts,
                    )
                )
    used = {(score.task, score.metric) for score in scores if score.value or score.metric in _MAIN}
    return [score for score in scores if (score.task, score.metric) in used]


def _remarks(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a sentence for each task whose labels are made up or known."""
    for cell in cells:
        if any(episode.get("data") == "synthetic" for episode in cell.episodes):
            remark = "Made-up rows: scores say nothing about the table."
        else:
            remark = labels_remark(cell.env, cell.header["env_settings"])
        if remark:
            yield f"{without_private(cell.task)}: {remark}"


def _title(cells: Sequence[Cell]) -> str:
    agents, tasks = (
        list(dict.fromkeys(map(str, names))) for names in ([c.agent for c in cells], [c.task for c in cells])
    )
    first = ", ".join(map(without_private, agents)) if len(agents) < 4 else f"{len(agents)} agents"
    return f"{first} on {', '.join(tasks) if len(tasks) < 3 else f'{len(tasks)} tasks'}"
