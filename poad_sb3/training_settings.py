"""`TrainingSettings`: what the memory of a training depends on besides the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from poad_sb3.arguments import nearest

__all__ = ["DTYPE_BYTES", "WAYS_TO_ACT", "TrainingSettings"]

DTYPE_BYTES: Mapping[str, int] = MappingProxyType({"float32": 4, "bfloat16": 2})
"""Bytes of a number."""
WAYS_TO_ACT = ("trie", "candidates", "free")
"""Values of `action_sampling`."""


@dataclass(frozen=True)
class TrainingSettings:
    """What memory depends on besides the model. The first ones are those of `policy_kwargs`.

    Args:
        dtype: Of the frozen weights and of the passes: `"float32"` or `"bfloat16"`.
        quantization: None, `"8bit"` or `"4bit"`: how bitsandbytes holds the matrices of the layers.
        lora_rank: Rank of the adapter; None for full fine-tuning, which is float32.
        lora_targets: Matrices that the adapter changes.
        trained_parameters: Number of weights that are trained, where it is known; None to count it by the two above.
        critic_trunk: `"frozen"` or `"live"`: in full fine-tuning, whether a frozen copy is kept for the critic.
        gradient_checkpointing: Keep only the inputs of the layers, and compute each layer again when going back.
        max_tokens_per_forward: Bound on rows x padded length of one pass, and so on the length of rows that are merged.
        row_tokens: Length of a row, prompt and actions; a pass has at least one row.
        merged_tokens: Length of the longest row that rows which begin alike can be merged into, if it is known to be
            less than a whole pass.
        action_share: Share of the tokens of a pass at which the language-model head is asked.
        children: Tokens that it is asked for there, on average, where actions are chosen along a trie.
        action_sampling: `"trie"`, `"candidates"` or `"free"`.
        critic_arch: Hidden widths of the critic.
        decode_batch: Texts that are continued at a time in a rollout; 0 where actions are listed, not written.
        decode_context: Tokens of each, prompt and action.
        rollout_tokens: Action tokens of a rollout; each has a feature vector.
        host_bytes: What a rollout keeps beside them, in main memory: token ids of prompts and actions.

    Raises:
        ValueError: If a value is unknown, or does not go with the others.
    """

    dtype: str = "float32"
    quantization: str | None = None
    lora_rank: int | None = 8
    lora_targets: tuple[str, ...] = ("q_proj", "v_proj")
    trained_parameters: int | None = None
    critic_trunk: str = "frozen"
    gradient_checkpointing: bool = False
    max_tokens_per_forward: int = 1024
    row_tokens: int = 512
    merged_tokens: int | None = None
    action_share: float = 0.125
    children: float = 4.0
    action_sampling: str = "trie"
    critic_arch: tuple[int, ...] = (1024, 512)
    decode_batch: int = 4
    decode_context: int = 1024
    rollout_tokens: int = 16_384
    host_bytes: int = 0

    def __post_init__(self) -> None:
        _require("dtype", self.dtype, DTYPE_BYTES)
        _require("action_sampling", self.action_sampling, WAYS_TO_ACT)
        _require("critic_trunk", self.critic_trunk, ("frozen", "live"))
        if self.quantization is not None:
            _require("quantization", self.quantization, ("8bit", "4bit"))
        sizes = ("max_tokens_per_forward", "row_tokens", "decode_context", "rollout_tokens")
        for name in sizes if self.lora_rank is None else (*sizes, "lora_rank"):
            if getattr(self, name) < 1:
                raise ValueError(f"Expected {name} >= 1; got {getattr(self, name)}. Fix: a positive number.")
        if not 0 <= self.action_share <= 1:
            raise ValueError(f"Expected action_share between 0 and 1; got {self.action_share}. Fix: a share, as 0.125.")
        if self.lora_rank is None and (self.quantization is not None or self.dtype != "float32"):
            raise ValueError(
                f"Expected float32 without quantization for full fine-tuning (lora_rank=None); got dtype={self.dtype!r}"
                f", quantization={self.quantization!r}. Fix: leave them out, or train an adapter."
            )

    @property
    def tokens(self) -> int:
        """Tokens of the largest pass."""
        return max(self.max_tokens_per_forward, self.row_tokens)

    @property
    def longest_row(self) -> int:
        """Tokens of the longest row of a pass, merged or not."""
        merged = self.tokens if self.merged_tokens is None else self.merged_tokens
        return max(self.row_tokens, min(self.tokens, merged))


def _require(name: str, value: str, known: Iterable[str]) -> None:
    if value not in set(known):
        raise ValueError(f"Expected a known {name}; got {value!r}. {nearest(value, known)}")
