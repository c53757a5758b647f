"""Temporary folders that a process holds by a lock, and a later one removes if the process was killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from lang_envs.files import lock

__all__ = ["bases", "make_folder", "remove_folder", "remove_leftovers"]

_LOCK = ".lock"
_held: dict[Path, int] = {}
"""Open locks of this process's folders, by folder."""


def bases() -> list[str]:
    """Return the folders that may hold temporary ones."""
    return list(dict.fromkeys((tempfile.gettempdir(), "/tmp", "/var/tmp")))


def make_folder(kind: str, base: str | None = None) -> Path:
    """Make a folder of this process, and hold it until it is removed by `remove_folder` or the process ends."""
    draft = Path(tempfile.mkdtemp(prefix=f".{kind}{os.getpid()}-", dir=base))
    folder = draft.with_name(draft.name[1:])
    # Open for writing, as locks of network file systems want it.
    _held[folder] = os.open(draft / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    with contextlib.suppress(OSError, ModuleNotFoundError):  # without locks it is left behind if the process is killed
        lock(_held[folder])
    return draft.rename(folder)  # held before others can find it


def remove_folder(folder: Path) -> None:
    """Let go of a folder of `make_folder`, and remove it."""
    os.close(_held.pop(folder))
    shutil.rmtree(folder, ignore_errors=True)


def remove_leftovers(kind: str) -> None:
    """Remove the folders of a kind that no process holds, as far as they are this user's."""
    for folder in (path for base in bases() for path in Path(base).glob(f"{kind}[0-9]*-*")):
        with contextlib.suppress(OSError):  # a process holds it, or removes it too
            if folder.lstat().st_uid != os.getuid():
                continue
            descriptor = os.open(folder / _LOCK, os.O_RDWR)
            try:
                lock(descriptor)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)
