"""Configs of common models, and the memory for training each of them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from transformers import CONFIG_MAPPING

from poad_sb3.memory.estimate import ModelSize
from poad_sb3.settings import ModelSettings
from poad_sb3.settings.model import DEFAULT_LORA

__all__ = ["COMMON_MODELS", "common_size"]

_ROWS = (
    # name, layers, hidden, intermediate, heads, kv_heads, vocabulary, tied embeddings; of the published config.json
    ("Qwen2.5-0.5B", 24, 896, 4864, 14, 2, 151_936, True),
    ("Llama-3.2-1B", 16, 2048, 8192, 32, 8, 128_256, True),
    ("Qwen2.5-1.5B", 28, 1536, 8960, 12, 2, 151_936, True),
    ("Qwen2.5-3B", 36, 2048, 11_008, 16, 2, 151_936, True),
    ("Llama-2-7B", 32, 4096, 11_008, 32, 32, 32_000, False),
    ("Qwen2.5-7B", 28, 3584, 18_944, 28, 4, 152_064, False),
    ("Llama-3-8B", 32, 4096, 14_336, 32, 8, 128_256, False),
    ("Llama-2-13B", 40, 5120, 13_824, 40, 40, 32_000, False),
    ("Qwen2.5-32B", 64, 5120, 27_648, 40, 8, 152_064, False),
    ("Llama-3-70B", 80, 8192, 28_672, 64, 8, 128_256, False),
)
_NAMES = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads",
          "vocab_size", "tie_word_embeddings")  # fmt: skip
COMMON_MODELS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {row[0]: dict(zip(_NAMES, row[1:], strict=True)) for row in _ROWS}
)
"""Settings of the configs of common models, from small to large."""


def common_size(name: str, settings: ModelSettings | None = None) -> ModelSize:
    """Return the size of one of `COMMON_MODELS`.

    Args:
        name: Name of the model.
        settings: Settings of the model; only `dtype` counts, and whether there is an adapter (the default one) or none.
    """
    settings = settings or ModelSettings()
    return _common_size(name, str(settings.dtype), settings.lora is None)


@functools.lru_cache
def _common_size(name: str, dtype: str, is_full: bool) -> ModelSize:
    """Compute a size from models of one and two layers, since all layers of these models are equal."""
    settings = ModelSettings(dtype=dtype, lora=None if is_full else DEFAULT_LORA)
    config = COMMON_MODELS[name]
    kind = CONFIG_MAPPING["qwen2" if name.startswith("Qwen") else "llama"]
    one, two = (ModelSize.of(kind(**{**config, "num_hidden_layers": layers}), settings) for layers in (1, 2))
    more = config["num_hidden_layers"] - 1
    return ModelSize(*(first + more * (second - first) for first, second in zip(one, two, strict=True)))
