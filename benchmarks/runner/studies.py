"""The other commands of `benchmarks`: its modules, as their first lines describe them."""

from __future__ import annotations

import ast
from pathlib import Path

__all__ = ["studies"]

_FOLDER = Path(__file__).parents[1]


def studies() -> dict[str, str]:
    """What each module that is a command does, by name; read off the files, none is imported."""
    found = {}
    for path in sorted(_FOLDER.glob("[!_]*.py")):
        text = path.read_text(encoding="utf-8")
        if '\nif __name__ == "__main__":' in text:
            told = (ast.get_docstring(ast.parse(text)) or "").partition("\n\n")[0]
            found[path.stem] = " ".join(told.split()).partition(": `python -m")[0].rstrip(".:")
    return found
