"""Temporary folders that are named after their process, and removed by a later one if it was killed.

The process holds a lock on a file in its folder as well: in another container, or on another machine with the same
folder, its number identifies no owner.
"""

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
    folder = Path(tempfile.mkdtemp(prefix=f"{kind}{os.getpid()}-", dir=base))
    # Open for writing, as locks of network file systems want it.
    _held[folder] = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    with contextlib.suppress(OSError, ModuleNotFoundError):  # without locks the name has to do
        lock(_held[folder])
    return folder


def remove_folder(folder: Path) -> None:
    """Let go of a folder of `make_folder`, and remove it."""
    os.close(_held.pop(folder))
    shutil.rmtree(folder, ignore_errors=True)


def remove_leftovers(kind: str) -> None:
    """Remove the folders of a kind whose processes have ended, as far as they are this user's."""
    for folder in (path for base in bases() for path in Path(base).glob(f"{kind}[0-9]*-*")):
        pid = folder.name.removeprefix(kind).partition("-")[0]
        with contextlib.suppress(FileNotFoundError):  # another process removes it too
            is_own = pid.isdecimal() and folder.lstat().st_uid == os.getuid()
            if is_own and _is_gone(int(pid)) and not _is_held(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _is_held(folder: Path) -> bool:
    try:
        descriptor = os.open(folder / _LOCK, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        lock(descriptor)
    except BlockingIOError:
        return True
    except OSError:  # without locks the name has to do
        return False
    finally:
        os.close(descriptor)
    return False
