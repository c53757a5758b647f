"""The last layer of a decoder at the positions that are read, instead of at all.

What a layer says at a position depends on all positions before it, but of the last layer only the positions that are
read matter: the others lend it their keys and values, and need no attention, no output and no MLP there. Of a model of
n layers that saves about three quarters of an n-th where prompts are long and actions short: an eighth of one of six
layers, little of a large one.

A model that is watched by hooks of one's own is seen to begin its last layer twice: once to the point where it asks its
cache, at all positions, and once at those that are read.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

__all__ = ["decoder_of", "last_layer_of", "reading_only"]


class _Captured(Exception):  # noqa: N818 - no error: it says that enough is known
    """Keys and values have been computed."""


class _Spy:
    """Stands for a cache: takes keys and values, and lets the layer go no further."""

    def update(self, keys: Tensor, values: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        raise _Captured(keys, values)


class _Known:
    """Stands for a cache: whatever keys and values come, these are all."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self._known = (keys, values)

    def update(self, keys: Tensor, values: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        return self._known


def decoder_of(base: Any) -> Any:  # noqa: ANN401 - transformers has no types
    """Decoder of a model; `get_decoder` returns Llama 4 itself, and the head of ModernBERT."""
    found = base.get_decoder()
    return base.model if found is base or found is base.get_output_embeddings() else found


def last_layer_of(base: Any) -> Any | None:  # noqa: ANN401 - transformers has no types
    """The last layer of a model, None where it is not where most have it."""
    layers = getattr(decoder_of(base), "layers", None)
    return layers[-1] if layers is not None and len(layers) else None


@contextmanager
def reading_only(layer: Any, wanted: Tensor, mask: Tensor) -> Iterator[None]:  # noqa: ANN401 - as above
    """Let the layer compute some positions only: what comes out of the decoder are those.

    Args:
        layer: `last_layer_of` a model.
        wanted: Positions, `[rows, reads]`.
        mask: What these attend to, added to the scores, `[rows, 1, reads, tokens]`.
    """
    owner = threading.get_ident()

    def select(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:  # noqa: ANN401
        if threading.get_ident() != owner:  # the hook is this pass's, the layer everybody's
            return args, kwargs
        hidden, *others = args
        try:
            module.forward(hidden, *others, **{**kwargs, "past_key_values": _Spy(), "use_cache": True})
        except _Captured as captured:
            known = _Known(*captured.args)
        else:
            raise TypeError(f"Expected a layer that asks a cache; {type(module).__name__} does not.")
        changed = {
            "attention_mask": mask,
            "past_key_values": known,
            "use_cache": True,
            "position_ids": _at(kwargs.get("position_ids"), wanted),
            "position_embeddings": _at(kwargs.get("position_embeddings"), wanted),
        }
        return (_at(hidden, wanted), *others), {name: changed.get(name, value) for name, value in kwargs.items()}

    handle = layer.register_forward_pre_hook(select, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def _at(values: Any, wanted: Tensor) -> Any:  # noqa: ANN401 - tensors, or tuples of them
    """Some positions of `[rows or 1, tokens, ...]`, as `[rows, reads, ...]`."""
    if isinstance(values, tuple):
        return tuple(_at(one, wanted) for one in values)
    if values is None:
        return None
    rows = torch.arange(len(wanted), device=wanted.device)[:, None] if len(values) > 1 else 0
    return values[rows, wanted]
