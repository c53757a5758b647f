"""HTML reports of studies, from their committed results."""

from __future__ import annotations

import json

import pytest

from benchmarks.runner.machine import RESULTS
from benchmarks.studies.demo import report_of_demo
from benchmarks.studies.engine.comparing import Comparing
from benchmarks.studies.engine.html_report import report_of_study
from benchmarks.studies.engine.study import Study
from benchmarks.studies.registry import ALL
from lang_envs.report import Table, build_page


def test_the_report_of_the_demo_has_scores() -> None:
    scores = Table("100 episodes", ("agent", "mean return"), [("random", "0.1")])
    report = report_of_demo(RESULTS / "demo", [scores])
    first, recorded = report.tables
    assert first is scores
    assert recorded.rows[-1] == ("5,120", "0.921", "100%", "6.0", "28.0")


@pytest.mark.parametrize("study", ALL, ids=lambda study: study.name)
def test_each_study_has_a_report(study: Study | Comparing) -> None:
    content = json.loads((RESULTS / "studies" / f"{study.name}.json").read_text(encoding="utf-8"))
    report = report_of_study(study, content)
    assert report.tables
    assert content["command"] in report.runs[0].facts["command"]
    methods = [one for comparison in content.get("comparisons", ()) for one in comparison["methods"].values()]
    assert len(report.curves) == len(methods)
    for curve, method in zip(report.curves, methods, strict=True):
        assert list(curve.values) == method["curve"]["values"]
    if content.get("missing") or any(one["missing"] for one in content.get("comparisons", ())):
        assert report.runs[0].remark.startswith("Not run yet")
    assert len(build_page(report)) < 400_000
