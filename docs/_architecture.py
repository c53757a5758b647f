"""The structure of the packages, read off their imports: the layers, what breaks them, and the picture of the page.

Lazy imports and imports for typing count as well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from xml.sax.saxutils import escape

from _root import ROOT

LAYERS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "benchmarks": (
        ("app", "__main__"),
        ("measurements",),
        ("studies", "performance"),
        ("references",),
        ("reports",),
        ("runner",),
        ("agents",),
    ),
    "poad_sb3": (
        ("cli",),
        ("runs", "export", "memory"),
        ("",),  # the package itself, which names the algorithms
        ("badq", "archer", "glam", "ntpo", "poad", "twosome"),
        ("common",),
        ("distributions", "presets"),
        ("language_model", "vec_env"),
        ("prompts", "pocket"),
        ("credit", "settings", "tabular"),
        ("errors",),
    ),
    "lang_envs": (
        ("cli",),
        ("env_checker", "recording"),
        ("envs",),
        ("sandbox", "datasets", "rendering", "agents"),
        ("wrappers", "cache"),
        ("",),  # the package itself, which registers the ids
        ("core", "registration"),
        ("spaces",),
        ("tokenizers",),
        ("files", "text"),
        ("errors",),
    ),
}
"""Packages from top to bottom, and of each its units from top to bottom: imports go down, or along a row."""

_SAME_ROW = {"poad_sb3": {("archer", "ntpo")}}
"""Imports along a row; all others must go down."""


@cache
def modules() -> dict[str, Path]:
    """Return every module of the packages, by dotted name."""
    found = {}
    for package in LAYERS:
        for path in sorted((ROOT / package).rglob("*.py")):
            found[".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")] = path
    return found


@cache
def imports() -> dict[str, frozenset[str]]:
    """Return which modules each module imports."""
    return {name: frozenset(_imported(name, path)) for name, path in modules().items()}


def _imported(name: str, path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [one if one in modules() else node.module for one in inner]
        yield from (one for one in names if one in modules() and one != name)


def unit(module: str) -> tuple[str, str]:
    """Return the package and the unit (folder or module below it) of a module."""
    package, _, rest = module.partition(".")
    return package, rest.partition(".")[0]


def upward_imports() -> list[str]:
    """Return the imports that do not go down, as `importer -> imported`."""
    packages = list(LAYERS)
    rank = {
        (package, name): row for package, rows in LAYERS.items() for row, names in enumerate(rows) for name in names
    }
    found = []
    for importer, imported in imports().items():
        for one in sorted(imported):
            (here, mine), (there, its) = unit(importer), unit(one)
            if (here, mine) == (there, its):
                continue
            if here != there:
                fits = packages.index(here) < packages.index(there)
            else:
                known = (here, mine) in rank and (there, its) in rank
                fits = known and (rank[here, mine] < rank[there, its] or (mine, its) in _SAME_ROW.get(here, set()))
            if not fits:
                found.append(f"{importer} -> {one}")
    return found


def cycles() -> list[list[str]]:
    """Return the groups of modules that import each other, directly or around a corner (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for one in imports()[name]:
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

    for name in imports():
        if name not in index:
            visit(name)
    return found


# ---------------------------------------------------------------------- the picture

_WIDTH, _BOX, _HIGH, _GAP = 960, 26, 26, 12


def picture() -> str:
    """Return an SVG: each package with its layers, from what users call at the top to what imports nothing below."""
    parts, top = [], 10
    for package, rows in LAYERS.items():
        kept = [[name for name in row if name and _exists(package, name)] for row in rows]
        kept = [row for row in kept if row]
        height = 34 + len(kept) * (_HIGH + _GAP)
        parts.append(
            f'<rect x="6" y="{top}" width="{_WIDTH - 12}" height="{height}" rx="8" fill="#8882" stroke="#888"/>'
            f'<text x="18" y="{top + 22}" font-weight="bold">{package}</text>'
        )
        y = top + 30
        for row in kept:
            width = min(150, (_WIDTH - 60) // len(row) - _GAP)
            x = (_WIDTH - len(row) * (width + _GAP) + _GAP) // 2
            for name in row:
                parts.append(
                    f'<rect x="{x}" y="{y}" width="{width}" height="{_HIGH}" rx="5" fill="#4a90d933" stroke="#4a90d9"/>'
                    f'<text x="{x + width // 2}" y="{y + 18}" text-anchor="middle">{escape(name)}</text>'
                )
                x += width + _GAP
            y += _HIGH + _GAP
        top += height + 14
    head = f'<svg viewBox="0 0 {_WIDTH} {top}" xmlns="http://www.w3.org/2000/svg" fill="currentColor" font-size="14">'
    return f"{head}<style>text{{font-family:sans-serif}}</style>{''.join(parts)}</svg>"


def _exists(package: str, name: str) -> bool:
    return f"{package}.{name}" in modules() and name != "__main__"


def dependency_table() -> str:
    """Return a Markdown table of which units of a package each unit imports."""
    rows = []
    for package, layers in LAYERS.items():
        for name in (one for row in layers for one in row if one and _exists(package, one)):
            imported = {
                unit(one) for module in imports() if unit(module) == (package, name) for one in imports()[module]
            }
            below = sorted(its for there, its in imported if there == package and its not in ("", name))
            rows.append(f"| `{package}.{name}` | {', '.join(f'`{one}`' for one in below) or '-'} |")
    return "\n".join(["| unit | imports of its own package |", "|---|---|", *rows])
