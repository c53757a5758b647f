"""The training that `measure throughput` times."""

from __future__ import annotations

import pytest

from benchmarks.performance.our_loop import SETTINGS
from benchmarks.performance.throughput import LOOPS, TOLERANCE, check


@pytest.mark.matrix_after(2)
@pytest.mark.parametrize(
    ("workload", "name"),
    [
        ("twosome", "reference"),
        ("salad", "competent"),
        *((workload, name) for workload in ("poad", "poad-published", "code", "code-16") for name in LOOPS),
    ],
)
def test_a_plain_loop_computes_the_same_update(workload: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SETTINGS, "salad", SETTINGS["smollm2"]._replace(model=None))
    assert max(check(name, workload).values()) < TOLERANCE
