"""The one-file HTML report of results files: their statistics, put beside the episodes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.reports.report import MAIN, aggregates, shown
from benchmarks.reports.statistics import SETTLED, holm, least_p, probability_of_improvement, rank_test
from benchmarks.runner.results import METRICS, Cell, load
from lang_envs.redaction import without_private
from lang_envs.report import Report, Score, Table, read_run, size_lines, write_report
from lang_envs.report.statistics import LEVEL, RESAMPLES, estimate, mean

_COLUMNS = [name for name in METRICS if name != "discounted_return"]


def report_of(files: Sequence[Path], title: str | None = None) -> Report:
    """Return the report of some results files.

    Args:
        files: Results files of `run`.
        title: Heading; by default the names of agents and tasks.

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
        title or _title(cells),
        runs=[run for run, _ in read],
        metrics=metrics,
        scores=_scores(cells),
        episodes=[episode for _, episodes in read for episode in episodes],
        about=(about,),
        tables=_tables(cells),
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
    used = {(score.task, score.metric) for score in scores if score.value or score.metric in MAIN}
    return [score for score in scores if (score.task, score.metric) in used]


def _tables(cells: Sequence[Cell]) -> list[Table]:
    """Return the agents over all tasks, and in pairs; empty where there is nothing to compare."""
    returns, tables = METRICS["discounted_return"], []
    over_all = aggregates(cells)
    if over_all:
        rows = [
            (entry.agent, shown(entry.score, returns), shown(entry.success, METRICS["success"])) for entry in over_all
        ]
        remark = (
            f"Interquartile means; the score is 0 for random and 1 for optimal play ({over_all[0].n_scored} tasks)."
        )
        tables.append(Table(f"All {over_all[0].n_envs} tasks", ("agent", "score", "success"), rows, remark))
    pairs = [row for task in dict.fromkeys(cell.task for cell in cells) for row in _pairs(task, cells)]
    if pairs:
        corrected = holm([p for *_, p, _ in pairs])
        within_reach = _least_corrected([p for *_, p, _ in pairs], [least for *_, least in pairs])
        rows = [
            (*texts, f"{p:.3g}", f"{corrected_p:.3g}", _verdict(corrected_p, within_reach[least]))
            for (*texts, p, least), corrected_p in zip(pairs, corrected, strict=True)
        ]
        remark = (
            "Discounted returns of the seeds, on each task alone: the probability that a seed of the first is better "
            "(ties count half), and p of the exact test of ranks, corrected by Holm for the rows of this table. A "
            f"difference is significant where the corrected p is below {SETTLED}; before the correction it is at least "
            "0.33 for two seeds against two, and 0.008 for five against five. Too few seeds: no scores of these "
            "two would make it so. Seeds that lack episodes are left out."
        )
        head = ("task", "first", "second", "probability that the first is better", "seeds", "p", "p, corrected")
        head += ("significant",)
        tables.append(Table("Which agent is better", head, rows, remark))
    return [table._replace(rows=[[without_private(text) for text in row] for row in table.rows]) for table in tables]


def _least_corrected(p_values: Sequence[float], least: Sequence[float]) -> dict[float, float]:
    """Return the smallest corrected p that other scores of a row could give, by its smallest p.

    Rows of equal smallest p share it: Holm's correction of the smallest counts the rows below it, not their own p.
    """
    places = {p: index for index, p in enumerate(least)}
    return {p: holm([*p_values[:index], p, *p_values[index + 1 :]])[index] for p, index in places.items()}


def _verdict(p: float, least: float) -> str:
    return "yes" if p < SETTLED else "no" if least < SETTLED else "too few seeds"


def _title(cells: Sequence[Cell]) -> str:
    agents, tasks = (
        list(dict.fromkeys(map(str, names))) for names in ([c.agent for c in cells], [c.task for c in cells])
    )
    first = ", ".join(map(without_private, agents)) if len(agents) < 4 else f"{len(agents)} agents"
    return f"{first} on {', '.join(tasks) if len(tasks) < 3 else f'{len(tasks)} tasks'}"


def _pairs(task: str, cells: Sequence[Cell]) -> list[tuple[Any, ...]]:
    """Compare each two agents on a task, the better one first: texts, p of the test, and the least that it can be."""
    chosen = [whole for cell in cells if cell.task == task and (whole := cell.of_whole_seeds()).episodes]
    scores_of = {cell.agent: cell.scores("discounted_return") for cell in chosen}
    rows = []
    for pair in itertools.combinations(scores_of, 2):
        first, second = pair if scores_of[pair[0]].mean() >= scores_of[pair[1]].mean() else pair[::-1]
        scores = scores_of[first], scores_of[second]
        p, least = rank_test(*scores), least_p(*map(len, scores))
        probability = shown(probability_of_improvement([scores[0]], [scores[1]]), METRICS["discounted_return"])
        seeds = f"{len(scores[0])} and {len(scores[1])}"
        rows.append((task, without_private(first), without_private(second), probability, seeds, p, least))
    return rows
