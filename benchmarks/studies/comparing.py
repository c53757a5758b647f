"""Studies that compare methods by their learning curves: all differ by data alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.runner.discounts import discount_of
from benchmarks.runner.files import write_picture
from benchmarks.runner.results import references_of
from benchmarks.runner.statistics import LEVEL, RESAMPLES
from benchmarks.studies.arms import Comparison, check_seeds
from benchmarks.studies.findings import Claim, Findings, find, says, told_lines
from benchmarks.studies.jobs import Job
from benchmarks.studies.pieces import Pieces
from benchmarks.studies.study import Options, Report, Study

__all__ = ["Comparing"]


class Comparing(NamedTuple):
    """What such a study is made of.

    Attributes:
        name: On the command line.
        told: What it asks.
        title: Of its picture.
        comparisons: By names of tasks, in the order in which they are done.
        claims: What the paper says.
        published: The same in a sentence, with model and hardware.
        remarks: What one has to know to read it.
    """

    name: str
    told: str
    title: str
    comparisons: Callable[[Sequence[str]], Sequence[Comparison]]
    claims: Sequence[Claim]
    published: str
    remarks: Sequence[str]

    def study(self) -> Study:
        """As the command takes it."""
        return Study(self.name, self.told, self.jobs, self.report)

    def jobs(self, options: Options, pieces: Pieces) -> Iterator[Job]:
        """Tuning and final runs, comparison by comparison."""
        for one in self.comparisons(options.tasks):
            yield from one.jobs(pieces, check_seeds(options.seeds), final=not options.tuning_only)

    def findings(self, options: Options, pieces: Pieces) -> list[Findings]:
        """What there is."""
        return [find(one, pieces, check_seeds(options.seeds)) for one in self.comparisons(options.tasks)]

    def report(self, options: Options, pieces: Pieces) -> Report:
        """Areas, final returns, orderings, what is missing; pictures of what there is."""
        findings = self.findings(options, pieces)
        told = says(findings, self.claims)
        content = {
            "seeds": list(options.seeds),
            "statistics": f"interquartile mean over seeds, {LEVEL:.0%} intervals by bootstrap, {RESAMPLES:,} resamples",
            "published": self.published,
            "remarks": list(self.remarks),
            **told,
            "references": _references(findings),
            "comparisons": [one.told(self.claims) for one in findings],
        }
        return Report(content, self._pictures(findings), told_lines(told))

    def _pictures(self, findings: Sequence[Findings]) -> Mapping[str, Callable[[Path], Path]]:
        if not any(one.methods for one in findings):
            return {}
        from benchmarks.studies.pictures import curves_figure, dots_figure

        areas = partial(dots_figure, findings, "area", "mean height of the learning curve")
        return {
            "": lambda path: write_picture(path, curves_figure(findings, self.title)),
            "_areas": lambda path: write_picture(path, areas()),
        }


def _references(findings: Sequence[Findings]) -> dict[str, dict[str, float]]:
    found = {}
    for env_id in dict.fromkeys(one.comparison.task.env_id for one in findings):
        exact = references_of(env_id)
        if exact is not None:
            found[env_id] = {"discount": discount_of(env_id), **{k: round(v, 4) for k, v in exact._asdict().items()}}
    return found
