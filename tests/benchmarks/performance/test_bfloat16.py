"""The figures of `measure bfloat16`."""

from __future__ import annotations

import pytest

from benchmarks.performance.bfloat16 import Training, summarize


def test_ratios_are_those_of_one_turn() -> None:
    def turn(speed: float) -> dict[str, float]:
        return {"steps_per_second": speed, "us_per_position": 1.0, "first_ratio_error": 0.0}

    turns = {"float32": [turn(1), turn(10), turn(10)], "bfloat16": [turn(3), turn(15), turn(12)]}
    assert summarize(turns)["bfloat16"]["times_float32"] == 1.5


@pytest.mark.process
def test_a_turn_of_the_pocket_model() -> None:
    assert Training("pocket", {}).turn()["first_ratio_error"] < 1e-4
