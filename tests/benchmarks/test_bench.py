"""Measurements, those of `make bench` among them, at their smallest size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import lang_envs.files
from benchmarks import files
from benchmarks.app import app
from benchmarks.files import RESULTS
from benchmarks.performance import throughput
from benchmarks.performance.our_loop import SETTINGS
from benchmarks.studies.app import study_names

SMALLEST = {
    "env-scores": ("--id", "VirtualHome-FoodPreparation-v0"),
    "throughput": ("--workload", "twosome", "--vocabulary", "2000", "--runs", "1"),
    "ranks": ("--size", "6m", "--envs", "4", "--steps", "1", "--repeats", "1"),
    "architectures": ("gpt2",),
    "bfloat16": ("--model", "pocket", "--rollouts", "1"),
}
PROCESSES = ("ranks", "architectures", "bfloat16")
NOT_WRITTEN = ("env-scores", "architectures")


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that are written to the committed results; they go to another folder."""
    names: list[str] = []
    write = files.write_bytes

    def elsewhere(path: Path, content: bytes) -> Path:
        if path.is_relative_to(RESULTS):
            names.append(path.name)
            return write(tmp_path / path.name, content)
        return write(path, content)

    for module in (files, lang_envs.files):  # pictures; JSON
        monkeypatch.setattr(module, "write_bytes", elsewhere)
    return names


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes that no option sets."""
    setting = SETTINGS["twosome"]._replace(n_steps=2, n_envs=2, batch_size=4, n_epochs=1, timed_samples=2)
    monkeypatch.setitem(SETTINGS, "twosome", setting)

    def here(function: Any, *arguments: object, **_: object) -> Any:
        return function(*arguments)

    monkeypatch.setattr(throughput, "in_new_process", here)


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=pytest.mark.process if name in PROCESSES else pytest.mark.matrix if name == "throughput" else (),
        )
        for name in SMALLEST
    ],
)
def test_measures_at_the_smallest_size(name: str, written: list[str]) -> None:
    result = CliRunner().invoke(app, ["measure", name, *SMALLEST[name]], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert (f"{name.replace('-', '_')}.json" in written) is (name not in NOT_WRITTEN)


def test_reports_all_studies_without_time_for_runs(tmp_path: Path) -> None:
    """Runs take minutes each; those of every kind are played in the tests of studies."""
    command = ["study", "all", "--workers", "2", "--budget", "0", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert result.output.count("0 runs done. Time is up") == len(study_names())
    assert {path.stem for path in tmp_path.glob("*.json")} == set(study_names())
