"""The machine and the code that results are measured with."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lang_bench.runner import machine
from lang_bench.runner.machine import describe_machine


def test_reports_of_studies_are_no_changes_of_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "__file__", str(tmp_path / "machine.py"))
    report = tmp_path / "data/results/studies/curves.json"
    report.parent.mkdir(parents=True)
    for path in (report, tmp_path / "machine.py"):
        path.write_text("1")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "Begin"]):
        subprocess.run([*git, *command], check=True)
    clean = describe_machine()["commit"]
    report.write_text("2")
    assert describe_machine()["commit"] == clean
    (tmp_path / "machine.py").write_text("2")
    assert describe_machine()["commit"] == f"{clean}+"
