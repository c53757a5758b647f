"""Reports of made-up pieces: all of them, some of them, none; and one study from end to end."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from studies_users import SCORE, fill_study, result
from typer.testing import CliRunner

from benchmarks.app import app
from benchmarks.errors import JobFailedError
from benchmarks.studies import app as studies_app
from benchmarks.studies import credit, registry
from benchmarks.studies.app import write_report
from benchmarks.studies.curves import CURVES
from benchmarks.studies.engine import comparing, tuning
from benchmarks.studies.engine import study as study_module
from benchmarks.studies.engine.comparing import Comparing
from benchmarks.studies.engine.findings import Planned, Prediction
from benchmarks.studies.engine.jobs import Evaluation, TrainingJob
from benchmarks.studies.engine.pieces import Pieces
from benchmarks.studies.engine.study import FINAL_SEEDS, Options, Study
from benchmarks.studies.engine.tuning import Arm, Task
from benchmarks.studies.registry import ALL
from benchmarks.studies.warm_start import WARM_START

RESULTS_PAGE = (Path(__file__).parents[3] / "docs/results.md").read_text(encoding="utf-8")
OPTIONS = Options(tasks=("food-preparation",))
HEIGHTS = {"POAD": 0.5, "NTPO": 0.3, "TWOSOME": 0.7, "RLOO": 0.2}
SEEDS = FINAL_SEEDS[:3]


def _make(job: TrainingJob) -> dict[str, Any]:
    return result(HEIGHTS[job.algorithm] + 0.02 * (job.seed % 100))


def _written(study: Study | Comparing, pieces: Pieces, folder: Path, options: Options = OPTIONS) -> dict[str, Any]:
    write_report(study, options.seeds, pieces, folder)
    content: dict[str, Any] = json.loads((folder / f"{study.name}.json").read_text(encoding="utf-8"))
    return content


@pytest.fixture
def pieces(tmp_path: Path) -> Pieces:
    return Pieces(tmp_path / "pieces")


# ---------------------------------------------------------------------- learning curves


def test_a_report_of_a_part_says_what_is_missing(pieces: Pieces, tmp_path: Path) -> None:
    fill_study(
        CURVES, OPTIONS, pieces, _make, lambda job: job.seed < 200 or (job.seed in SEEDS and job.algorithm != "RLOO")
    )
    content = _written(CURVES, pieces, tmp_path)
    panels = {one["task"]: one for one in content["comparisons"]}
    left = ", ".join(map(str, FINAL_SEEDS[3:]))
    assert f"NTPO, seeds {left}" in panels["food-preparation"]["missing"]
    assert f"RLOO, seeds {', '.join(map(str, FINAL_SEEDS))}" in panels["food-preparation"]["missing"]
    assert "RLOO" not in panels["food-preparation"]["methods"]
    assert panels["tomato-salad"]["missing"] == ["30 tuning runs, and all final runs"]
    assert "tomato-salad: 30 tuning runs, and all final runs" in content["missing"]
    with Image.open(tmp_path / "curves.png") as picture:
        assert min(picture.size) > 300
    assert {row["verdict"] for row in content["primary"]} == {"too few seeds", "not run yet"}


@pytest.mark.parametrize("study", ALL, ids=lambda study: study.name)
def test_a_report_of_nothing_is_all_missing_and_the_study_is_on_the_page(
    study: Study, pieces: Pieces, tmp_path: Path
) -> None:
    assert _written(study, pieces, tmp_path, Options(seeds=study.seeds))["missing"]
    assert not list(tmp_path.glob("*.png"))
    assert re.search(rf"\b{study.name}\b", RESULTS_PAGE)


@pytest.mark.parametrize(("success", "verdict"), [(1.0, "not settled"), (0.04, "at the floor")])
def test_warm_starts_that_all_fail_have_no_verdict(
    success: float, verdict: str, pieces: Pieces, tmp_path: Path
) -> None:
    def make(job: TrainingJob) -> dict[str, Any]:
        return {**_make(job), "tests": {name: {**SCORE, "success": success} for name in job.evaluation.tests}}

    options = Options(seeds=WARM_START.seeds)
    fill_study(WARM_START, options, pieces, make)
    (row,) = (row for row in _written(WARM_START, pieces, tmp_path, options)["primary"] if row["claim"])
    assert (row["task"], row["verdict"], row["seeds"]) == ("eight unseen tasks", verdict, [8, 8])


# ---------------------------------------------------------------------- from end to end


TINY = Comparing(
    "tiny",
    "a test",
    "A test",
    (
        (
            Task(
                "tiny", "KeyToken-v0", 128, Evaluation(every=128, episodes=3, tests=("KeyToken-v0",), test_episodes=2)
            ),
            (Arm("POAD", "POAD", {"action_sampling": "candidates"}), Arm("TWOSOME", "TWOSOME", {})),
        ),
    ),
    (Planned("POAD", "TWOSOME", Prediction.HIGHER),),
)


def _study(*arguments: str):
    return CliRunner().invoke(app, ["study", *arguments], env={"COLUMNS": "200"})


def test_a_run_that_fails_does_not_keep_the_report_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise JobFailedError("Expected luck.", "a trace")

    monkeypatch.setattr(studies_app, "_work", fail)
    result = _study("curves", "--out", str(tmp_path))
    assert result.exit_code == 3
    assert "a trace\nbenchmarks: Expected luck." in result.stderr
    assert (tmp_path / "curves.json").exists()


@pytest.mark.matrix
def test_a_study_from_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "RATES", (1e-3,))
    monkeypatch.setattr(comparing, "BEYOND", None)
    monkeypatch.setattr(study_module, "TUNING_SEEDS", (101,))
    monkeypatch.setattr(registry, "ALL", (TINY,))
    command = ("tiny", "--seeds", "0", "--out", str(tmp_path))
    assert "0 runs done. Time is up" in _study(*command, "--budget", "0").stdout
    assert "tiny: 5 runs done." in _study(*command, "--workers", "2").stdout
    result = _study(*command)
    assert "tiny: 0 runs done." in result.stdout
    content = json.loads((tmp_path / "tiny.json").read_text(encoding="utf-8"))
    methods = content["comparisons"][0]["methods"]
    assert methods["POAD"]["curve"]["steps"] == [0, 128]
    first = [method["curve"]["values"][0] for method in methods.values()]
    assert first[0] == first[1]  # the same policy, the same episodes
    piece = json.loads(next((tmp_path / "pieces").glob("*_0_*.json")).read_text(encoding="utf-8"))
    assert piece["result"]["largest_first_ratio_error"] < 1e-4
    assert piece["result"]["tests"]["KeyToken-v0"]["episodes"] == 2
    assert piece["measured"]["versions"]["torch"]


@pytest.mark.matrix
def test_the_same_job_finds_the_same_and_records_its_episode() -> None:
    pytest.importorskip("torch")
    from benchmarks.studies.engine.training import run_training

    job = replace(credit._job(credit.TASKS["key-token"], "POAD"), steps=128)
    first, again = run_training(job), run_training(job)
    untimed = [{name: value for name, value in one.items() if name != "cpu_seconds"} for one in (first, again)]
    assert untimed[0] == untimed[1]
    actions = [step["action"] for step in first["rollout"]]
    judged = run_training(replace(job, evaluation=replace(job.evaluation, script=tuple(actions))))
    for own, seen in zip(first["rollout"], judged["rollout"], strict=True):
        assert seen["tokens"] == own["tokens"]
        assert seen["values"] == pytest.approx(own["values"], abs=1e-5)
        assert seen["advantages"]["POAD"] == pytest.approx(own["advantages"]["POAD"], abs=1e-5)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("curve",), "Expected a study; got 'curve'"),
        (("curves", "report"), "got none. Fix: copy"),
        (("lambda-token", "report", "--tasks", "pizza"), "Expected tasks among multikey 2 4"),
        (("curves", "report", "--seeds", "101"), "Expected distinct seeds, 0 or more, none of those"),
        (("credit", "report", "--seeds", "1"), "Expected seed 0, the only one here"),
    ],
)
def test_a_wrong_command_is_refused_in_one_line(arguments: tuple[str, ...], told: str, tmp_path: Path) -> None:
    result = _study(*arguments, "--out", str(tmp_path))
    assert result.exit_code == 1
    assert told in result.output
    assert "Traceback" not in result.output
