"""A model as it would be loaded, without its weights: on torch's meta device, where tensors have shapes only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from poad_sb3.errors import ModelError
from poad_sb3.models.sources import (
    DTYPES,
    FIX_FILES,
    ModelSource,
    at_revision,
    check_folder,
    check_source,
    from_factory,
    no_progress_bars,
    pinned,
    quantization_config,
    said_by,
)
from poad_sb3.pocket import model_path

__all__ = ["outline"]


def outline(source: ModelSource) -> tuple[Any, Any]:
    """Model without weights, and its tokenizer. Of a hub only the config and the tokenizer are fetched.

    What `poad_sb3.models.sources.load` refuses before it reads weights is refused here by the same checks. A function
    that makes a model is called as ever, and the weights are dropped.

    Raises:
        ModelError: If config or tokenizer cannot be loaded as asked.
        MissingExtraError: If it is to be quantised and bitsandbytes is not installed.
    """
    check_source(source)
    if not isinstance(source.model, str):
        base, tokenizer = from_factory(source)
        return base.to("meta"), tokenizer
    check_folder(source.model)
    where = model_path(source.model)
    quantization = None if source.quantization is None else quantization_config(source)
    implementation = {} if source.attn_implementation is None else {"attn_implementation": source.attn_implementation}
    try:
        with no_progress_bars(), torch.device("meta"):
            revision = pinned(where, source.revision)[0]
            config = AutoConfig.from_pretrained(where, revision=revision, trust_remote_code=False)
            tokenizer = AutoTokenizer.from_pretrained(where, revision=revision, trust_remote_code=False)
            base = AutoModelForCausalLM.from_config(config, dtype=DTYPES[source.dtype], **implementation)
    except Exception as error:  # of transformers, its file formats, the hub's client, as in loading
        raise ModelError(
            "Expected model='pocket', a folder with a Hugging Face model, or an id of the hub; got "
            f"{source.model!r}{at_revision(source.revision)}, whose config or tokenizer could not be loaded "
            f"({said_by(error)}). Fix: {FIX_FILES}."
        ) from error
    if tokenizer.eos_token_id is None:
        raise ModelError(
            f"Expected a tokenizer with an end-of-sequence token; that of {source.name!r} has none. "
            "Fix: set eos_token in its tokenizer_config.json."
        )
    if quantization is not None:
        base.config.quantization_config = quantization  # as a loaded model says it
    if Path(where).is_dir() and not any(Path(where).glob("*.safetensors")) and not any(Path(where).glob("*.bin")):
        raise ModelError(f"Expected weights in {where}; there are none. Fix: complete the folder.")
    return base, tokenizer
