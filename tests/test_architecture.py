"""The structure that docs/development/architecture.md describes: directions, cycles, and no folder that git ignores."""

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def layers() -> dict[str, list[list[str]]]:
    """Read the layers of each package from the page, from top to bottom; the package itself is the unit ""."""
    page = (ROOT / "docs/development/architecture.md").read_text(encoding="utf-8")
    section = page.partition("\n## Layers\n")[2].partition("\n## ")[0]
    packages: dict[str, list[list[str]]] = {}
    package = ""
    for name, units in re.findall(r"^\| (?:`(\w+)` )?\| (`.*`) \|$", section, re.MULTILINE):
        package = name or package
        row = [unit.replace("__init__", "") for unit in re.findall(r"`(\w+)`", units)]
        packages.setdefault(package, []).append(row)
    return packages


LAYERS = layers()


@cache
def modules() -> dict[str, Path]:
    """Return every module of the packages, by dotted name."""
    paths = [path for package in LAYERS for path in sorted((ROOT / package).rglob("*.py"))]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in paths]
    return dict(zip(names, paths, strict=True))


@cache
def imports() -> dict[str, frozenset[str]]:
    """Return the imported modules of each module; lazy imports and imports for typing count as well."""
    return {name: frozenset(imported(name, path)) for name, path in modules().items()}


def imported(module: str, path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in modules() else node.module for name in inner]
        yield from (name for name in names if name in modules() and name != module)


def unit(module: str) -> tuple[str, str]:
    """Return the package and the unit (folder or module below it) of a module."""
    package, _, rest = module.partition(".")
    return package, rest.partition(".")[0]


SAME_LAYER = {("poad_sb3", "archer", "ntpo")}
"""Imports within a layer; all others must go down."""


def test_imports_go_down():
    rank = {
        (package, name): (number, row)
        for number, (package, rows) in enumerate(LAYERS.items())
        for row, names in enumerate(rows)
        for name in names
    }
    rank["benchmarks", ""] = (0, 0)
    upward = []
    for importer, targets in imports().items():
        for target in sorted(targets):
            upper, lower = unit(importer), unit(target)
            is_allowed = upper == lower or rank[upper] < rank[lower] or (*upper, lower[1]) in SAME_LAYER
            if not is_allowed:
                upward.append(f"{importer} -> {target}")
    assert upward == []


def cycles() -> list[list[str]]:
    """Return the groups of modules that import each other, directly or around a corner (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for target in imports()[module]:
            if target not in index:
                visit(target)
                low[module] = min(low[module], low[target])
            elif target in stack:
                low[module] = min(low[module], index[target])
        if low[module] == index[module]:
            start = stack.index(module)
            group = sorted(stack[start:])
            del stack[start:]
            if len(group) > 1:
                groups.append(group)

    for module in imports():
        if module not in index:
            visit(module)
    return groups


def test_no_cycle_is_larger_than_two_modules():
    assert [group for group in cycles() if len(group) > 2] == []


def test_every_unit_has_a_layer():
    units = {(package, name) for package, rows in LAYERS.items() for row in rows for name in row}
    assert {unit(name) for name in modules()} - {("benchmarks", "")} == units


@pytest.mark.parametrize("package", LAYERS)
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
