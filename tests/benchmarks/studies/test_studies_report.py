"""Reports of made-up pieces: all of them, some of them, none; and one study from end to end."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from PIL import Image
from studies_users import MADE, fill, result
from typer.testing import CliRunner

from benchmarks.app import app
from benchmarks.reports.plots import PALETTE
from benchmarks.runner.errors import JobFailedError
from benchmarks.studies import app as studies_app
from benchmarks.studies import credit, registry
from benchmarks.studies.app import write_report
from benchmarks.studies.credit import CREDIT
from benchmarks.studies.curves import CURVES
from benchmarks.studies.engine import study as study_module
from benchmarks.studies.engine import tuning
from benchmarks.studies.engine.comparing import Comparing
from benchmarks.studies.engine.findings import Claim, find
from benchmarks.studies.engine.jobs import Evaluation, TrainingJob
from benchmarks.studies.engine.pictures import curves_figure, dots_figure
from benchmarks.studies.engine.pieces import Pieces
from benchmarks.studies.engine.study import FINAL_SEEDS, Options, Study
from benchmarks.studies.engine.tuning import Arm, Comparison, Task
from benchmarks.studies.generalisation import GENERALISATION_STUDY
from benchmarks.studies.registry import ALL
from lang_envs import UNSEEN_IDS

ROOT = Path(__file__).parents[3]
OPTIONS = Options(tasks=("food-preparation",))
HEIGHTS = {"POAD": 0.5, "NTPO": 0.3, "TWOSOME": 0.7, "ARCHER": 0.2}


def _make(job: TrainingJob) -> dict[str, Any]:
    height = HEIGHTS[job.algorithm] + 0.02 * (job.seed % 100)
    score = {"discounted_return": height, "success": 1.0, "steps": 9.0, "episodes": 100}
    tests = {env_id: score for env_id in UNSEEN_IDS}
    made = result(height, **({"tests": tests} if job.evaluation.tests else {}))
    if job.steps == 0:
        made |= {"steps": [0], "returns": [0.0], "success": [0.0], "actions": [5.0]}
    return made


def _fill(
    study: Study, pieces: Pieces, options: Options = OPTIONS, keep: Callable[[TrainingJob], bool] = lambda _: True
) -> None:
    for _ in range(3):
        fill(pieces, [job for job in study.jobs(options, pieces) if keep(job)], _make)


def _written(
    study: Study, pieces: Pieces, folder: Path, options: Options = OPTIONS
) -> tuple[dict[str, Any], list[str]]:
    lines = write_report(study, options.seeds, pieces, folder)
    return json.loads((folder / f"{study.name}.json").read_text(encoding="utf-8")), lines


@pytest.fixture
def pieces(tmp_path: Path) -> Pieces:
    return Pieces(tmp_path / "pieces")


# ---------------------------------------------------------------------- learning curves


def test_what_contradicts_the_paper_is_said_first_and_plainly(pieces: Pieces, tmp_path: Path) -> None:
    _fill(CURVES, pieces)
    content, lines = _written(CURVES, pieces, tmp_path)
    assert lines[0] == "In another order than in the paper:"
    assert len(content["differs"]) == 4  # area and last return, both panels
    told = (
        "POAD (0.390) is below TWOSOME (0.540); probability that it does better 0.00 [0.00, 0.00], which 3 and 3 seeds "
        "do not settle (p 0.10)."
    )
    assert content["differs"][0].endswith(told)
    assert lines[1].strip() == content["differs"][0]
    assert all("is above NTPO" in one for one in content["agrees"])
    assert content["missing"]
    assert not any("FoodPreparation" in one for one in content["missing"])


def test_the_numbers_are_those_of_the_pieces(pieces: Pieces, tmp_path: Path) -> None:
    _fill(CURVES, pieces)
    content, _ = _written(CURVES, pieces, tmp_path)
    panel = content["comparisons"][0]
    assert panel["order"]["final"] == ["TWOSOME", "POAD", "NTPO", "ARCHER"]
    poad = panel["methods"]["POAD"]
    assert poad["finals"] == [0.5, 0.52, 0.54]
    assert poad["final"] == {"value": 0.52, "low": 0.5, "high": 0.54}
    assert poad["learning_rate"] == 5e-4
    assert poad["curve"]["values"] == [0.0, 0.52, 0.52]
    assert {name: len(rates) for name, rates in panel["tuning"].items()} == dict.fromkeys(HEIGHTS, 3)
    assert [one["second"] for one in panel["improvement"]] == ["NTPO", "TWOSOME", "ARCHER"]
    assert content["references"]["VirtualHome-FoodPreparation-v0"]["discount"] == 0.95
    assert content["measured_with"] == [{name: value for name, value in MADE.items() if name != "command"}]
    assert content["command"] == "python -m benchmarks study curves"


def test_a_difference_that_may_be_chance_is_called_so(pieces: Pieces, tmp_path: Path) -> None:
    def make(job: TrainingJob) -> dict[str, Any]:
        return result({"POAD": 0.5, "NTPO": 0.49}.get(job.algorithm, 0.1) + (0.3 if job.seed == 1 else 0.0))

    for _ in range(2):
        fill(pieces, list(CURVES.jobs(OPTIONS, pieces)), make)
    content, _ = _written(CURVES, pieces, tmp_path)
    about_ntpo = [one for one in content["agrees"] if "NTPO" in one]
    assert about_ntpo
    assert all(re.search(r"which 3 and 3 seeds do not settle \(p 0\.\d\d\)\.$", one) for one in about_ntpo)


def test_five_seeds_that_all_do_better_settle_it(pieces: Pieces, tmp_path: Path) -> None:
    options = OPTIONS._replace(seeds=(0, 1, 2, 3, 4))
    _fill(CURVES, pieces, options)
    content, _ = _written(CURVES, pieces, tmp_path, options)
    assert content["seeds"] == [0, 1, 2, 3, 4]
    assert not any("do not settle" in one for one in (*content["differs"], *content["agrees"]))
    assert content["comparisons"][0]["improvement"][0]["area"]["chance"] == pytest.approx(2 / 252, rel=0.005)


def test_level_is_enough_against_twosome_and_not_against_ntpo(pieces: Pieces, tmp_path: Path) -> None:
    for _ in range(2):
        fill(pieces, list(CURVES.jobs(OPTIONS, pieces)), lambda _: result())
    content, _ = _written(CURVES, pieces, tmp_path)
    assert all("is level with NTPO" in one for one in content["differs"])
    assert all("is level with TWOSOME" in one for one in content["agrees"])
    assert len(content["differs"]) == len(content["agrees"]) == 4
    assert all("do not settle (p 1.00)" in one for one in (*content["differs"], *content["agrees"]))


def test_a_report_after_a_part_is_of_everything(pieces: Pieces, tmp_path: Path) -> None:
    _fill(CURVES, pieces)
    command = ("curves", "report", "--tasks", "food-preparation", "--seeds", "1", "--out", str(tmp_path))
    assert _study(*command).exit_code == 0
    content = json.loads((tmp_path / "curves.json").read_text(encoding="utf-8"))
    assert content["seeds"] == [0, 1, 2]
    assert {one["task"] for one in content["comparisons"]} > {"food-preparation"}
    assert any("TomatoSalad" in one for one in content["missing"])


def test_a_report_of_a_part_says_what_is_missing(pieces: Pieces, tmp_path: Path) -> None:
    _fill(CURVES, pieces, keep=lambda job: job.seed > 100 or (job.seed != 2 and job.algorithm != "ARCHER"))
    content, lines = _written(CURVES, pieces, tmp_path, OPTIONS._replace(tasks=()))
    first = content["comparisons"][0]
    assert first["missing"] == ["POAD, seeds 2", "NTPO, seeds 2", "TWOSOME, seeds 2", "ARCHER, seeds 0, 1, 2"]
    assert set(first["methods"]) == {"POAD", "NTPO", "TWOSOME"}
    assert [one["missing"] for one in content["comparisons"] if one["task"] == "tomato-salad"] == [
        ["24 tuning runs, and all final runs"]
    ] * 2
    assert "Missing:" in lines


@pytest.mark.parametrize("study", ALL, ids=lambda study: study.name)
def test_a_report_of_nothing_is_all_missing(study: Study, pieces: Pieces, tmp_path: Path) -> None:
    content, lines = _written(study, pieces, tmp_path, Options())
    assert content["missing"]
    assert lines[-2] == f"  {tmp_path / study.name}.json"
    assert lines[-1].startswith(f"  {tmp_path / study.name}.html (")
    assert not list(tmp_path.glob("*.png"))


def test_pictures_of_a_part_are_drawn(pieces: Pieces, tmp_path: Path) -> None:
    _fill(CURVES, pieces, keep=lambda job: job.seed in (0, 101, 102))
    _written(CURVES, pieces, tmp_path)
    for name in ("curves.png", "curves_areas.png"):
        with Image.open(tmp_path / name) as picture:
            assert min(picture.size) > 300
            assert len(picture.convert("L").getcolors() or range(256)) > 50


# ---------------------------------------------------------------------- the others


def test_generalisation_has_before_after_and_published(pieces: Pieces, tmp_path: Path) -> None:
    _fill(GENERALISATION_STUDY, pieces)
    content, _ = _written(GENERALISATION_STUDY, pieces, tmp_path)
    assert list(content["discounted_return"]) == [
        "untrained",
        "untrained, candidates",
        "POAD",
        "NTPO",
        "TWOSOME",
        "ARCHER",
    ]
    assert content["discounted_return"]["POAD"]["VirtualHome-Cheese-v0"] == [0.52, 0.5, 0.54]
    assert content["published"]["POAD"]["VirtualHome-Cheese-v0"] == [0.7553, 1.0]
    assert len(content["differs"]) == len(content["agrees"]) == 1
    assert "6 published tasks: POAD (0.520) is below TWOSOME (0.720)" in content["differs"][0]
    assert "POAD (0.520) is above NTPO (0.320)" in content["agrees"][0]
    assert "LLaMA2-7B" in content["published_label"]
    assert (tmp_path / "generalisation.png").exists()


def _episode(advantages: dict[str, list[float]]) -> list[dict[str, Any]]:
    step = {"observation": "A kitchen.", "action": "cook", "reward": 1.0, "success": True, "terminated": True}
    return [
        {
            **step,
            "truncated": False,
            "tokens": ["co", "ok"],
            "log_probs": [],
            "values": [0.1, 0.2],
            "advantages": advantages,
        }
    ]


def test_credit_draws_one_critic_and_own_critics(pieces: Pieces, tmp_path: Path) -> None:
    options = Options(tasks=("tomato-salad",))
    rule = {"POAD": [0.5, 0.1], "NTPO": [-0.5, 0.1], "TWOSOME": [0.3, 0.3]}
    for _ in range(2):
        fill(pieces, list(CREDIT.jobs(options, pieces)), lambda _: result(rollout=_episode(rule)))
    content, _ = _written(CREDIT, pieces, tmp_path, options)
    assert content["missing"] == [f"KeyToken-v0: {name}" for name in rule]
    shares = content["tasks"]["tomato-salad"]["differs_within_actions"]
    assert shares == {"POAD": 1.0, "NTPO": 1.0, "TWOSOME": 0.0}
    assert content["tasks"]["tomato-salad"]["episode"][0]["advantages"] == rule
    assert len(list(tmp_path.glob("credit_tomato-salad_*_critic*.png"))) == 2


def test_wall_time_divides_steps_by_the_time_of_the_runs(pieces: Pieces, tmp_path: Path) -> None:
    _fill(CURVES, pieces)
    content, _ = _written(ALL[-1], pieces, tmp_path)
    assert {row["steps_per_second"] for row in content["rows"]} == {100.0}  # 200 steps in 2 seconds
    assert {row["method"] for row in content["rows"]} == set(HEIGHTS)
    assert "A100" in content["published_label"]


# ---------------------------------------------------------------------- from end to end


TINY = Comparing(
    "tiny",
    "a test",
    "A test",
    lambda options: [
        Comparison(
            "tiny",
            Task(
                "tiny", "KeyToken-v0", 128, Evaluation(every=128, episodes=3, tests=("KeyToken-v0",), test_episodes=2)
            ),
            (Arm("POAD", "POAD", {"action_sampling": "candidates"}), Arm("TWOSOME", "TWOSOME", {})),
        )
    ],
    (Claim("POAD", "TWOSOME"),),
    "nothing",
    (),
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


def test_a_method_keeps_its_colour_where_others_are_missing(pieces: Pieces) -> None:
    """The legend is one for all panels."""
    _fill(CURVES, pieces, keep=lambda job: job.algorithm == "TWOSOME" or job.seed > 100)
    panel = find(CURVES.comparisons(OPTIONS)[0], pieces, (0, 1, 2))
    assert list(panel.methods) == ["TWOSOME"]
    for figure in (curves_figure([panel], "one"), dots_figure([panel], "area", "area")):
        assert {line.get_color() for line in figure.axes[0].get_lines()} <= {PALETTE[2], "0.35"}


@pytest.mark.matrix
def test_a_study_from_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "RATES", (1e-3,))
    monkeypatch.setattr(study_module, "TUNING_SEEDS", (101,))
    monkeypatch.setattr(registry, "ALL", (TINY,))
    command = ("tiny", "--seeds", "0", "--out", str(tmp_path))
    assert "0 runs done. Time is up" in _study(*command, "--budget", "0").stdout
    assert "tiny: 4 runs done." in _study(*command, "--workers", "2").stdout
    result = _study(*command)
    assert "tiny: 0 runs done." in result.stdout
    content = json.loads((tmp_path / "tiny.json").read_text(encoding="utf-8"))
    methods = content["comparisons"][0]["methods"]
    assert methods["POAD"]["curve"]["steps"] == [0, 128]
    assert methods["POAD"]["largest_first_ratio_error"] < 1e-4
    assert methods["POAD"]["untrained"] == methods["TWOSOME"]["untrained"]  # the same policy, the same episodes
    piece = json.loads(next((tmp_path / "pieces").glob("*_0_*.json")).read_text(encoding="utf-8"))
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


def test_a_report_of_nothing_is_refused(tmp_path: Path) -> None:
    result = _study("curves", "report", "--out", str(tmp_path))
    assert result.exit_code == 1
    assert f"Expected pieces in {tmp_path / 'pieces'}; got none." in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("curve",), "Expected a study; got 'curve'"),
        (("curves", "report", "--tasks", "pizza"), "Expected tasks among"),
        (("curves", "report", "--seeds", "0,x"), "Expected seeds as whole numbers"),
        (("curves", "report", "--seeds", "101"), "Expected distinct seeds, 0 or more, none of those"),
        (("curves", "report", "--seeds=-1"), "0 or more"),
        (("curves", "report", "--seeds", ""), "got none"),
        (("generalisation", "report", "--tasks", "pizza"), "Expected tasks among food-preparation"),
        (("credit", "report", "--seeds", "1"), "Expected seed 0, the only one here"),
    ],
)
def test_a_wrong_command_is_refused_in_one_line(arguments: tuple[str, ...], told: str, tmp_path: Path) -> None:
    result = _study(*arguments, "--out", str(tmp_path))
    assert result.exit_code == 1
    assert told in result.output
    assert "Traceback" not in result.output


# ---------------------------------------------------------------------- the site


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("griffe", reason="the extra docs is not installed")
    monkeypatch.syspath_prepend(ROOT / "docs")
    import _studies

    return _studies


def test_the_page_shows_what_was_found(
    pages: ModuleType, pieces: Pieces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def result(name: str) -> Any:
        return json.loads((tmp_path / f"{name.removeprefix('studies/')}.json").read_text(encoding="utf-8"))

    monkeypatch.setattr(pages, "result", result)
    _fill(CURVES, pieces)
    _fill(GENERALISATION_STUDY, pieces)
    for study in ALL:
        _written(study, pieces, tmp_path, Options())
        assert f"<!-- generated: study {study.name} -->" in RESULTS_PAGE
    curves = pages.study("curves")
    assert curves.startswith("**In another order than in the paper**")
    assert "Not run yet" in curves
    assert "Made by `python -m benchmarks study curves`; runs on none, 1 cores; Python 3, sand 0.1." in curves
    assert "| TWOSOME | 0.0005* | 3 | 0.000 | 0.540 [0.525, 0.555] |" in curves
    assert "0.520 [0.500, 0.540], 100 %" in pages.study("generalisation")
    assert "1 h 43 min" in pages.study("wall-time")
    assert "| TWOSOME |" in pages.same_policy("VirtualHome-FoodPreparation-v0")
    assert "0.500, 0.520, 0.540" in pages.poad_results()


RESULTS_PAGE = (ROOT / "docs/results.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "command", re.findall(r"^python -m benchmarks study (.*?)(?: *#.*)?$", RESULTS_PAGE, re.MULTILINE)
)
def test_the_command_lines_shown_are_understood(command: str) -> None:
    typer.main.get_command(app).commands["study"].make_context("study", command.split())


def test_every_option_is_explained() -> None:
    command = typer.main.get_command(app).commands["study"]
    options = {name for parameter in command.params for name in parameter.opts if name.startswith("--")}
    assert set(re.findall(r"^\| `(--[\w-]+)` \|", RESULTS_PAGE, re.MULTILINE)) == options


@pytest.mark.parametrize("study", ALL, ids=lambda study: study.name)
def test_committed_results_are_shown(study: Study, pages: ModuleType) -> None:
    text = pages.study(study.name)
    assert "None" not in text
    assert "nan" not in text.split()
    assert len(FINAL_SEEDS) >= 3
