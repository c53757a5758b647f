"""HTML reports of studies, from their committed results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.runner.machine import RESULTS
from benchmarks.studies.engine.html_report import report_of_study
from lang_envs.report import build_page

STUDIES = sorted((RESULTS / "studies").glob("*.json"))


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_each_study_has_a_report(path: Path) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    report = report_of_study(content)
    assert content["command"] in report.runs[0].facts["command"]
    methods = [one for comparison in content.get("comparisons", ()) for one in comparison["methods"].values()]
    assert len(report.curves) == len(methods)
    for curve, method in zip(report.curves, methods, strict=True):
        assert list(curve.values) == method["curve"]["values"]
    if content.get("missing") or any(one["missing"] for one in content.get("comparisons", ())):
        assert report.runs[0].remark.startswith("Not run yet")
    assert len(build_page(report)) < 400_000
