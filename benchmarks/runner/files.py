"""Result files that appear whole: written beside their place, and moved there."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["write_bytes", "write_picture"]


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


def write_picture(path: Path, picture: Figure | Image.Image) -> Path:
    """Write a figure of matplotlib or an image as PNG. Returns its path."""
    buffer = io.BytesIO()
    if hasattr(picture, "savefig"):
        picture.savefig(buffer, format="png", dpi=150)
    else:
        # A third of the size, and looks the same. Not by the median cut: rare colours, as of a legend, become others.
        picture.quantize(256, Image.Quantize.MAXCOVERAGE).save(buffer, format="png", optimize=True)
    return write_bytes(path, buffer.getvalue())
