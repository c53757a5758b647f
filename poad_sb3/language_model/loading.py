"""Loading of a model from the embedded ones, a folder, a hub, or a user's own function."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import logging
import platform
import random
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub import HfApi
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig
from transformers.utils import find_adapter_config_file
from transformers.utils import logging as transformers_logging

from lang_envs.errors import missing_extra
from lang_envs.text import nearest
from poad_sb3.errors import ModelError
from poad_sb3.language_model import smollm2
from poad_sb3.language_model.gguf import dequantizing, gguf_arguments, is_gguf
from poad_sb3.pocket import SHIPPED_MODELS, model_path

ModelFactory = Callable[[], tuple[Any, Any]]
"""Function that makes a transformers model and its tokenizer."""

DTYPES: Mapping[str, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}
"""Types of the base weights. Not float16: there gradients through the frozen base underflow without loss scaling."""

_QUANTIZATIONS: Mapping[str, Mapping[str, Any]] = {
    "8bit": {"load_in_8bit": True},
    "4bit": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True},
}
"""Arguments of `BitsAndBytesConfig`; 4 bits as in QLoRA (arXiv 2305.14314)."""

_FIXES = {
    "trust_remote_code": "load it in a function, model=make, where trust_remote_code says that its code may run",
    "attn_implementation": "leave attn_implementation out",
    "flash": "leave attn_implementation out",
}
"""Fixes, by a word in the error message of transformers."""
_FIX_FILES = (
    "check the spelling, also of the revision; a folder is looked up where the process runs; for a private or gated "
    "model run `hf auth login` or set HF_TOKEN; without a network, download the folder elsewhere and pass its path"
)
"""Advice where files could not be loaded."""
_LONGEST = 300
"""Maximum number of characters of an error of transformers or the hub that are shown."""


@dataclass(frozen=True)
class ModelSource:
    """Source of a model.

    Attributes:
        model: Name of an embedded model (`"pocket"`, `"pocket-char"`, `"pocket-coder"`), `"smollm2"`, a folder, a GGUF
            file, an id of the Hugging Face hub, or a function that makes model and tokenizer.
        revision: Commit, tag or branch on the hub.
        dtype: Data type of the weights, a key of `DTYPES`.
        quantization: Quantisation: `"8bit"`, `"4bit"`, arguments of `BitsAndBytesConfig`, or None.
        attn_implementation: Attention: `"eager"`, `"sdpa"`, `"flash_attention_2"` or another of transformers; its
            choice if None.
        device: Torch device for loading a quantised model; any other is moved later.
    """

    model: str | ModelFactory = "pocket"
    revision: str | None = None
    dtype: str = "float32"
    quantization: str | Mapping[str, Any] | None = None
    attn_implementation: str | None = None
    device: torch.device | str = "cpu"

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.model if isinstance(self.model, str) else _name_of(self.model)


def load(source: ModelSource) -> tuple[Any, Any]:
    """Load the model and its tokenizer.

    Raises:
        ModelError: If the model cannot be loaded as asked, or its tokenizer has no end token.
        MissingExtraError: If the model is to be quantised and bitsandbytes is not installed.
    """
    check_source(source)
    base, tokenizer = _from_files(source) if isinstance(source.model, str) else from_factory(source)
    require_end_token(tokenizer, source)
    return base, tokenizer


def cpu_emulates_bfloat16() -> bool:
    """Return whether products in bfloat16 are slower than in float32 on this processor, as on x86 without AMX or BF16.

    Measured with oneDNN's kernels: 2.6 times as slow with AVX-512 alone, 5 times with AVX2.
    """
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    if hasattr(torch.cpu, "get_capabilities"):
        capabilities = torch.cpu.get_capabilities()
        return not (capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
    return not torch.cpu._is_avx512_bf16_supported()  # before torch 2.12


def require_end_token(tokenizer: Any, source: ModelSource) -> None:
    """Raise ModelError if a tokenizer has no end-of-sequence token: actions end with it."""
    if tokenizer.eos_token_id is None:
        raise ModelError(
            f"Expected a tokenizer with an end-of-sequence token; that of {source.name!r} has none. "
            "Fix: set eos_token in its tokenizer_config.json."
        )


def context_length(config: Any, name: str) -> int:
    """Return the maximum number of tokens that a model may read.

    LongRoPE (Phi-3 with 128k) takes other factors once the longest row of a pass exceeds the length it was first
    trained on: a row would then depend on its neighbours, and a cache hold keys of both. So that length is the limit.

    Args:
        config: Config of the model's text.
        name: Name of the model, for the warning.
    """
    length = getattr(config, "max_position_embeddings", None) or 0
    length = int(length) if length > 0 else sys.maxsize
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    if rope.get("rope_type", rope.get("type")) != "longrope":
        return length
    first = int(rope.get("original_max_position_embeddings") or config.original_max_position_embeddings)
    if first < length:
        warnings.warn(
            f"{name} is used with {first} tokens of context instead of {length}: beyond them its position encoding "
            "(LongRoPE) changes with the longest text of a batch.",
            stacklevel=3,
        )
    return min(length, first)


def check_source(source: ModelSource) -> None:
    """Refuse an impossible source before any file is read.

    Raises:
        ModelError: If the source is of the wrong kind, or its settings do not go together.
    """
    if isinstance(source.model, nn.Module) or not (isinstance(source.model, str) or callable(source.model)):
        raise ModelError(
            "Expected model as a str (checkpoints keep it as text), or a function that makes model and tokenizer; got "
            f"{type(source.model).__name__}. Fix: pass str(path), or def make(): return model, tokenizer."
        )
    if not isinstance(source.model, str) and _how(source):
        raise ModelError(
            f"Expected a function that makes the model as it is to be; got {_how(source)[0]} beside it. "
            "Fix: leave that out, and do it in the function."
        )
    if source.dtype not in DTYPES:
        raise ModelError(
            f"Expected dtype to be one of {sorted(DTYPES)}; got {source.dtype!r}. (In float16 gradients underflow.) "
            "Fix: 'bfloat16', or 'float32' where the device has none."
        )


def _how(source: ModelSource) -> list[str]:
    """Return the names of the given settings that determine how files are loaded."""
    given = {
        "revision": source.revision,
        "quantization": source.quantization,
        "attn_implementation": source.attn_implementation,
        "dtype": None if source.dtype == "float32" else source.dtype,
    }
    return [name for name, value in given.items() if value is not None]


def _name_of(factory: ModelFactory) -> str:
    inner = factory.func if isinstance(factory, functools.partial) else factory
    return f"{getattr(inner, '__module__', '')}.{getattr(inner, '__qualname__', type(inner).__name__)}"


def _from_files(source: ModelSource) -> tuple[Any, Any]:
    assert isinstance(source.model, str)
    check_folder(source.model)
    where, both = located(source)
    options: dict[str, Any] = {"dtype": DTYPES[source.dtype], **(dequantizing() if "gguf_file" in both else {})}
    if source.attn_implementation is not None:
        options["attn_implementation"] = source.attn_implementation
    if source.quantization is not None:
        options |= {"quantization_config": quantization_config(source), "device_map": {"": source.device}}
    try:
        with no_progress_bars():
            both["revision"], commit = pinned(where, source.revision)
            refuse_adapter(source, where, both["revision"])
            base, report = AutoModelForCausalLM.from_pretrained(where, output_loading_info=True, **options, **both)
            tokenizer = AutoTokenizer.from_pretrained(where, **both)
    except ModelError:
        raise
    except Exception as error:  # of transformers, its file formats, the hub's client, httpx2, hf_xet
        raise load_error(source, error) from error
    if commit is not None:
        base.config._commit_hash = commit  # transformers has stopped to note it
    if report["missing_keys"]:
        raise ModelError(
            f"Expected all weights of {type(base).__name__} in {source.model!r}; {len(report['missing_keys'])} are "
            f"missing, first {min(report['missing_keys'])!r}, and would be random. Fix: complete the folder."
        )
    return base, tokenizer


def located(source: ModelSource) -> tuple[str, dict[str, Any]]:
    """Return the folder or id of a model, and the arguments for all its files. Fetches SmolLM2 if it is not here.

    Raises:
        ModelError: If SmolLM2 cannot be fetched, there is no such GGUF file, or it is given a revision or
            quantisation.
        MissingExtraError: If the package that reads GGUF files is not installed.
    """
    assert isinstance(source.model, str)
    # Explicit: transformers would otherwise ask on stdin whether to run code that comes with a model.
    both: dict[str, Any] = {"trust_remote_code": False}
    if source.model == smollm2.NAME:
        smollm2.fetch()
    where = local_path(source.model)
    if not is_gguf(where):
        return where, both
    if source.revision is not None or source.quantization is not None:
        raise ModelError(
            f"Expected neither revision nor quantization of {where}, a GGUF file, whose weights are dequantized; got "
            f"revision={source.revision!r}, quantization={source.quantization!r}. Fix: leave that out."
        )
    folder, of_file = gguf_arguments(Path(where))
    return folder, {**both, **of_file}


def local_path(model: str) -> str:
    """Return the folder of an embedded model or of SmolLM2; other names are returned unchanged."""
    return str(smollm2.folder()) if model == smollm2.NAME else model_path(model)


def check_folder(model: str) -> None:
    """Refuse a path that can only be a folder and does not exist, before any request to a hub.

    Raises:
        ModelError: If there is no such path.
    """
    is_path = model.startswith((".", "/", "~")) or "\\" in model or model.count("/") > 1
    if is_path and not is_gguf(model) and not Path(model).exists():
        raise ModelError(
            f"Expected a folder with a Hugging Face model; there is no {Path(model).resolve()}. Fix: the path where "
            "it is now; for a checkpoint POAD.load(..., policy_kwargs={'model': path}), --set policy_kwargs.model=PATH."
        )


def pinned(where: str, revision: str | None) -> tuple[str | None, str | None]:
    """Return the revision, pinned to the commit that it means now, and the commit; None for a folder.

    Model and tokenizer come from the same commit then. A missing model or an unreachable hub is refused before any file
    is requested: the client would retry for half a minute.
    """
    if Path(where).exists():
        if revision is not None:
            raise ModelError(
                f"Expected no revision of {where}, a folder here; got {revision!r}. Fix: leave it out, or name a "
                "repository of the hub."
            )
        return None, None
    pinned = HfApi().resolve_revision(where, revision=revision)
    return pinned, pinned.resolved


def refuse_adapter(source: ModelSource, where: str, revision: str | None) -> None:
    """Refuse files of an adapter: transformers would put it into the base, where training takes it for the base's own.

    Raises:
        ModelError: If there is an `adapter_config.json`, alone or beside the weights of a whole model.
    """
    if find_adapter_config_file(where, revision=revision) is not None:
        raise ModelError(
            f"Expected a whole model; {source.name!r}{at_revision(source.revision)} has an adapter "
            "(adapter_config.json). Fix: merge it into its base (`poad export --merge`, or merge_and_unload() of peft) "
            "and pass that folder, or a folder without the adapter's files."
        )


def load_error(source: ModelSource, error: BaseException) -> ModelError:
    """Return the error for files that could not be loaded."""
    line = error_line(error)
    if is_gguf(source.name):
        return ModelError(
            "Expected a GGUF file with a causal language model of an architecture that transformers reads; got "
            f"{source.name!r} ({line}). Fix: fetch the file again if it is damaged, or pass the model's folder or its "
            "id of the hub."
        )
    names = (*SHIPPED_MODELS, smollm2.NAME)
    meant = nearest(str(source.model), names, otherwise=" ").strip() if "/" not in str(source.model) else ""
    return ModelError(
        "Expected model='pocket', a folder with a Hugging Face model, a GGUF file, or an id of the hub; got "
        f"{source.model!r}{at_revision(source.revision)}, which could not be loaded ({line}). "
        f"{meant and meant + ' '}Fix: {next((fix for word, fix in _FIXES.items() if word in line), _FIX_FILES)}."
    )


def error_line(error: BaseException) -> str:
    """Format an error in one line, with its cause where transformers only guesses."""
    line = f"{type(error).__name__}: {' '.join(str(error).split())[:_LONGEST]}"
    # A broken download is a folder without weights to it.
    cause = error.__cause__ if type(error) is OSError else None
    return line if cause is None else f"{line}, after {error_line(cause)}"


def described(model: str) -> str:
    """Return a model's name for a message, with the source of its weights where another model has nearly the same."""
    return f"{model!r} ({smollm2.DESCRIPTION})" if model == smollm2.NAME else repr(model)


def at_revision(revision: str | None) -> str:
    """Return the words for a revision in a message; none without one."""
    return "" if revision is None else f" at revision {revision!r}"


def from_factory(source: ModelSource) -> tuple[Any, Any]:
    """Return the result of the user's function; seeds that it sets must not become those of the training.

    Raises:
        ModelError: If the function returns anything but a model and its tokenizer.
    """
    assert not isinstance(source.model, str)
    kept = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng():
            made = source.model()
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])
    if not isinstance(made, tuple) or len(made) != 2 or not isinstance(made[0], nn.Module):
        raise ModelError(
            f"Expected {source.name} to return a transformers model and its tokenizer; got {type(made).__name__}. "
            "Fix: return model, tokenizer."
        )
    base, tokenizer = made
    for needed, owner in (("get_decoder", base), ("get_output_embeddings", base), ("added_tokens_decoder", tokenizer)):
        if not hasattr(owner, needed):
            raise ModelError(
                f"Expected a transformers causal language model and tokenizer from {source.name}; "
                f"{type(owner).__name__} has no {needed}. Fix: return AutoModelForCausalLM..., AutoTokenizer...."
            )
    if getattr(base, "dtype", None) not in DTYPES.values():
        raise ModelError(f"Expected weights in one of {sorted(DTYPES)} from {source.name}; got {base.dtype}.")
    return base, tokenizer


def quantization_config(source: ModelSource) -> Any:
    """Return the settings of bitsandbytes for the weights, as `BitsAndBytesConfig`.

    Raises:
        ModelError: If the name is unknown, or `BitsAndBytesConfig` refuses the arguments.
        MissingExtraError: If bitsandbytes is not installed.
    """
    given = source.quantization
    if isinstance(given, str) and given not in _QUANTIZATIONS:
        raise ModelError(
            f"Expected quantization to be one of {sorted(_QUANTIZATIONS)}, or arguments of BitsAndBytesConfig; got "
            f"{given!r}."
        )
    # It warns at every product of two matrices that its input was cast.
    logging.getLogger("bitsandbytes.autograd._functions").setLevel(logging.ERROR)
    if importlib.util.find_spec("bitsandbytes") is None:
        raise missing_extra("quant", f"bitsandbytes, for quantization={source.quantization!r}")
    settings = _QUANTIZATIONS[given] if isinstance(given, str) else dict(given or {})
    try:
        return BitsAndBytesConfig(**{"bnb_4bit_compute_dtype": DTYPES[source.dtype], **settings})
    except (TypeError, ValueError) as error:
        raise ModelError(f"Expected arguments of transformers.BitsAndBytesConfig; got {given!r} ({error}).") from error


@contextlib.contextmanager
def no_progress_bars() -> Iterator[None]:
    """Hide the progress bar of loading a small model, which would break into ours."""
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()
