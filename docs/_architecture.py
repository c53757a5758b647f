"""The layers of the packages and the imports of their modules: picture and table of the page of architecture.

`tests/test_architecture.py` holds the imports to the layers. Lazy imports and imports for typing count as well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent

LAYERS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "benchmarks": (
        ("app", "__main__"),
        ("measurements",),
        ("studies", "performance"),
        ("references",),
        ("reports",),
        ("runner",),
        ("agents", "exact"),
    ),
    "poad_sb3": (
        ("cli",),
        ("runs", "export", "memory", "bc"),
        ("",),  # the package itself: it exports the algorithms
        ("badq", "archer", "ntpo", "poad", "twosome", "turn_ppo", "bilevel_ppo", "grpo", "rloo", "gigpo", "reinforce"),
        ("common",),
        ("distributions", "presets"),
        ("language_model",),
        ("distributed",),
        ("vec_env",),
        ("prompts", "pocket"),
        ("settings",),
        ("credit",),
        ("errors",),
    ),
    "lang_envs": (
        ("cli",),
        ("env_checker", "recording", "report"),
        ("envs",),
        ("sandbox", "datasets", "rendering", "agents"),
        ("wrappers", "cache"),
        ("",),  # the package itself: it registers the ids
        ("core", "registration"),
        ("spaces",),
        ("tokenizers",),
        ("files", "text", "arguments", "machine", "private"),
        ("errors",),
    ),
}
"""Packages from top to bottom, and of each its units from top to bottom: imports go down, or along a row."""


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
    """Return the imported modules of each module."""
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


# ---------------------------------------------------------------------- the page

_WIDTH, _HEIGHT, _GAP = 960, 26, 12


def _units(package: str) -> list[list[str]]:
    """Return the named units of a package that exist, layer by layer."""
    shown = {unit(name)[1] for name in modules() if unit(name)[0] == package} - {"", "__main__"}
    layers = [[name for name in layer if name in shown] for layer in LAYERS[package]]
    return [layer for layer in layers if layer]


def architecture() -> str:
    """Draw each package with its layers as SVG, from the user's entry points down to modules without imports."""
    parts, top = [], 10
    for package in LAYERS:
        layers = _units(package)
        height = 34 + len(layers) * (_HEIGHT + _GAP)
        parts.append(
            f'<rect x="6" y="{top}" width="{_WIDTH - 12}" height="{height}" rx="8" fill="#8882" stroke="#888"/>'
            f'<text x="18" y="{top + 22}" font-weight="bold">{package}</text>'
        )
        for row, layer in enumerate(layers):
            y = top + 30 + row * (_HEIGHT + _GAP)
            width = min(150, (_WIDTH - 60) // len(layer) - _GAP)
            left = (_WIDTH - len(layer) * (width + _GAP) + _GAP) // 2
            for column, name in enumerate(layer):
                x = left + column * (width + _GAP)
                parts.append(
                    f'<rect x="{x}" y="{y}" width="{width}" height="{_HEIGHT}" rx="5" fill="#4a90d933" '
                    f'stroke="#4a90d9"/><text x="{x + width // 2}" y="{y + 18}" text-anchor="middle">{name}</text>'
                )
        top += height + 14
    head = f'<svg viewBox="0 0 {_WIDTH} {top}" xmlns="http://www.w3.org/2000/svg" fill="currentColor" font-size="14">'
    return f"{head}<style>text{{font-family:sans-serif}}</style>{''.join(parts)}</svg>"


def architecture_table() -> str:
    """Table of the units of its package that each unit imports."""
    from _tables import code, table  # needs the extra docs, which the tests of this module do without

    rows = []
    for package in LAYERS:
        for name in (one for layer in _units(package) for one in layer):
            imported = {
                unit(one) for module in imports() if unit(module) == (package, name) for one in imports()[module]
            }
            below = sorted(its for there, its in imported if there == package and its not in ("", name))
            rows.append((code(f"{package}.{name}"), ", ".join(map(code, below)) or "-"))
    return table(("unit", "imports of its own package"), rows)
