"""The training that `measure throughput` times."""

from __future__ import annotations

import pytest

from benchmarks.performance.our_loop import SETTINGS, Options, OurLoop
from benchmarks.performance.throughput import LOOPS, check
from poad_sb3.language_model.loading import DTYPES


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_model_of_every_number_format(dtype: str) -> None:
    loop = OurLoop(SETTINGS["code"], Options(2_000, "6m", dtype))
    assert loop.model.policy.lm.base.dtype == DTYPES[dtype]


@pytest.mark.matrix_after(2)
@pytest.mark.parametrize(
    ("workload", "name"),
    [
        ("twosome", "reference"),
        ("salad", "competent"),
        *((workload, name) for workload in ("poad", "poad-published", "code", "code-16") for name in LOOPS),
        ("twosome", "competent"),
        ("salad", "reference"),
    ],
)
def test_a_plain_loop_computes_the_same_update(workload: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SETTINGS, "salad", SETTINGS["smollm2"]._replace(model=None))
    assert max(check(name, workload, Options(2_000)).values()) < 1e-3
