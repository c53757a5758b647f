"""Gradient checkpointing: layers keep no activations, and recompute them in the backward pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import nn


def enable_checkpointing(base: Any) -> list[nn.Module]:
    """Prepare a model for gradient checkpointing; return the layers that support it, for `recomputing` to switch."""
    if hasattr(base, "activation_checkpointing_enable"):  # its new name
        base.activation_checkpointing_enable({"use_reentrant": False})
    else:
        base.gradient_checkpointing_enable({"use_reentrant": False})
    return [module for module in base.modules() if getattr(module, "gradient_checkpointing", False)]


@contextmanager
def recomputing(layers: Sequence[nn.Module]) -> Iterator[None]:
    """Tell layers to keep no activations.

    Transformers does so in training mode only. Just the layers are put into it, not the dropout inside them.
    """
    for layer in layers:
        layer.training = True
    try:
        yield
    finally:
        for layer in layers:
            layer.training = False


def spare_linear4bit(model: nn.Module) -> None:
    """Leave bitsandbytes' 4-bit layers in training mode, where they hold no dropout.

    In evaluation mode, on a CPU, the first pass packs their weights for a kernel that passes no gradient on.
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.training = True
