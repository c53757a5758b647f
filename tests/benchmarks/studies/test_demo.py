"""The report of the demo, from its committed results."""

from __future__ import annotations

from benchmarks.runner.machine import RESULTS
from benchmarks.studies.demo import report_of_demo
from lang_envs.report import Table


def test_the_report_of_the_demo_has_scores() -> None:
    scores = Table("100 episodes", ("agent", "mean return"), [("random", "0.1")])
    report = report_of_demo(RESULTS / "demo", [scores])
    first, recorded = report.tables
    assert first is scores
    assert recorded.rows[-1] == ("5,120", "0.921", "100%", "6.0", "28.0")
