"""Importing `lang_envs` is cheap, and dependencies point one way."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest

import lang_envs

ROOT = Path(lang_envs.__file__).parents[1]
HEAVY = {"torch", "stable_baselines3", "transformers", "sklearn", "openml", "pandas", "PIL", "tokenizers", "peft"}
SECONDS = 0.4

MEASURE = """
import json, sys, time
{before}
wall, cpu = time.perf_counter(), time.process_time()
import lang_envs
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
print(json.dumps({{"wall": wall, "cpu": cpu, "modules": sorted({{name.split(".")[0] for name in sys.modules}})}}))
"""


def import_in_a_fresh_interpreter(before: str = "") -> dict[str, Any]:
    command = [sys.executable, "-c", MEASURE.format(before=before)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stderr == ""
    return json.loads(done.stdout)


def seconds_of(before: str = "") -> float:
    """Median of three imports, each the smaller of two clocks.

    Other processes add to the wall clock only, numpy's idle thread pool to the clock of the process only.
    """
    runs = [import_in_a_fresh_interpreter(before) for _ in range(3)]
    return median(min(run["wall"], run["cpu"]) for run in runs)


def test_nothing_heavy_is_imported() -> None:
    modules = set(import_in_a_fresh_interpreter()["modules"])
    assert "gymnasium" in modules
    assert modules & (HEAVY | {"poad_sb3", "benchmarks"}) == set()


@pytest.mark.slow
def test_import_time() -> None:
    assert seconds_of() < SECONDS


@pytest.mark.slow
def test_import_time_of_our_own() -> None:
    """Beside the packages it cannot do without."""
    assert seconds_of("import numpy, gymnasium, multiprocessing.sharedctypes") < SECONDS / 4


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
