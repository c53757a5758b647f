"""Atomic writes, where a reader finds the old file or the whole new one; and locks."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["lock", "locked", "replacing", "write_bytes", "write_json", "write_text"]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a draft beside a file that replaces it at the end; after an error the draft is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")  # two threads or machines may write one file
    try:
        yield draft
        with draft.open("r+b") as file:  # Windows syncs only files that are open for writing
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_bytes(path: Path, data: bytes) -> Path:
    """Write a file atomically; missing folders are made. Returns its path."""
    with replacing(path) as draft:
        draft.write_bytes(data)
    return path


def write_text(path: Path, text: str) -> Path:
    """Write a text file atomically, in UTF-8; see `write_bytes`."""
    return write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, content: object) -> Path:
    """Write a JSON file; see `write_bytes`."""
    return write_text(path, f"{json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)}\n")


def lock(file: int, *, wait: bool = False) -> None:
    """Lock an open file or folder for this process; the system unlocks it when the process ends, however it ends.

    Args:
        file: Descriptor.
        wait: Whether to wait for another process that holds the lock.

    Raises:
        BlockingIOError: If another process holds the lock, and it is not waited for.
        OSError: If the file system has no locks.
        ModuleNotFoundError: If the system has no locks of this kind, as on Windows.
    """
    import fcntl

    fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder, which is made if it is missing; other processes wait. Without locks of folders it does nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    file = os.open(folder, os.O_RDONLY) if os.name == "posix" else None
    try:
        if file is not None:
            with suppress(OSError):  # a file system without locks
                lock(file, wait=True)
        yield
    finally:
        if file is not None:
            os.close(file)
