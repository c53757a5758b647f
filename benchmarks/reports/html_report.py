"""The one-file HTML report of results files: their statistics, put beside the episodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.reports.report import MAIN, aggregates, improvements, shown
from benchmarks.runner.results import METRICS, Cell, load
from lang_envs.report import Metric, Report, Score, Table, read_run, size_lines, write_report
from lang_envs.report.private import without_private
from lang_envs.report.statistics import LEVEL, RESAMPLES, estimate, mean

_COLUMNS = [name for name in METRICS if name != "discounted_return"]


def report_of(files: Sequence[Path], title: str = "Results") -> Report:
    """Return the report of some results files.

    Args:
        files: Results files of `run`.
        title: Heading.

    Raises:
        ResultFileError: If two files hold the same agent on the same task.
        ReportError: If a file is damaged.
    """
    runs, episodes = [], []
    for path in files:
        run, own = read_run(path)
        runs.append(run)
        episodes += own
    cells = load(files)  # after the files have been checked line by line
    about = (
        f"Means over seeds, a seed counting as the mean of its episodes; {LEVEL:.0%} intervals by a stratified "
        f"bootstrap over seeds ({RESAMPLES:,} resamples). One seed has no interval."
    )
    metrics = [Metric(name, *METRICS[name]) for name in ("discounted_return", *_COLUMNS)]
    return Report(
        title,
        runs=runs,
        metrics=metrics,
        scores=_scores(cells),
        episodes=episodes,
        about=(about,),
        tables=_tables(cells),
    )


def write_html(files: Sequence[Path], path: Path, *, pictures: int = 20, shown: int | None = None) -> list[str]:
    """Write the report of some results files as one HTML file. Returns the lines to print."""
    write_report(report_of(files, title=path.stem), path, pictures=pictures, shown=shown)
    return size_lines(path)


def _scores(cells: Sequence[Cell]) -> list[Score]:
    """Return the means of each cell; details of a task that are 0 for all its agents are left out."""
    found = []
    for cell in cells:
        for name in ("discounted_return", *_COLUMNS):
            by_seed = cell.scores(name)
            if len(by_seed):
                counts = (len(by_seed), len(cell.episodes), cell.expected)
                found.append(
                    Score(
                        without_private(cell.agent),
                        without_private(cell.task),
                        name,
                        *estimate([by_seed], mean),
                        *counts,
                    )
                )
    used = {(one.task, one.metric) for one in found if one.value or one.metric in MAIN}
    return [one for one in found if (one.task, one.metric) in used]


def _tables(cells: Sequence[Cell]) -> list[Table]:
    """Return the agents over all tasks, and in pairs; empty where there is nothing to compare."""
    returns, found = METRICS["discounted_return"], []
    over_all, pairs = aggregates(cells), improvements(cells)
    if over_all:
        rows = [
            (one.agent, shown(one.score, returns) if one.score else "", shown(one.success, METRICS["success"]))
            for one in over_all
        ]
        remark = (
            f"Interquartile means; the score is 0 for random and 1 for optimal play ({over_all[0].n_scored} tasks)."
        )
        found.append(Table(f"All {over_all[0].n_envs} tasks", ("agent", "score", "success"), rows, remark))
    if pairs:
        rows = [
            (
                f"{one.first} better than {one.second}",
                shown(one.probability, returns),
                str(one.n_envs),
                "yes" if one.probability.low is not None and one.probability.low > 0.5 else "no",
            )
            for one in pairs
        ]
        remark = (
            "Probability that a seed of the first has a higher discounted return than one of the second, ties counting "
            "half; settled where its interval lies above one half."
        )
        found.append(Table("Which agent is better", ("", "probability", "tasks", "settled"), rows, remark))
    return [one._replace(rows=[[without_private(text) for text in row] for row in one.rows]) for one in found]
