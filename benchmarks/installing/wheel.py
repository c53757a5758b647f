"""Builds the archives that are published: the source archive, and the wheel from nothing but that."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import NamedTuple

__all__ = ["ROOT", "Archives", "build", "extras", "listed_files"]

ROOT = Path(__file__).parents[2]
_HOOK = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"


class Archives(NamedTuple):
    """What was built.

    Attributes:
        source: The `.tar.gz`.
        wheel: The `.whl`.
    """

    source: Path
    wheel: Path


def listed_files() -> list[str]:
    """Files of the checkout, relative to it: those git knows, and new ones that it does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted(name for name in told.split("\0") if name and (ROOT / name).is_file())


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
