"""The report of trainings, from the files of run folders."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from poad_runs import ENV_ID, SMALL, N, invoke

from lang_envs.report.statistics import learning_curve, mean
from poad_sb3.runs.progress_csv import ResumableCSV
from poad_sb3.runs.reporting import _QUANTITIES, report_of_runs
from poad_sb3.runs.run_folder import RunError


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two seeds of a short training, and the first as if it had had another rate."""
    folders = [tmp_path_factory.mktemp("runs") / f"run{number}" for number in range(3)]
    for seed, folder in enumerate(folders[:2]):
        options = ("--seed", str(seed), "--out", str(folder), "--record-episodes", "1")
        invoke("train", ENV_ID, "--steps", str(3 * N // 2), *SMALL, "--set", f"n_steps={N // 2}", *options)
    shutil.copytree(folders[0], folders[2])
    config = json.loads((folders[2] / "config.json").read_text(encoding="utf-8"))
    config["arguments"]["learning_rate"] = 0.01
    (folders[2] / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folders


def test_seeds_share_a_curve_and_other_arguments_have_their_own(folders: list[Path]) -> None:
    report = report_of_runs(folders, "three")
    names = [run.name.partition(", seed ")[::2] for run in report.runs]
    assert [seed for _, seed in names] == ["0", "1", "0"]
    assert names[0][0] == names[1][0] != names[2][0] == "POAD (learning_rate=0.01)"
    kl = [curve for curve in report.curves if "KL" in curve.title]
    assert sorted(len(curve.by_seed) for curve in kl) == [0, 2]
    both = next(curve for curve in kl if curve.by_seed)
    assert list(both.by_seed) == ["0", "1"]
    points = {
        seed: [(step, row[i]) for i, step in enumerate(both.steps)] for seed, row in enumerate(both.by_seed.values())
    }
    expected = learning_curve(points, mean)
    assert list(both.values) == expected.values.tolist()
    assert both.low is not None
    assert list(both.low) == expected.low.tolist()
    assert {episode["agent"] for episode in report.episodes} == {run.name.partition(", seed")[0] for run in report.runs}
    assert {episode["seed"] for episode in report.episodes} == {0, 1}


def test_a_model_in_another_place_is_the_same_and_no_home_is_shown(folders: list[Path], tmp_path: Path) -> None:
    copies = [tmp_path / name for name in ("a", "b", "c")]
    folders_of_model = ("/home/alice/models/qwen", "/data/qwen", "/home/alice/models/qwen")
    for number, (copy, source, model) in enumerate(
        zip(copies, (*folders[:2], folders[0]), folders_of_model, strict=True)
    ):
        shutil.copytree(source, copy)
        config = json.loads((copy / "config.json").read_text(encoding="utf-8"))
        config["arguments"]["policy_kwargs"] = {"model": model}
        config["model"] |= {"name": model}
        config["warm_start"] = "/home/alice/runs/base/latest.zip" if number == 2 else None
        (copy / "config.json").write_text(json.dumps(config), encoding="utf-8")
    both = report_of_runs(copies[:2])
    assert {episode["agent"] for episode in both.episodes} == {"POAD"}
    names = [run.name for run in report_of_runs(copies).runs]
    assert "base/latest.zip" in names[2]
    assert not any("alice" in name or "qwen" in name for name in names)


def test_every_quantity_has_a_column(folders: list[Path]) -> None:
    columns = (folders[0] / "progress.csv").read_text(encoding="utf-8").splitlines()[0].split(",")
    assert {name for name in _QUANTITIES if name.startswith("train/")} <= set(columns)


def test_facts_and_checksums_are_those_of_the_run(folders: list[Path]) -> None:
    (run,) = report_of_runs(folders[:1], "one").runs
    config = json.loads((folders[0] / "config.json").read_text(encoding="utf-8"))
    assert run.facts["argument.gamma"] == str(config["arguments"]["gamma"])
    assert run.facts["version.torch"] == config["sessions"][-1]["versions"]["torch"]
    assert {"config.json", "progress.csv", "episodes.jsonl", "episodes.steps.jsonl"} == set(run.files)
    assert str(Path.home()) not in " ".join(run.facts.values())


def test_a_run_without_progress_and_episodes_has_its_settings(folders: list[Path], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((folders[0] / "config.json").read_bytes())
    report = report_of_runs([tmp_path, folders[0]], "two")
    assert len(report.runs) == 2
    assert report.episodes


@pytest.mark.parametrize("rows", [b"16\n", b"\xff\xfe,\0\n"])
def test_damaged_progress_is_left_out(folders: list[Path], tmp_path: Path, rows: bytes) -> None:
    shutil.copytree(folders[0], tmp_path / "run")
    (tmp_path / "run" / "progress.csv").write_bytes(b"time/total_timesteps,rollout/ep_rew_mean\n" + rows)
    report = report_of_runs([tmp_path / "run"])
    assert not [curve for curve in report.curves if "training" in curve.title]
    ResumableCSV(tmp_path / "run" / "progress.csv", 16).close()


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"without config\.json"):
        report_of_runs([tmp_path], "none")


def test_the_command_writes_one_file(folders: list[Path], tmp_path: Path) -> None:
    output = invoke("report", *map(str, folders), "--html", str(tmp_path / "all.html"), "--pictures", "0")
    assert "all.html" in output
    page = (tmp_path / "all.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert [path.name for path in tmp_path.iterdir()] == ["all.html"]
    assert (folders[0] / "report.html").exists()  # by the training
    assert "without config.json" in invoke("report", str(tmp_path), code=1)
