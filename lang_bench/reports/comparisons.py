"""Comparisons of agents as tables: over all tasks, and in pairs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from lang_bench.reports.rank_tests import SETTLED, holm, probability_of_improvement, rank_test
from lang_bench.runner.results import METRICS, Cell, normalised
from lang_envs.report import Metric, Table
from lang_envs.report.page import printed
from lang_envs.report.statistics import Estimate, estimate

_RETURNS = METRICS["discounted_return"]


def shown(value: Estimate | None, metric: Metric) -> str:
    """Return an estimate as text, see `lang_envs.report.page.printed`; empty where there is none."""
    return "" if value is None else printed(*value, metric)


def grouped(cells: Sequence[Cell], name: str) -> dict[str, list[Cell]]:
    """Group cells by agent or by task."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(getattr(cell, name), []).append(cell)
    return groups


def comparison_tables(cells: Sequence[Cell]) -> list[Table]:
    """Return the agents over all tasks, and in pairs; no tables where there is nothing to compare.

    Pairs are compared by discounted return, without seeds that lack episodes.
    """
    whole = [chosen for cell in cells if (chosen := cell.of_whole_seeds()).episodes]
    return [table for table in (_over_all(cells), _over_tasks(whole), _on_each_task(whole)) if table.rows]


def _over_all(cells: Sequence[Cell]) -> Table:
    """Compare the agents over the tasks that all of them have played; without rows for fewer than two tasks."""
    by_agent = grouped(cells, "agent")
    tasks = [task for task, members in grouped(cells, "task").items() if len(members) == len(by_agent)]
    rows, n_scored = [], 0
    for agent, members in by_agent.items() if len(tasks) > 1 else ():
        chosen = [cell for task in tasks for cell in members if cell.task == task]
        scores = [value for value in map(normalised, chosen) if value is not None]
        rates = [cell.scores("success") for cell in chosen]
        score = shown(estimate(scores) if scores else None, _RETURNS)
        rows.append((agent, score, shown(estimate(rates) if all(map(len, rates)) else None, METRICS["success"])))
        n_scored = len(scores)
    remark = f"Interquartile means; the score is 0 for random and 1 for optimal play ({n_scored} tasks)."
    return Table(f"All {len(tasks)} tasks", ("agent", "score", "success"), rows, remark)


def _over_tasks(cells: Sequence[Cell]) -> Table:
    """Compare each two agents over the tasks that both have played, the better one first."""
    scores = {
        agent: {cell.task: cell.scores("discounted_return") for cell in members}
        for agent, members in grouped(cells, "agent").items()
    }
    rows = []
    for pair in itertools.combinations(scores, 2):
        tasks = [task for task in scores[pair[0]] if task in scores[pair[1]]]
        if tasks:
            first, second = ([scores[agent][task] for task in tasks] for agent in pair)
            probability, names = probability_of_improvement(first, second), pair
            if probability.value < 0.5:
                probability, names = probability_of_improvement(second, first), pair[::-1]
            rows.append((*names, str(len(tasks)), shown(probability, _RETURNS)))
    remark = "Mean over the tasks that both have played, of the probability that a seed of the first is better."
    return Table("Probability of improvement", ("first", "second", "tasks", "probability"), rows, remark)


def _on_each_task(cells: Sequence[Cell]) -> Table:
    """Compare each two agents on each task, the better one first, by the exact test of ranks."""
    rows, p_values = [], list[float]()
    for task, members in grouped(cells, "task").items():
        scores_of = {cell.agent: cell.scores("discounted_return") for cell in members}
        for pair in itertools.combinations(scores_of, 2):
            names = pair if scores_of[pair[0]].mean() >= scores_of[pair[1]].mean() else pair[::-1]
            first, second = (scores_of[name] for name in names)
            probability = shown(probability_of_improvement([first], [second]), _RETURNS)
            rows.append((task, *names, probability, f"{len(first)} and {len(second)}"))
            p_values.append(rank_test(first, second))
    remark = (
        "Discounted returns of the seeds, on each task alone: the probability that a seed of the first is better "
        "(ties count half), and p of the exact test of ranks, corrected by Holm for the rows of this table. A "
        f"difference is significant where the corrected p is below {SETTLED}; before the correction it is at least "
        "0.33 for two seeds against two, and 0.008 for five against five. Seeds that lack episodes are left out."
    )
    head = ("task", "first", "second", "probability that the first is better", "seeds", "p", "p, corrected")
    tested = [
        (*texts, f"{p:.3g}", f"{corrected:.3g}", "yes" if corrected < SETTLED else "no")
        for texts, p, corrected in zip(rows, p_values, holm(p_values), strict=True)
    ]
    return Table("Which agent is better", (*head, "significant"), tested, remark)
