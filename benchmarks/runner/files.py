"""Result files: JSON and pictures."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from benchmarks.runner.machine import RESULTS, describe_machine
from lang_envs.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_json(path: Path, content: object) -> Path:
    """Write a JSON file. Returns its path."""
    return write_bytes(path, f"{json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)}\n".encode())


def write_result(name: str, content: Mapping[str, Any], folder: Path = RESULTS) -> Path:
    """Write a measurement, `NAME.json`, with the machine that it was made on. Returns its path."""
    return write_json(folder / f"{name}.json", {**describe_machine(), **content})


def write_picture(path: Path, picture: Figure | Image.Image) -> Path:
    """Write a figure of matplotlib or an image as PNG. Returns its path."""
    buffer = io.BytesIO()
    if hasattr(picture, "savefig"):
        picture.savefig(buffer, format="png", dpi=150)
    else:
        _with_few_colors(picture).save(buffer, format="png", optimize=True)
    return write_bytes(path, buffer.getvalue())


_FREQUENT, _FAR = 192, 64
"""Number of colours in a palette: the most frequent ones, and those farthest from all before them."""


def _with_few_colors(image: Image.Image) -> Image.Image:
    """Reduce to a palette, a third of the size: areas keep their colours, edges of letters take the nearest.

    The cuts of `Image.quantize` mix colours instead, and a pale red would become grey; its palettes are met roughly.
    """
    red, green, blue = np.moveaxis(np.asarray(image.convert("RGB"), dtype=np.int32), 2, 0)
    packed, places, counts = np.unique(red << 16 | green << 8 | blue, return_inverse=True, return_counts=True)
    colors = np.stack([packed >> 16, packed >> 8 & 255, packed & 255], axis=1)
    kept = colors[np.argsort(-counts)[:_FREQUENT]]
    distances = np.abs(colors[:, None] - kept).sum(axis=2)
    for _ in range(_FAR):  # rare ones, as of a legend
        far = colors[distances.min(axis=1).argmax()]
        kept = np.vstack([kept, far])
        distances = np.column_stack([distances, np.abs(colors - far).sum(axis=1)])
    few = Image.fromarray(distances.argmin(axis=1).astype(np.uint8)[places].reshape(red.shape))
    few.putpalette(kept.astype(np.uint8).tobytes())
    return few
