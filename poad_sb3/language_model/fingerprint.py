"""The fingerprint of a base model: which weights and vocabulary an adapter belongs to."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import torch

_MAX_ELEMENTS = 1 << 18
_PROBES = ("press the button", "  two  spaces\n\tand a tab", "e\u0301 \u00e9 \u2260 1234", "x=f(a)\n    return x", "")


def fingerprint(base: Any, tokenizer: Any) -> str:
    """Return a digest of the base weights, the vocabulary, and the behaviour in which tokenizers differ.

    Of each tensor at most 262,144 evenly spaced elements are read: all of the pocket model, and of a large one enough
    that no fine-tuning passes for the original, in seconds.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(base.state_dict().items()):
        if not isinstance(tensor, torch.Tensor):
            continue
        flat = tensor.detach().flatten()
        sample = flat[:: max(1, -(-flat.numel() // _MAX_ELEMENTS))]
        digest.update(f"{name} {tuple(tensor.shape)}".encode())
        digest.update(sample.to("cpu", torch.float32).numpy().tobytes())
    digest.update(json.dumps(sorted(tokenizer.get_vocab().items())).encode())
    # Two tokenizers of one vocabulary may normalise and split in their own ways; a change of config.json can be enough.
    digest.update(json.dumps([list(tokenizer.encode(probe)) for probe in _PROBES]).encode())
    return digest.hexdigest()
