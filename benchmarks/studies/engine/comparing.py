"""Studies that compare methods by their learning curves: all differ by data alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.studies.engine.findings import Findings, Planned, Row, Trend, find, judged, planned_rows
from benchmarks.studies.engine.jobs import Job
from benchmarks.studies.engine.pieces import Pieces
from benchmarks.studies.engine.study import FINAL_SEEDS, Options, Report
from benchmarks.studies.engine.tables import curve_tables, planned_comparisons
from benchmarks.studies.engine.tuning import BEYOND, Arm, Comparison, Task
from lang_envs.report import Table
from lang_envs.report.statistics import LEVEL, RESAMPLES


class Beside(NamedTuple):
    """Measurements of a study beside its learning curves.

    Attributes:
        jobs: Function from seeds to jobs.
        rows: Planned comparisons of their results; they are corrected together with those of the curves.
        content: Further fields of the report.
        tables: Tables of these fields.
    """

    jobs: Callable[[Sequence[int]], Iterable[Job]]
    rows: Callable[[Pieces, Sequence[int]], Sequence[Row]]
    content: Callable[[Pieces, Sequence[int]], Mapping[str, Any]] = lambda pieces, seeds: {}
    tables: Callable[[Mapping[str, Any]], Iterable[Table]] = lambda content: ()


class Comparing(NamedTuple):
    """A `Study` of learning curves.

    Attributes:
        name: Name on the command line.
        about: Question that the study answers.
        title: Title of the picture.
        arms: Methods by task, in the order of the runs.
        planned: Primary comparisons; see docs/benchmarks/protocol.md.
        remarks: Facts that a reader of the study needs.
        seeds: Seeds of the reported runs if the user names none.
        beside: Measurements beside the learning curves.
        drawn: Methods in the picture; all if empty.
    """

    name: str
    about: str
    title: str
    arms: Sequence[tuple[Task, tuple[Arm, ...]]]
    planned: Sequence[Planned | Trend]
    remarks: Sequence[str] = ()
    seeds: Sequence[int] = FINAL_SEEDS
    beside: Beside | None = None
    drawn: Sequence[str] = ()

    def comparisons(self, options: Options) -> list[Comparison]:
        """Return the comparisons of the chosen tasks."""
        chosen = options.chosen_tasks(task.name for task, _ in self.arms)
        return [self.comparison(task, arms) for task, arms in self.arms if task.name in chosen]

    def comparison(self, task: Task, arms: tuple[Arm, ...]) -> Comparison:
        """Return the comparison of methods on a task."""
        planned = (plan for plan in self.planned if isinstance(plan, Planned) and plan.gated)
        baselines = frozenset(plan.second for plan in planned if not plan.tasks or task.name in plan.tasks)
        return Comparison(self.name, task, arms, BEYOND, baselines, self.seeds)

    def jobs(self, options: Options, pieces: Pieces) -> Iterator[Job]:
        """Yield tuning and final runs, comparison by comparison; each once."""
        jobs = [job for comparison in self.comparisons(options) for job in comparison.jobs(options, pieces)]
        if self.beside is not None and not options.tasks:
            jobs += self.beside.jobs(options.checked_seeds())
        yield from {job.name: job for job in jobs}.values()

    def findings(self, options: Options, pieces: Pieces) -> list[Findings]:
        """Return findings of all comparisons."""
        return [find(comparison, pieces, options.checked_seeds()) for comparison in self.comparisons(options)]

    def report(self, options: Options, pieces: Pieces) -> Report:
        """Report verdicts, areas, last returns, missing runs; with pictures of the existing ones."""
        findings = self.findings(options, pieces)
        planned = list(planned_rows(self.findings(options._replace(seeds=self.seeds), pieces), self.planned))
        if self.beside is not None:
            planned += self.beside.rows(pieces, self.seeds)
        rows = judged(planned, len(self.seeds))
        beside = () if self.beside is None else self.beside.jobs(options.seeds)
        content = {
            "seeds": list(options.seeds),
            "statistics": f"Interquartile mean over seeds; {LEVEL:.0%} intervals ({RESAMPLES:,} bootstrap samples).",
            "remarks": list(self.remarks),
            "missing": [f"{finding.comparison.task.name}: {gap}" for finding in findings for gap in finding.missing],
            "comparisons": [finding.to_json() for finding in findings],
            "primary": rows,
            "beside_runs": [job.name for job in beside if pieces.find(job) is not None],  # for `reproduce`
            **({} if self.beside is None else self.beside.content(pieces, options.seeds)),
        }
        if not any(finding.methods for finding in findings):
            return Report(content, {})
        from benchmarks.studies.engine.pictures import curves_figure

        return Report(content, {"": curves_figure(findings, self.title, self.drawn)})

    def tables(self, content: Mapping[str, Any]) -> Iterator[Table]:
        """Yield the tables of the content of its JSON file, for the terminal and the site."""
        yield planned_comparisons(content)
        yield from curve_tables(content)
        if self.beside is not None:
            yield from self.beside.tables(content)
