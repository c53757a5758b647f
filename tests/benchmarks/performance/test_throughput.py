"""The training that `measure throughput` times."""

from __future__ import annotations

import pytest

from benchmarks.performance.our_loop import SETTINGS
from benchmarks.performance.throughput import TOLERANCE, check


@pytest.mark.parametrize(
    "workload",
    [
        "twosome",
        "salad",
        *(pytest.param(name, marks=pytest.mark.matrix) for name in ("poad", "poad-published", "code", "code-16")),
    ],
)
def test_the_plain_loop_computes_the_same_update(workload: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SETTINGS, "salad", SETTINGS["smollm2"]._replace(model=None))
    assert max(check(workload).values()) < TOLERANCE
