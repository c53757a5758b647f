"""The structure that docs/development/architecture.md describes: directions, cycles, and no folder that git ignores."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "docs"))

import _architecture as architecture  # noqa: E402


def test_imports_go_down():
    assert architecture.upward_imports() == []


def test_no_cycle_is_larger_than_two_modules():
    assert [group for group in architecture.cycles() if len(group) > 2] == []


def test_every_unit_has_a_layer():
    layers = {(package, name) for package, rows in architecture.LAYERS.items() for row in rows for name in row}
    assert {architecture.unit(name) for name in architecture.modules()} - layers - {("benchmarks", "")} == set()


def test_the_top_level_of_poad_sb3_is_small():
    names = {path.name for path in (ROOT / "poad_sb3").iterdir() if path.is_file()}
    assert names == {"__init__.py", "errors.py", "presets.py", "py.typed"}


def test_recorded_facts_and_code_are_apart():
    assert not list((ROOT / "data").rglob("*.py"))
    kinds = (".json", ".jsonl", ".gz", ".png")
    packages = (path for name in architecture.LAYERS for path in (ROOT / name).rglob("*") if path.suffix in kinds)
    assert {path.relative_to(ROOT).parts[:2] for path in packages} <= {("poad_sb3", "pocket")}


@pytest.mark.parametrize("package", architecture.LAYERS)
def test_git_and_ruff_ignore_no_folder_of_a_package(package):
    folders = {
        path.relative_to(ROOT)
        for path in (ROOT / package).rglob("*")
        if path.is_dir() and "__pycache__" not in path.parts
    }
    names = "\n".join(f"{folder}/made_up.py" for folder in sorted(folders))
    ignored = subprocess.run(["git", "check-ignore", "--stdin"], input=names, cwd=ROOT, capture_output=True, text=True)
    if ignored.returncode == 128:
        pytest.skip("no git checkout")
    assert ignored.stdout == ""
    excluded = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"]["extend-exclude"]
    assert all(pattern.startswith("./") for pattern in excluded), "anchored, so that they name no folder of a package"


LOOKUP = tomllib.loads((ROOT / "tests/lookup_tasks.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("task", [one for tasks in LOOKUP.values() for one in tasks], ids=lambda one: one["task"][:60])
def test_answers_of_the_lookup_tasks_exist(task):
    assert all((ROOT / answer).exists() for answer in task["answers"])
