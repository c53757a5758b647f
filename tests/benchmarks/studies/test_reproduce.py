"""`reproduce`: ids of the site, jobs from the settings of their pieces, and comparisons of results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from studies_users import MADE, job, result
from typer.testing import CliRunner

from benchmarks.app import app
from benchmarks.errors import StudyError
from benchmarks.studies.engine.jobs import TaskJob
from benchmarks.studies.engine.pieces import Pieces
from benchmarks.studies.reproduce import (
    differences,
    find_pieces,
    identifier,
    identifiers,
    job_of,
    same_machine,
)

COMMITTED = Pieces()


def _reproduce(*arguments: str):
    return CliRunner().invoke(app, ["reproduce", *arguments], env={"COLUMNS": "200"})


def test_every_committed_piece_is_a_job_of_now() -> None:
    """A changed default or base model would make committed results those of another method."""
    assert len(COMMITTED.names) > 1600
    for name in COMMITTED.names:
        piece = COMMITTED.read(name)
        assert piece is not None
        assert job_of(piece["settings"]).name == name


def test_every_id_of_the_site_has_its_pieces() -> None:
    for name, pieces in identifiers().items():
        assert find_pieces(name) == list(dict.fromkeys(pieces))
        assert {*pieces} <= {*COMMITTED.names}
    assert identifier("lambda-token", "multikey 2 4", "POAD, gamma 1") == "lambda-token/multikey-2-4/POAD,gamma-1"
    assert find_pieces("first/curves/") == find_pieces("first/curves")
    for part in ("first/curv", "", "multikey_"):
        with pytest.raises(StudyError, match=f"Expected the id of a result; got '{part}'"):
            find_pieces(part)
    with pytest.raises(StudyError, match="Expected a result of long-actions that has runs: none yet"):
        find_pieces("long-actions/food-preparation")


def test_fields_are_compared_but_for_times() -> None:
    recorded = result(0.5)
    assert differences(recorded, {**recorded, "cpu_seconds": 9.0, "added_later": 1}) == []
    changed = {**recorded, "returns": [0.0, 0.5, 0.25], "success": None}
    assert differences(recorded, changed) == ["returns part at step 200, by 0.25 at most", "success differs"]
    assert differences(recorded, {**recorded, "steps": [0, 100]}) == ["steps differs"]


def test_machines_differ_by_facts_that_results_depend_on() -> None:
    here = {"cpu": "a", "cpu_capability": "AVX2", "versions": {"torch": "2", "gymnasium": "1"}}
    assert same_machine(here, here) == []
    assert same_machine({**here, "versions": {"torch": "1", "gymnasium": "0"}}, here) == ["torch 1, here 2"]
    before = {"versions": {}}  # pieces from before November 2026
    assert same_machine(before, here) == ["unrecorded cpu capability, here AVX2"]


def test_settings_of_another_base_model_are_refused() -> None:
    settings: dict[str, Any] = {**job().settings, "model": "pocket trained again"}
    with pytest.raises(StudyError, match=r"the base model or the format of results has changed"):
        job_of(settings)
    with pytest.raises(StudyError, match="Expected the settings of a run"):
        job_of({"format": 1})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the piece of a task, made here."""
    task = TaskJob("KeyToken-v0", episodes=1)
    Pieces(tmp_path / "pieces").put(task, task.run(), MADE)
    return tmp_path


def test_a_result_is_made_again_and_compared(folder: Path) -> None:
    (path,) = (folder / "pieces").glob("*.json")
    same = _reproduce(path.stem, "--out", str(folder))
    assert same.exit_code == 0, same.output
    assert "equal bit for bit" in same.stdout
    assert "1 of 1 equal." in same.stdout
    content = json.loads(path.read_bytes())
    content["result"]["random"] += 0.5
    path.write_text(json.dumps(content))
    other = _reproduce(path.stem, "--out", str(folder))
    assert other.exit_code == 1
    assert "random differs by 0.5 at most" in other.stdout
    assert _reproduce("--out", str(folder)).exit_code == 0
    listed = _reproduce(path.stem, "--list", "--out", str(folder))
    assert listed.stdout.split() == [path.stem]


def test_packed_pieces_are_found(folder: Path) -> None:
    pieces = Pieces(folder / "pieces")
    (name,) = pieces.names
    before = pieces.read(name)
    assert pieces.pack("tasks", [name, "missing"]) == folder / "pieces/tasks.jsonl"
    assert [path.name for path in (folder / "pieces").iterdir()] == ["tasks.jsonl"]
    assert pieces.read(name) == before == Pieces(folder / "pieces").read(name)
    assert pieces.find(TaskJob("KeyToken-v0", episodes=1)) is not None
    assert pieces.pack("tasks", []) == folder / "pieces/tasks.jsonl"
    assert pieces.names == [name]
