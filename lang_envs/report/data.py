"""Content of a report: runs, scores, learning curves and episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["LearningCurve", "Metric", "Report", "Run", "Score", "Table"]


class Metric(NamedTuple):
    """A number of an episode, and how it is printed.

    Attributes:
        name: Field of the episode.
        title: Heading of the column.
        digits: Number of digits after the point.
        is_rate: Whether it is printed in percent.
    """

    name: str
    title: str
    digits: int = 3
    is_rate: bool = False


class Score(NamedTuple):
    """An agent's mean on a task.

    Attributes:
        agent: Name of the agent.
        task: Name of the task.
        metric: Name of the metric.
        value: Mean over seeds.
        low: Lower end of the interval of the mean; None with one seed.
        high: Upper end of the interval; None with one seed.
        n_seeds: Number of seeds played.
        n_episodes: Number of episodes played.
        expected: Number of episodes planned.
    """

    agent: str
    task: str
    metric: str
    value: float
    low: float | None
    high: float | None
    n_seeds: int
    n_episodes: int
    expected: int


class LearningCurve(NamedTuple):
    """A learning curve of a report.

    Attributes:
        task: Name of the task.
        label: Name of the line.
        title: Name of the quantity.
        steps: Environment steps, `[n]`, rising.
        values: Statistic over seeds, `[n]`.
        low: Lower ends of the intervals, `[n]`; None without intervals.
        high: Upper ends of the intervals, `[n]`; None without intervals.
        by_seed: Values of each seed, `[n]`.
    """

    task: str
    label: str
    title: str
    steps: Sequence[float]
    values: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    by_seed: Mapping[str, Sequence[float]] = {}


class Run(NamedTuple):
    """A results file, the folder of a training, or a study.

    Attributes:
        name: Name of the agent, the run or the study.
        facts: Settings, versions, hardware, command and other facts by name, as texts.
        files: SHA-256 by file name.
        remark: Sentence that a reader has to see first, such as one about missing episodes.
    """

    name: str
    facts: Mapping[str, str]
    files: Mapping[str, str] = {}
    remark: str = ""


class Table(NamedTuple):
    """A table of texts, made by the caller.

    Attributes:
        title: Heading of the table.
        head: Heads of the columns.
        rows: Cells; the first of a row is its heading.
        remark: Sentence below the heading.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    remark: str = ""


@dataclass(frozen=True)
class Report:
    """Everything that a report shows.

    Attributes:
        title: Heading of the page.
        runs: Sources of the numbers.
        metrics: Columns of the scores.
        scores: Means by agent, task and metric; computed by the caller, never by the page.
        curves: Learning curves.
        episodes: Records of episodes as `read_run` returns them, with their steps under `steps_list`, or None. They are
            known by agent, task, seed, episode and `training_steps`.
        about: Sentences below the heading.
        tables: Further tables of the overview.
        notes: Further sentences, folded at the end of the overview.
    """

    title: str
    runs: Sequence[Run] = ()
    metrics: Sequence[Metric] = ()
    scores: Sequence[Score] = ()
    curves: Sequence[LearningCurve] = ()
    episodes: Sequence[Mapping[str, Any]] = ()
    about: Sequence[str] = ()
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
