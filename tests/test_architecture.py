"""The structure that docs/development/architecture.md describes: directions, cycles, and no folder that git ignores."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "docs"))

import _architecture as architecture  # noqa: E402

SAME_LAYER = {("poad_sb3", "archer", "ntpo")}
"""Imports within a layer; all others must go down."""


def test_imports_go_down():
    packages = list(architecture.LAYERS)
    rank = {
        (package, name): row
        for package, layers in architecture.LAYERS.items()
        for row, names in enumerate(layers)
        for name in names
    }
    upward = []
    for importer, imported in architecture.imports().items():
        for one in sorted(imported):
            here, there = architecture.unit(importer), architecture.unit(one)
            if here[0] != there[0]:
                is_down = packages.index(here[0]) < packages.index(there[0])
            else:
                known = here in rank and there in rank
                is_down = known and (rank[here] < rank[there] or (*here, there[1]) in SAME_LAYER)
            if here != there and not is_down:
                upward.append(f"{importer} -> {one}")
    assert upward == []


def cycles() -> list[list[str]]:
    """Return the groups of modules that import each other, directly or around a corner (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for one in architecture.imports()[name]:
            if one not in index:
                visit(one)
                low[name] = min(low[name], low[one])
            elif one in stack:
                low[name] = min(low[name], index[one])
        if low[name] == index[name]:
            place = stack.index(name)
            group = sorted(stack[place:])
            del stack[place:]
            if len(group) > 1:
                found.append(group)

    for name in architecture.imports():
        if name not in index:
            visit(name)
    return found


def test_no_cycle_is_larger_than_two_modules():
    assert [group for group in cycles() if len(group) > 2] == []


def test_every_unit_has_a_layer():
    layers = {(package, name) for package, rows in architecture.LAYERS.items() for row in rows for name in row}
    assert {architecture.unit(name) for name in architecture.modules()} - layers - {("benchmarks", "")} == set()


def test_the_top_level_of_poad_sb3_is_small():
    names = {path.name for path in (ROOT / "poad_sb3").iterdir() if path.is_file()}
    assert names == {"__init__.py", "errors.py", "memory.py", "presets.py", "py.typed"}


def test_recorded_facts_and_code_are_apart():
    assert not list((ROOT / "data").rglob("*.py"))
    kinds = (".json", ".jsonl", ".gz", ".png")
    packages = (path for name in architecture.LAYERS for path in (ROOT / name).rglob("*") if path.suffix in kinds)
    assert {path.relative_to(ROOT).parts[:2] for path in packages} <= {
        ("poad_sb3", "pocket"),
        ("lang_envs", "report"),  # JSON Schemas
    }


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
