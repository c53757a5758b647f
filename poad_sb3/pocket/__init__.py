"""The embedded pocket model: about a million parameters, trained here, for demonstrations and tests.

`POCKET_FOLDER` is an ordinary Hugging Face model folder; it goes through the same code path as any other model.
"""

from pathlib import Path

__all__ = ["POCKET_FOLDER"]

POCKET_FOLDER = Path(__file__).parent / "weights"
"""Folder with `config.json`, `model.safetensors`, `tokenizer.json` and the model card."""
