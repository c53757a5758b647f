"""Importing `lang_envs` is cheap, and dependencies point one way."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lang_envs

ROOT = Path(lang_envs.__file__).parents[1]
HEAVY = {"torch", "stable_baselines3", "transformers", "sklearn", "openml", "pandas", "PIL", "tokenizers", "peft"}

MODULES = "import json, sys, lang_envs; print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"


def test_nothing_heavy_is_imported() -> None:
    done = subprocess.run([sys.executable, "-c", MODULES], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stderr == ""
    modules = set(json.loads(done.stdout))
    assert "gymnasium" in modules
    assert modules & (HEAVY | {"poad_sb3", "benchmarks"}) == set()


def imports_of(package: str) -> Iterator[tuple[Path, str]]:
    """(file, top-level name) of every import statement, also those inside functions."""
    for file in sorted((ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from ((file, alias.name.split(".")[0]) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield file, package if node.level else node.module.split(".")[0]


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [
        ("lang_envs", {"poad_sb3", "benchmarks", "tests", "torch", "stable_baselines3"}),
        ("poad_sb3", {"benchmarks", "tests"}),
    ],
)
def test_dependencies_point_one_way(package: str, forbidden: set[str]) -> None:
    found = list(imports_of(package))
    assert found
    assert [(str(file), name) for file, name in found if name in forbidden] == []
