"""Settings of the language model and its critic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from poad_sb3.settings.fields import Choice, Count, Counts, Flag, Free, Settings, setting

DEFAULT_LORA: Mapping[str, Any] = {"r": 8, "lora_alpha": 16, "lora_dropout": 0.0, "bias": "none"}
"""Adapter of the paper. Its target modules are q_proj and v_proj where the architecture has them."""


class CriticTrunk(StrEnum):
    """Model whose hidden states the critic reads."""

    FROZEN = "frozen"
    """Hidden states of the model before training: constant, so that they are computed once per rollout."""
    LIVE = "live"
    """Hidden states of the present model, detached."""


class Check(StrEnum):
    """Response to an architecture whose update does not reproduce its own sampling."""

    ERROR = "error"
    """Raise ModelError."""
    WARN = "warn"
    """Warn, and train nevertheless."""


@dataclass(frozen=True)
class ModelSettings(Settings):
    """The language model, its trained part and its prompts: `policy_kwargs` of the algorithms.

    Raises:
        ValueError: If a value is out of range, or for `fsdp` with `quantization`.
    """

    model: str | Callable[[], Any] = setting(
        "pocket",
        Free(),
        "pocket, pocket-char, pocket-coder or smollm2, a folder, a GGUF file, a hub id, or a function that makes model "
        "and tokenizer",
    )
    revision: str | None = setting(None, Free(), "commit, tag or branch on the hub")
    lora: Mapping[str, Any] | None = setting(
        DEFAULT_LORA,
        Free(),
        "arguments of peft.LoraConfig laid over the default; None to train all weights. Dropout must stay 0: rollout "
        "and update must see the same distribution",
    )
    dtype: Any = setting(
        "float32", Free(), "float32 or bfloat16 (or torch's), of the base weights; an adapter is float32 in any case"
    )
    quantization: str | Mapping[str, Any] | None = setting(
        None, Free(), "8bit, 4bit or arguments of BitsAndBytesConfig, for a base that an adapter is trained on"
    )
    attn_implementation: str | None = setting(None, Free(), "as transformers calls them; its own choice if None")
    gradient_checkpointing: bool = setting(
        False, Flag(), "compute activations again in the backward pass: less memory for a third more time"
    )
    critic_trunk: str = setting(
        CriticTrunk.FROZEN,
        Choice(words=tuple(CriticTrunk)),
        "whose hidden states the critic reads: those before training (frozen) or the present ones (live); with "
        "lora=None, frozen keeps a second copy of the weights, which methods without a critic do not need",
    )
    prompt: Any = setting("auto", Free(), "auto, completion, chat, fim, or one of these with settings")
    critic_arch: Sequence[int] = setting((1024, 512), Counts(), "hidden widths of the critic (the paper's)")
    critic_whitening: bool = setting(
        True,
        Flag(),
        "give the critic hidden states of mean 0 and unit covariance; the paper's reads them as they are",
    )
    critic_init: str = setting(
        "zero",
        Choice(words=("zero", "default")),
        "last layer of the critic: zero, so that all values are 0 before the first reward, or PyTorch's default (the "
        "paper's)",
    )
    max_tokens_per_forward: int | None = setting(
        None,
        Count(optional=True),
        "bound on rows x padded length of one pass; memory follows it, results do not. None: 1,024, and on a CUDA "
        "device up to 8,192, as many as half of its memory holds",
    )
    fsdp: bool = setting(
        False,
        Flag(),
        "shard the weights over the ranks (FSDP2), for a base that one device does not hold and for lora=None; each "
        "rank reads the whole base into the memory of its host first",
    )
    check: str = setting(
        Check.ERROR,
        Choice(words=tuple(Check)),
        "response to an architecture whose update does not reproduce its own sampling: error or warn",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fsdp and self.quantization is not None:
            raise ValueError(
                f"Expected fsdp=True without quantization, whose packed weights cannot be sharded; got "
                f"{self.quantization!r}. Fix: leave one of them out."
            )
