"""Temporary folders that are named after their process, and removed by a later one if it was killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

__all__ = ["bases", "prefix_of", "remove_leftovers"]


def bases() -> list[str]:
    """Return the folders that may hold temporary ones."""
    return list(dict.fromkeys((tempfile.gettempdir(), "/tmp", "/var/tmp")))


def prefix_of(kind: str) -> str:
    """Return the beginning of the name of a folder of this process."""
    return f"{kind}{os.getpid()}-"


def remove_leftovers(kind: str) -> None:
    """Remove the folders of a kind whose processes have ended, as far as they are this user's."""
    for folder in (one for base in bases() for one in Path(base).glob(f"{kind}[0-9]*-*")):
        pid = folder.name.removeprefix(kind).partition("-")[0]
        with contextlib.suppress(FileNotFoundError):  # another process removes it too
            if pid.isdecimal() and _is_gone(int(pid)) and folder.lstat().st_uid == os.getuid():
                shutil.rmtree(folder, ignore_errors=True)


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
