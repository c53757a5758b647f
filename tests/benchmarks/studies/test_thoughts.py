"""The study of thoughts: all arms clone the same rows, and thoughts that fit; its effect is that of last returns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from studies_users import fill_study, result

from benchmarks.studies.engine import training
from benchmarks.studies.engine.findings import Verdict
from benchmarks.studies.engine.jobs import WarmStartJob
from benchmarks.studies.engine.pieces import Pieces
from benchmarks.studies.engine.study import Options
from benchmarks.studies.thoughts import PARITY, THOUGHTS
from poad_sb3.bc import BC

((_, ARMS),) = THOUGHTS.arms


def cloned(arm: Any, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The steps that an arm clones, from two episodes instead of all."""
    steps: list[dict[str, Any]] = []

    class Recorder(BC):
        def __init__(self, model: Any, episodes: Any, **arguments: Any) -> None:
            super().__init__(model, episodes, **arguments)
            steps.extend(line for episode in episodes for line in episode)

    monkeypatch.setattr(training, "BC", Recorder)
    job = arm.job(PARITY._replace(steps=0, evaluation=replace(PARITY.evaluation, episodes=1)), 1, {})
    assert isinstance(job, WarmStartJob)
    training.train(replace(job, cloning=replace(job.cloning, episodes=2, epochs=1)))
    return steps


def test_all_arms_clone_the_same_rows_and_as_much_of_the_thought_as_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    without, short, long = (cloned(arm, monkeypatch) for arm in ARMS)
    assert len(without) == 8
    for plain, some, whole in zip(without, short, long, strict=True):
        assert plain["note"] == ""
        assert plain["observation"] == some["observation"] == whole["observation"]
        assert plain["action"] == some["action"] == whole["action"]
        thought = whole["info"]["oracle_thought"]
        assert (whole["note"], some["note"]) == (f"{thought}.", " ".join(thought.split()[:4]) + ".")
        assert {"one": "odd", "two": "even"}[thought.split()[-1]] == plain["action"]


def test_last_returns_are_compared_and_not_what_was_cloned(tmp_path: Path) -> None:
    pieces, options = Pieces(tmp_path), Options(seeds=THOUGHTS.seeds)

    def make(job: Any) -> dict[str, Any]:
        return result(0.5, 0.9 if job.arguments.get("max_thought_tokens") == 16 else 0.5 + job.seed / 1e4)

    fill_study(THOUGHTS, options, pieces, make)
    first, second = THOUGHTS.report(options, pieces).content["primary"]
    assert (first["effect_is"], first["verdict"], first["seeds"]) == (
        "difference of mean last returns", Verdict.SUPPORTED, [8, 8],
    )  # fmt: skip
    assert first["corrected_p"] == pytest.approx(2 * 2 / 12_870, rel=1e-3)  # Holm: the smaller p of two
    assert second["verdict"] == Verdict.NOT_SETTLED
