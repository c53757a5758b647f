"""Models in GGUF files, the format of llama.cpp. Their weights are dequantized: training needs gradients."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import transformers

from lang_envs.errors import missing_extra
from poad_sb3.errors import ModelError

__all__ = ["dequantizing", "gguf_arguments", "is_gguf"]

_MAGIC = b"GGUF"


def is_gguf(model: str) -> bool:
    """Return whether a model is a GGUF file, by its suffix or its first bytes; else a folder, or an id of a hub."""
    path = Path(model)
    if path.suffix.lower() == ".gguf":
        return not path.is_dir()
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def gguf_arguments(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the folder and the arguments with which transformers reads a GGUF file.

    Raises:
        ModelError: If there is no such file.
        MissingExtraError: If the package that reads such files is not installed.
    """
    if not path.is_file():
        raise ModelError(f"Expected a GGUF file; there is no {path.resolve()}. Fix: the path where it is now.")
    if importlib.util.find_spec("gguf") is None:
        raise missing_extra("gguf", f"the package gguf, to read {path.name}")
    return str(path.parent.resolve()), {"gguf_file": path.name}


def dequantizing() -> dict[str, Any]:
    """Return the arguments that make transformers unpack the weights; its older versions do so in any case."""
    config = getattr(transformers, "GgufConfig", None)
    return {} if config is None else {"quantization_config": config(dequantize=True)}
