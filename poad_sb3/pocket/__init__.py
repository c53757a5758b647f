"""The models that are part of the package: small, trained here, for demonstrations and tests.

`"pocket"` speaks the language of the kitchen and the home, `"pocket-char"` that of the home with one token per
character, `"pocket-coder"` writes scikit-learn code. Each is an ordinary Hugging Face model folder; it goes through the
same code path as any other model.
"""

from collections.abc import Mapping
from pathlib import Path

__all__ = ["CHAR_FOLDER", "CODER_FOLDER", "POCKET_FOLDER", "SHIPPED_MODELS", "model_path"]

POCKET_FOLDER = Path(__file__).parent / "weights"
"""Folder of the pocket model, with `config.json`, `model.safetensors`, `tokenizer.json` and the model card."""
CHAR_FOLDER = Path(__file__).parent / "char_weights"
"""Folder of the character-level pocket model, with the same files."""
CODER_FOLDER = Path(__file__).parent / "coder_weights"
"""Folder of the pocket coder, with the same files."""
SHIPPED_MODELS: Mapping[str, Path] = {
    "pocket": POCKET_FOLDER,
    "pocket-char": CHAR_FOLDER,
    "pocket-coder": CODER_FOLDER,
}
"""Folders by the names that `policy_kwargs=dict(model=...)` knows."""


def model_path(model: str) -> str:
    """Return the folder of an embedded model; other names are returned unchanged."""
    return str(SHIPPED_MODELS[model]) if model in SHIPPED_MODELS else model
