"""Files that appear whole: written beside their place, and moved there."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["write_bytes"]


def write_bytes(path: Path, data: bytes) -> Path:
    """Write a file; a reader finds the old one or the whole new one. Returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        draft.write_bytes(data)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return path
