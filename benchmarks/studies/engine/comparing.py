"""Studies that compare methods by their learning curves: all differ by data alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from benchmarks.runner.results import references_of
from benchmarks.studies.engine.findings import Claim, Findings, find, lines, primary, sentences
from benchmarks.studies.engine.jobs import Job
from benchmarks.studies.engine.pieces import Pieces
from benchmarks.studies.engine.study import FINAL_SEEDS, SEEDS_FOR_A_VERDICT, Options, Report
from benchmarks.studies.engine.tuning import Comparison
from lang_envs.report.statistics import LEVEL, RESAMPLES
from poad_sb3.common.episode_lines import discount_of


class Comparing(NamedTuple):
    """A `Study` of learning curves.

    Attributes:
        name: On the command line.
        about: The question.
        title: Of its picture.
        comparisons: Of chosen tasks, in the order of the runs.
        claims: Of the paper.
        published: The same in a sentence, with model and hardware.
        remarks: Facts that a reader needs to read it.
        seeds: Seeds of the reported runs where none are named.
        primary: Pairs of methods whose areas are tested on each task; see docs/benchmarks/protocol.md.
    """

    name: str
    about: str
    title: str
    comparisons: Callable[[Options], Sequence[Comparison]]
    claims: Sequence[Claim]
    published: str
    remarks: Sequence[str]
    seeds: Sequence[int] = FINAL_SEEDS
    primary: Sequence[Claim] = ()

    def jobs(self, options: Options, pieces: Pieces) -> Iterator[Job]:
        """Yield tuning and final runs, comparison by comparison."""
        for one in self.comparisons(options):
            yield from one.jobs(options, pieces)

    def findings(self, options: Options, pieces: Pieces) -> list[Findings]:
        """Return findings of all comparisons."""
        return [find(one, pieces, options.checked_seeds()) for one in self.comparisons(options)]

    def report(self, options: Options, pieces: Pieces) -> Report:
        """Report areas, final returns, orderings, missing runs; with pictures of the existing ones."""
        findings = self.findings(options, pieces)
        found = sentences(findings, self.claims)
        references = {}
        for env_id in dict.fromkeys(one.comparison.task.env_id for one in findings):
            if exact := references_of(env_id):
                ends = {name: round(value, 4) for name, value in exact._asdict().items()}
                references[env_id] = {"discount": discount_of(env_id), **ends}
        content = {
            "seeds": list(options.seeds),
            "statistics": f"interquartile mean over seeds, {LEVEL:.0%} intervals by bootstrap, {RESAMPLES:,} resamples",
            "published": self.published,
            "remarks": list(self.remarks),
            **found,
            "references": references,
            "comparisons": [one.to_json(self.claims) for one in findings],
        }
        if self.primary:
            content["primary"] = primary(findings, self.primary, SEEDS_FOR_A_VERDICT)
        if not any(one.methods for one in findings):
            return Report(content, {}, lines(found))
        from benchmarks.studies.engine.pictures import curves_figure, dots_figure

        areas = dots_figure(findings, "area", "mean height of the learning curve")
        return Report(content, {"": curves_figure(findings, self.title), "_areas": areas}, lines(found))
