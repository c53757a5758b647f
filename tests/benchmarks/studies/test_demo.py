"""The report of the demo, from its committed results."""

from __future__ import annotations

from benchmarks.files import RESULTS
from benchmarks.studies.demo import report_of_demo
from lang_envs.report import Table


def test_the_report_of_the_demo_has_scores() -> None:
    scores = Table("100 episodes", ("agent", "mean return"), [("random", "0.1")])
    report = report_of_demo(RESULTS / "demo", [scores])
    assert report.tables == [scores]
    assert report.episodes[-1]["training_steps"] == 5_120
    assert report.curves[0].values[-1] > 0.8
