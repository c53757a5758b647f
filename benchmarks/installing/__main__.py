"""Uses the wheel in empty environments, with each extra alone: `python -m benchmarks.installing`.

For each extra: a new environment, `pip install -c constraints.txt WHEEL[EXTRA]`, `pip check`, and in an empty folder
what `benchmarks.installing.uses` says; the environment is deleted then. It needs pip's network and 2 GB of disk.

Writes results/installing.json; with `--extras`, only those rows of it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.environment import RESULTS, describe_machine
from benchmarks.installing.wheel import ROOT, build, extras
from benchmarks.runner.files import write_bytes

_USES = Path(__file__).with_name("uses.py")
_CHECKOUTS = {
    "bench": ("benchmarks",),
    "openai": ("benchmarks",),
    "lm-eval": ("benchmarks",),
    "test": ("tests", "pyproject.toml"),
}
"""What an extra is for that is not in the wheel: it is copied to where the extra is used."""
_NEEDS_LLM = re.compile(r"POAD|\bmodel\b|\baction\b")
_NONE = "nothing"
"""The row of the wheel alone."""
_MB = 1e6


class FailedError(RuntimeError):
    """An installation that does not do what it is for."""


def quick_start() -> str:
    """The first block of Python in the README."""
    block = re.search(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    if block is None:
        raise FailedError("Expected a block of Python in README.md; got none.")
    return block[1]


def prepare(folder: Path, extra: str) -> None:
    """Fill the folder in which an installation is used."""
    lines = quick_start().splitlines(keepends=True)
    (folder / "quick_start.py").write_text("".join(lines), encoding="utf-8")
    environments = "".join(line for line in lines if not _NEEDS_LLM.search(line))
    (folder / "quick_start_environments.py").write_text(environments, encoding="utf-8")
    for name in _CHECKOUTS.get(extra, ()):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, folder / name)


def try_extra(wheel: Path, extra: str, folder: Path) -> dict[str, Any]:
    """Install the wheel with one extra, use it, and delete the environment.

    Args:
        wheel: The archive.
        extra: Its name, or "nothing".
        folder: An empty one.

    Returns:
        Seconds of installing and using, bytes of all that was installed, versions.

    Raises:
        FailedError: If something does not work; what was said is in the message.
    """
    place, work = folder / "environment", folder / "work"
    work.mkdir()
    prepare(work, extra)
    python = str(place / "bin/python")
    try:
        _run([sys.executable, "-m", "venv", str(place)], folder)
        started = time.perf_counter()
        what = f"{wheel}[{extra}]" if extra != _NONE else str(wheel)
        _run([python, "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt"), what], folder)
        installed = time.perf_counter()
        _run([python, "-m", "pip", "check"], folder)
        size = sum(path.lstat().st_size for path in place.rglob("*") if path.is_file() and not path.is_symlink())
        began = time.perf_counter()
        told = _run([python, "-I", str(_USES), extra], work, HOME=str(work), LANG_ENVS_CACHE=str(work / "cache"))
        versions = json.loads(told.splitlines()[-1])
        used = time.perf_counter() - began
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return {
        "install_seconds": round(installed - started, 1),
        "use_seconds": round(used, 1),
        "megabytes": round(size / _MB),
        "versions": versions,
    }


def _run(command: list[str], folder: Path, **variables: str) -> str:
    """Output of a command that is told nothing of this checkout."""
    hidden = ("PYTHON", "LANG_ENVS", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    done = subprocess.run(command, cwd=folder, env={**kept, **variables}, capture_output=True, text=True)
    if done.returncode != 0:
        raise FailedError(f"Expected {' '.join(command)} to succeed; got {(done.stdout + done.stderr).strip()[-3000:]}")
    return done.stdout


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="The wheel, in empty environments, with each extra alone.")
    parser.add_argument("--extras", nargs="*", choices=[_NONE, *extras()], help="Which; all, and none, if not given.")
    parser.add_argument("--out", type=Path, default=RESULTS / "installing.json")
    options = parser.parse_args(arguments)
    console = Console()
    rows: dict[str, Any] = json.loads(options.out.read_text(encoding="utf-8"))["extras"] if options.out.exists() else {}
    failures = []
    with tempfile.TemporaryDirectory(prefix="lang-envs-installing-") as name:
        archives = build(Path(name))
        sizes = {"wheel_bytes": archives.wheel.stat().st_size, "source_bytes": archives.source.stat().st_size}
        for extra in options.extras or (_NONE, *extras()):
            folder = Path(name) / f"extra-{extra}"
            folder.mkdir()
            try:
                rows[extra] = try_extra(archives.wheel, extra, folder)
            except FailedError as error:
                failures.append(extra)
                console.print(f"{extra}: {error}", style="red", markup=False, soft_wrap=True)
    console.print(_table(rows))
    if failures:
        sys.exit(f"Expected every installation to do what it is for; got failures of: {', '.join(failures)}.")
    result = {**describe_machine(), **sizes, "extras": {one: rows[one] for one in (_NONE, *extras()) if one in rows}}
    write_bytes(options.out, (json.dumps(result, indent=1) + "\n").encode())


def _table(rows: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table("extra", "install, s", "use, s", "MB")
    for extra, row in rows.items():
        table.add_row(extra, *(f"{row[name]:,}" for name in ("install_seconds", "use_seconds", "megabytes")))
    return table


if __name__ == "__main__":
    main()
