"""Committed intervals, p-values and verdicts of the studies, computed again with scipy from the returns of the runs."""

from __future__ import annotations

import itertools
import json
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy import stats

from benchmarks.files import RESULTS
from benchmarks.studies.app import AnyStudy
from benchmarks.studies.engine.pieces import STUDIES, Pieces
from benchmarks.studies.engine.study import Options
from benchmarks.studies.registry import ALL

REPORTS = {
    path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted((RESULTS / "studies").glob("*.json"))
}
PIECES = Pieces()
METHODS = [
    (name, one["task"], method)
    for name, content in REPORTS.items()
    for one in content.get("comparisons", ())
    for method in one["methods"]
]
ROWS = [
    (name, number)
    for name, content in REPORTS.items()
    for number, row in enumerate(content.get("primary", ()))
    if row["p"] is not None and row["effect_is"] == "difference of mean areas"
]


def _methods(name: str, task: str) -> dict[str, Any]:
    return next(one["methods"] for one in REPORTS[name]["comparisons"] if one["task"] == task)


def _areas(method: dict[str, Any]) -> list[float]:
    """Areas from the pieces, by integration of straight lines."""
    areas = []
    for piece in method["runs"].values():
        result = PIECES.read(piece)["result"]  # type: ignore[index]  # committed
        steps, returns = np.array(result["steps"]), np.array(result["returns"])
        height = ((returns[1:] + returns[:-1]) / 2 * np.diff(steps)).sum() / (steps[-1] - steps[0])
        areas.append(round(float(height), 9))
    return areas


@pytest.mark.matrix
@pytest.mark.parametrize("study", ALL, ids=lambda one: one.name)
def test_reports_are_those_of_the_code_and_the_pieces(study: AnyStudy) -> None:
    """A changed plan without a new report would show the old plan."""
    report = study.report(Options(seeds=study.seeds), Pieces(STUDIES / "pieces"))
    for figure in report.pictures.values():
        if isinstance(figure, Figure):
            plt.close(figure)
    made = json.loads(json.dumps(report.content))
    assert {name: REPORTS[study.name][name] for name in made} == made


@pytest.mark.parametrize(("name", "task", "method"), METHODS, ids=str)
def test_areas_and_their_intervals(name: str, task: str, method: str) -> None:
    one = _methods(name, task)[method]
    areas = _areas(one)
    assert one["areas"] == pytest.approx(areas, abs=1e-6)
    assert one["area"]["value"] == pytest.approx(stats.trim_mean(areas, 0.25), abs=1e-6)
    if len(areas) > 2:
        # Few seeds have few values of the mean, with gaps between them: bounds are compared by their probability.
        # That of 5,000 draws has a standard error of 0.0022.
        drawn = stats.bootstrap(
            (areas,), lambda x, axis: stats.trim_mean(x, 0.25, axis=axis), n_resamples=50_000, rng=1
        ).bootstrap_distribution
        for bound, expected in ((one["area"]["low"], 0.025), (one["area"]["high"], 0.975)):
            assert (drawn < bound - 1e-6).mean() < expected + 0.008
            assert (drawn <= bound + 1e-6).mean() > expected - 0.008


@pytest.mark.parametrize(("name", "number"), ROWS, ids=str)
def test_p_values_and_differences(name: str, number: int) -> None:
    row = REPORTS[name]["primary"][number]
    methods = _methods(name, row["task"])
    first, second = (np.array(_areas(methods[one])) for one in row["comparison"].split(" against "))
    assert row["effect"]["value"] == pytest.approx(first.mean() - second.mean(), abs=1e-6)
    if len({*first, *second}) < len(first) + len(second):  # scipy has no exact test with ties
        ranks, n = stats.rankdata([*first, *second]), len(first)
        sums = np.array([sum(subset) for subset in itertools.combinations(ranks, n)])
        expected = (abs(sums - sums.mean()) >= abs(ranks[:n].sum() - sums.mean()) - 1e-9).mean()
    else:
        expected = stats.mannwhitneyu(first, second, method="exact").pvalue
    assert row["p"] == pytest.approx(expected, rel=1e-4)
    if min(len(first), len(second)) > 2:
        drawn = stats.bootstrap(
            (first, second),
            lambda x, y, axis: x.mean(axis=axis) - y.mean(axis=axis),
            method="percentile",
            rng=1,
        ).confidence_interval
        width = drawn.high - drawn.low
        interval = (row["effect"]["low"], row["effect"]["high"])
        assert interval == pytest.approx((drawn.low, drawn.high), abs=0.1 * width)


@pytest.mark.parametrize("name", sorted({name for name, _ in ROWS}))
def test_the_correction_is_that_of_holm_over_all_rows(name: str) -> None:
    rows = REPORTS[name]["primary"]
    tested = [row for row in rows if row["p"] is not None]
    known = sorted((row for row in tested if row["verdict"] != "too few seeds"), key=lambda row: row["p"])
    largest = 0.0
    for rank, row in enumerate(known):
        largest = max(largest, min(1.0, (len(rows) - rank) * row["p"]))
        assert row["corrected_p"] == pytest.approx(largest, rel=1e-4)
