"""Uses the wheel in empty environments, with each extra alone.

For each extra: a new environment, `pip install -c constraints.txt WHEEL[EXTRA]`, `pip check`, and in an empty folder
what `benchmarks.performance.installing.uses` says; the environment is deleted then. It needs pip's network and
2 GB of disk.

Writes installing.json; with `--extra`, only those rows of it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from benchmarks.reports.tables import show_records
from benchmarks.runner.errors import BenchmarkError
from benchmarks.runner.files import write_json
from benchmarks.runner.machine import RESULTS, describe_machine

ROOT = Path(__file__).parents[3]
_USES = Path(__file__).with_name("uses.py")
_CHECKOUTS = {
    "bench": ("benchmarks", "data"),
    "openai": ("benchmarks",),
    "lm-eval": ("benchmarks",),
    "test": ("tests", "pyproject.toml"),
}
"""Parts of the checkout that an extra is for: they are copied to where it is used."""
_NEEDS_LLM = re.compile(r"POAD|\bmodel\b|\baction\b")
_NONE = "nothing"
"""The row of the wheel alone."""


class FailedError(RuntimeError):
    """An installation that does not do what it is for."""


# ---------------------------------------------------------------------- archives

_HOOK = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"


class Archives(NamedTuple):
    """The archives that are published.

    Attributes:
        source: The `.tar.gz`.
        wheel: The `.whl`.
    """

    source: Path
    wheel: Path


def listed_files() -> list[str]:
    """Files of the checkout, relative to it: those git knows, and new ones that it does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted(name for name in listed.split("\0") if name and (ROOT / name).is_file())


def build(folder: Path) -> Archives:
    """Build both archives, without a network.

    In a copy: setuptools puts all into a wheel that an earlier build left in `build/`, files since removed too.

    Args:
        folder: An empty one.

    Raises:
        RuntimeError: If setuptools refuses; its words are in the message.
    """
    tree = folder / "tree"
    for name in listed_files():
        copy = tree / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, copy)
    source = _built("build_sdist", tree, folder / "source")
    with tarfile.open(source) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    return Archives(source, _built("build_wheel", unpacked, folder / "wheel"))


def _built(hook: str, tree: Path, out: Path) -> Path:
    """The archive that a hook of the build backend makes of a folder."""
    out.mkdir()
    done = subprocess.run([sys.executable, "-c", _HOOK, hook, str(out)], cwd=tree, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(
            f"Expected {hook} of setuptools to succeed; got {done.stderr.strip()[-2000:]} "
            'Fix: pip install "setuptools>=77", or mend pyproject.toml.'
        )
    (archive,) = out.iterdir()
    return archive


def extras() -> list[str]:
    """Names of the extras, as in `pyproject.toml`."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        return list(tomllib.load(file)["project"]["optional-dependencies"])


# ---------------------------------------------------------------------- installations


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
        FailedError: If something does not work; its output is in the message.
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
        output = _run([python, "-I", str(_USES), extra], work, HOME=str(work), LANG_ENVS_CACHE=str(work / "cache"))
        versions = json.loads(output.splitlines()[-1])
        used = time.perf_counter() - began
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return {
        "install_seconds": round(installed - started, 1),
        "use_seconds": round(used, 1),
        "megabytes": round(size / 1e6),
        "versions": versions,
    }


def _run(command: list[str], folder: Path, **variables: str) -> str:
    """Output of a command that knows nothing of this checkout."""
    hidden = ("PYTHON", "LANG_ENVS", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    done = subprocess.run(command, cwd=folder, env={**kept, **variables}, capture_output=True, text=True)
    if done.returncode != 0:
        raise FailedError(f"Expected {' '.join(command)} to succeed; got {(done.stdout + done.stderr).strip()[-3000:]}")
    return done.stdout


def installing(
    extra: Annotated[list[str] | None, typer.Option(help="Only this one, or `nothing`; repeatable.")] = None,
    out: Path = RESULTS / "installing.json",
) -> None:
    """Try the wheel in empty environments, with each extra alone."""
    known = (_NONE, *extras())
    if unknown := [one for one in extra or () if one not in known]:
        raise BenchmarkError(
            f"Expected extras among {', '.join(known)}; got {', '.join(unknown)}. Fix: name some of them."
        )
    rows: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))["extras"] if out.exists() else {}
    failures = []
    with tempfile.TemporaryDirectory(prefix="lang-envs-installing-") as name:
        archives = build(Path(name))
        for one in extra or known:
            folder = Path(name) / f"extra-{one}"
            folder.mkdir()
            try:
                rows[one] = try_extra(archives.wheel, one, folder)
            except FailedError as error:
                failures.append(one)
                print(f"{one}: {error}")
        sizes = {"wheel_bytes": archives.wheel.stat().st_size, "source_bytes": archives.source.stat().st_size}
    show_records("extra", rows, ("install_seconds", "use_seconds", "megabytes"))
    if failures:
        raise BenchmarkError(
            f"Expected every installation to do what it is for; got failures of: {', '.join(failures)}. Fix: see above."
        )
    write_json(out, {**describe_machine(), **sizes, "extras": {one: rows[one] for one in known if one in rows}})
