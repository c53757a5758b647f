"""The folder of results, and what is written there: JSON and pictures."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from lang_bench.runner.machine import describe_machine
from lang_envs.files import write_bytes, write_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULTS = Path(__file__).parents[1] / "data" / "results"


def write_result(name: str, content: Mapping[str, Any], folder: Path = RESULTS) -> Path:
    """Write a measurement, `NAME.json`, with the machine that it was made on. Returns its path."""
    return write_json(folder / f"{name}.json", {**describe_machine(), **content})


def write_picture(path: Path, picture: Figure | Image.Image) -> Path:
    """Write a figure of matplotlib or an image as PNG. Returns its path."""
    buffer = io.BytesIO()
    if hasattr(picture, "savefig"):
        picture.savefig(buffer, format="png", dpi=150)
    else:
        picture.save(buffer, format="png", optimize=True)
    return write_bytes(path, buffer.getvalue())
