"""The training that `measure throughput` times."""

from __future__ import annotations

import pytest
import torch

from benchmarks.performance.our_loop import SETTINGS, Options, OurLoop
from benchmarks.performance.throughput import _TOLERANCES


@pytest.mark.parametrize("dtype", _TOLERANCES)
def test_a_model_of_every_number_format(dtype: str) -> None:
    loop = OurLoop(SETTINGS["code"], Options(2_000, "6m", dtype))
    assert loop.model.policy.lm.base.dtype == getattr(torch, dtype)
