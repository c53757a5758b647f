"""The training that `measure throughput` times."""

from __future__ import annotations

import pytest

from benchmarks.performance.our_loop import SETTINGS, Options, OurLoop
from benchmarks.performance.throughput import check
from poad_sb3.language_model.loading import DTYPES


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_model_of_every_number_format(dtype: str) -> None:
    loop = OurLoop(SETTINGS["code"], Options(2_000, "6m", dtype))
    assert loop.model.policy.lm.base.dtype == DTYPES[dtype]


@pytest.mark.parametrize("workload", ["twosome", "salad"])
def test_a_plain_loop_computes_the_same_update(workload: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SETTINGS, "salad", SETTINGS["smollm2"]._replace(model=None))
    assert max(check("competent", workload, Options(2_000)).values()) < 1e-3
