"""The study of SmolLM2: its jobs, the step at which a bound is reached, and its report; no model is loaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from studies_users import MADE, result

from benchmarks.studies.engine import training
from benchmarks.studies.engine.jobs import Evaluation, PresetJob
from benchmarks.studies.engine.pieces import Pieces
from benchmarks.studies.engine.study import Options
from benchmarks.studies.real_model import CURVES, REAL_MODEL, reached

BY_NAME = {curve.name: curve for curve in CURVES}


def test_a_bound_is_reached_at_the_first_evaluation_with_nine_tenths_of_the_oracle() -> None:
    curve = BY_NAME["tomato-salad"]
    scores = [0.0, 0.899 * curve.score("oracle"), 0.901 * curve.score("oracle"), 0.1]
    assert reached(curve, {"steps": [0, 1, 2, 3], "returns": scores, "success": [1.0] * 4}) == 2
    assert reached(curve, {"steps": [0], "returns": [0.8 * curve.score("oracle")], "success": [1.0]}) is None
    assert curve.score("oracle") == pytest.approx(0.9205, abs=1e-4)
    assert BY_NAME["food-preparation"].score("oracle") == 1.0


def test_the_report_has_a_row_for_each_task_with_runs(tmp_path: Path) -> None:
    pieces = Pieces(tmp_path)
    options = Options(tasks=("tomato-salad", "food-preparation-cloned"))
    for job in list(REAL_MODEL.jobs(options, pieces))[:3]:
        pieces.put(job, result(0.9), MADE)
    report = REAL_MODEL.report(Options(), pieces)
    (table,) = REAL_MODEL.tables(report.content)
    assert [row[:3] for row in table.rows] == [
        ("tomato-salad", "2 of 2 (by 8,000)", "100, 100"),
        ("food-preparation-cloned", "1 of 1 (by 3,000)", "200"),
    ]
    assert report.content["missing"][0] == "tomato-salad: 3 of 5 runs"
    assert [axes.get_title() for axes in report.pictures[""].axes][:2] == [
        "tomato-salad, seeds: 2",
        "food-preparation-cloned, seeds: 1",
    ]


def test_a_job_trains_on_its_environments_after_cloning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, Any]] = []
    monkeypatch.setenv("LANG_ENVS_CACHE", str(tmp_path))
    monkeypatch.setattr(training, "clone", lambda model, cloning: seen.append((model.n_envs, cloning)))
    for name in ("food-preparation-cloned", "food-preparation"):
        job = replace(BY_NAME[name].job(300), steps=0, arguments={}, evaluation=Evaluation(every=16, episodes=1))
        job.run()
    assert seen == [(8, BY_NAME["food-preparation-cloned"].cloning)]


def test_resumes_an_interrupted_run_from_its_last_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluation = Evaluation(every=16, episodes=2)
    arguments = {"n_steps": 8, "batch_size": 8, "n_epochs": 1, "n_critic_epochs": 1}
    job = PresetJob("POAD", "KeyToken-v0", 64, 0, arguments, evaluation, n_envs=2, cloning=None)
    monkeypatch.setenv("LANG_ENVS_CACHE", str(tmp_path / "first"))
    expected = job.run()
    monkeypatch.setenv("LANG_ENVS_CACHE", str(tmp_path / "second"))
    calls: list[int] = []
    play = training.play

    def play_until_interrupted(*arguments: Any, **kwargs: Any) -> Any:
        calls.append(len(calls))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return play(*arguments, **kwargs)

    monkeypatch.setattr(training, "play", play_until_interrupted)
    with pytest.raises(KeyboardInterrupt):
        job.run()
    resumed = job.run()
    assert len(expected["steps"]) == 5
    assert len(calls) == 4 + 2
    assert {**resumed, "cpu_seconds": 0} == {**expected, "cpu_seconds": 0}
    assert not list(tmp_path.rglob("*.zip"))
