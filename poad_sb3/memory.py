"""How much memory a training needs: arithmetic on the shape of a model, checked by measurement.

Everything follows from shapes, so nothing is loaded to find out whether it fits. `python -m benchmarks.memory` compares
the figures with the bytes that trainings of random models really hold. Not counted: the CUDA context, fragmentation of
the allocator, and eager attention (Gemma 2), whose scores grow with the square of the length.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from poad_sb3.arguments import nearest
from poad_sb3.model_shapes import HEADS, SHAPES, ModelShape

__all__ = ["MAX_LOGITS", "SHAPES", "MemoryEstimate", "ModelShape", "TrainingSettings", "activation_bytes", "estimate",
           "largest_that_fits"]  # fmt: skip

_BYTES: Mapping[str, int] = MappingProxyType({"float32": 4, "bfloat16": 2})
_FLOAT32 = 4
_LEARNED = 16
"""Bytes of a weight that is trained: float32 weight, gradient, and the two moments of Adam."""
MAX_LOGITS = 1 << 24
"""Logits of the vocabulary that are in memory at once; more rows go through the head in slices."""
_LOGIT_COPIES: Mapping[str, int] = MappingProxyType({"trie": 2, "candidates": 3, "free": 6})
"""Float32 tables `[rows, vocabulary]` that are alive at once, by `action_sampling`.

`trie`: logits and their scaled copy, later the gradient and its copy. `candidates`: the log-probabilities, which the
backward pass needs, and two of those. `free`: log-probabilities and probabilities for the entropy are kept; in the
backward pass the gradients of two factors, their sum and that of the softmax are alive.
"""


@dataclass(frozen=True)
class TrainingSettings:
    """What memory depends on besides the model. The first ones are those of `policy_kwargs`.

    Args:
        dtype: Of the frozen weights and of the passes: `"float32"` or `"bfloat16"`.
        quantization: None, `"8bit"` or `"4bit"`: how bitsandbytes holds the matrices of the layers.
        lora_rank: Rank of the adapter; None for full fine-tuning, which is float32 and keeps a frozen copy of the trunk
            for the critic.
        lora_targets: Matrices that the adapter changes.
        gradient_checkpointing: Keep only the inputs of the layers, and compute each layer again when going back.
        max_tokens_per_forward: Bound on rows x padded length of one pass.
        row_tokens: Length of a row, prompt and actions; a pass has at least one row.
        action_share: Share of the tokens of a pass at which the language-model head is asked.
        action_sampling: `"trie"`, `"candidates"` or `"free"`.
        critic_arch: Hidden widths of the critic.
        decode_batch: Texts that are continued at a time in a rollout.
        decode_context: Tokens of each, prompt and action.
        rollout_tokens: Action tokens of a rollout; each has a feature vector.

    Raises:
        ValueError: If a value is unknown, or does not go with the others.
    """

    dtype: str = "float32"
    quantization: str | None = None
    lora_rank: int | None = 8
    lora_targets: tuple[str, ...] = ("q_proj", "v_proj")
    gradient_checkpointing: bool = False
    max_tokens_per_forward: int = 4096
    row_tokens: int = 512
    action_share: float = 0.125
    action_sampling: str = "trie"
    critic_arch: tuple[int, ...] = (1024, 512)
    decode_batch: int = 4
    decode_context: int = 1024
    rollout_tokens: int = 16_384

    def __post_init__(self) -> None:
        _require("dtype", self.dtype, _BYTES)
        _require("action_sampling", self.action_sampling, _LOGIT_COPIES)
        if self.quantization is not None:
            _require("quantization", self.quantization, ("8bit", "4bit"))
        sizes = ("max_tokens_per_forward", "row_tokens", "decode_batch", "decode_context", "rollout_tokens")
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


class MemoryEstimate(NamedTuple):
    """Bytes that a training needs, by what they hold.

    Attributes:
        weights: Frozen weights: the base model, or in full fine-tuning the copy of its trunk.
        trained: What is learned (adapter, or all weights): float32 weights, gradients and the moments of Adam.
        critic: The same for the critic's MLP, and the statistics of its whitening.
        features: Float32 features of the action tokens of a rollout.
        activations: What one training pass keeps for going back, and its work space.
        logits: Float32 tables `[rows, vocabulary]` of one training pass.
        kv_cache: Keys and values of the texts that are continued at a time.
    """

    weights: int
    trained: int
    critic: int
    features: int
    activations: int
    logits: int
    kv_cache: int

    @property
    def total(self) -> int:
        """Bytes at the worst moment. Rollout and update take turns, so only the larger of the two counts."""
        return sum(self[:4]) + max(self.activations + self.logits, self.kv_cache)


def estimate(shape: ModelShape, settings: TrainingSettings | None = None) -> MemoryEstimate:
    """Bytes that a training needs.

    Args:
        shape: Of the model.
        settings: Of the training; the defaults are those of `LLMPolicy`.

    Raises:
        ValueError: If the model has no matrix of the name of a LoRA target.
    """
    settings = settings or TrainingSettings()
    size = _BYTES[settings.dtype]
    widths = (shape.hidden, *settings.critic_arch, 1)
    layers = sum(first * second for first, second in itertools.pairwise(widths))  # without biases
    rows = math.ceil(settings.tokens * settings.action_share)
    kv_per_token = 2 * shape.layers * shape.kv_width * size
    return MemoryEstimate(
        weights=_frozen_bytes(shape, settings),
        trained=_LEARNED * _trained_parameters(shape, settings),
        critic=_LEARNED * layers + 2 * _FLOAT32 * shape.hidden * (shape.hidden + 1),
        features=_FLOAT32 * shape.hidden * settings.rollout_tokens,
        activations=activation_bytes(shape, settings),
        logits=min(rows * shape.vocabulary, MAX_LOGITS) * _FLOAT32 * _LOGIT_COPIES[settings.action_sampling],
        kv_cache=kv_per_token * settings.decode_batch * settings.decode_context,
    )


def largest_that_fits(
    bytes_available: float, settings: TrainingSettings | None = None, shapes: Iterable[ModelShape] | None = None
) -> ModelShape | None:
    """The model with the most weights that can be trained; None if there is none.

    Args:
        bytes_available: Memory that is free.
        settings: Of the training.
        shapes: Candidates; `SHAPES` by default.
    """
    candidates = SHAPES.values() if shapes is None else shapes
    fitting = (shape for shape in candidates if estimate(shape, settings).total <= bytes_available)
    return max(fitting, key=lambda shape: shape.parameters, default=None)


# ---------------------------------------------------------------------- weights


def _frozen_bytes(shape: ModelShape, settings: TrainingSettings) -> int:
    """Bytes of the weights that are never changed.

    bitsandbytes quantises the matrices of the layers and leaves embeddings, head and norms in `dtype`. 8 bits: a byte
    for each weight and a float32 scale for each output (LLM.int8(), arXiv 2208.07339). 4 bits: half a byte, and a
    float32 scale for each block of 64, 4.5 bits in all (QLoRA, arXiv 2305.14314, without its double quantisation).
    """
    size = _BYTES[settings.dtype]
    if settings.lora_rank is None:
        return size * shape.trunk_parameters
    if settings.quantization is None:
        return size * shape.parameters
    others = size * (shape.parameters - shape.matrix_parameters)
    if settings.quantization == "4bit":
        return others + shape.matrix_parameters // 2 + _FLOAT32 * shape.matrix_parameters // 64
    outputs = shape.layers * sum(shape.matrix(name).outputs for name in shape.matrices)
    return others + shape.matrix_parameters + _FLOAT32 * outputs


def _trained_parameters(shape: ModelShape, settings: TrainingSettings) -> int:
    """LoRA learns two matrices, `[rank, inputs]` and `[outputs, rank]`, for each that it changes."""
    if settings.lora_rank is None:
        return shape.parameters
    targets = map(shape.matrix, settings.lora_targets)
    return shape.layers * settings.lora_rank * sum(one.inputs + one.outputs for one in targets)


# ---------------------------------------------------------------------- activations


def activation_bytes(shape: ModelShape, settings: TrainingSettings) -> int:
    """Bytes that one training pass holds at its peak, the weights and logits left out.

    With h = hidden, a = heads x head_dim, i = intermediate, L = layers, b = bytes of the dtype, each token needs

    * in a layer: `4 h n` for the n inputs of norms (RMSNorm computes in float32; LayerNorm keeps `b h n`), `4 b a` for
      query, key, value and output of the attention, `3 b i` for gate, its activation and up of the MLP, and what the
      trained matrices read. The matrices that are frozen keep nothing: the gradient of a linear map needs its input
      only for its own weight;
    * once: the input of the last norm, and as work space for going back the gradients of the MLP's tensors and two
      tensors of width h.

    Without checkpointing there are L layers; with it, the inputs of L layers (`b h`) and one layer, and in 8 bits what
    the matrices read: bitsandbytes (`MatMul8bitLt`) holds it where `torch.utils.checkpoint` cannot drop it (measured
    with bitsandbytes 0.50.2 and `use_reentrant=False`). The mask of packed rows, `b row_tokens` for each token, comes
    on top; scaled-dot-product attention itself keeps no table of scores, only a float32 for each head and token.

    The terms are what PyTorch's formulas of derivatives (derivatives.yaml) save for each operation of transformers'
    layers (compare Korthikanti et al., arXiv 2205.05198, for layers of which everything is trained), with keys and
    values repeated for all heads, as transformers does where there is a mask.
    """
    size = _BYTES[settings.dtype]
    layer = _layer_bytes(shape, settings)
    kept = shape.layers * layer
    if settings.gradient_checkpointing:
        beside = size * sum(_inputs(shape, shape.matrices).values()) if settings.quantization == "8bit" else 0
        kept = shape.layers * (size * shape.hidden + beside) + layer
    work = size * (_mlp_tensors(shape) * shape.intermediate + 2 * shape.hidden)
    last_norm = _norm_bytes(shape, settings, shape.hidden)
    per_token = kept + work + last_norm + size * settings.row_tokens
    unpacked = 0
    if settings.quantization is not None:  # one matrix at a time is turned back into numbers of the dtype
        unpacked = size * max(one.inputs * one.outputs for one in map(shape.matrix, shape.matrices))
    return settings.tokens * per_token + unpacked


def _layer_bytes(shape: ModelShape, settings: TrainingSettings) -> int:
    """Bytes that one token keeps in one layer."""
    size = _BYTES[settings.dtype]
    norms = shape.norms * _norm_bytes(shape, settings, shape.hidden)
    if shape.qk_norm:
        norms += _norm_bytes(shape, settings, shape.heads_width + shape.kv_width)
    attention = 4 * size * shape.heads_width + _FLOAT32 * shape.heads
    mlp = size * _mlp_tensors(shape) * shape.intermediate
    return norms + attention + mlp + _read_bytes(shape, settings)


def _norm_bytes(shape: ModelShape, settings: TrainingSettings, width: int) -> int:
    """RMSNorm keeps its input in float32, and if it is trained, what its weight multiplies; LayerNorm as it is."""
    if shape.layer_norm:
        return _BYTES[settings.dtype] * width
    return _FLOAT32 * width * (2 if settings.lora_rank is None else 1)


def _mlp_tensors(shape: ModelShape) -> int:
    """The activation function's own, and the two factors of a gated MLP (the first of them its output)."""
    return shape.activation_tensors + 2 * shape.gated


def _read_bytes(shape: ModelShape, settings: TrainingSettings) -> int:
    """Bytes that one token keeps of what the trained matrices of a layer read.

    In float32 all share the tensor that they read, and the attention's output is kept anyway. In bfloat16 peft casts it
    to float32, for each matrix anew. 8-bit matrices keep their inputs too, though they are frozen.
    """
    size = _BYTES[settings.dtype]
    targets = shape.matrices if settings.lora_rank is None else settings.lora_targets
    inner = _FLOAT32 * (settings.lora_rank or 0) * len(targets)
    copies = sum(_FLOAT32 * shape.matrix(name).inputs for name in targets) if size < _FLOAT32 else 0
    shared = _inputs(shape, targets) if size == _FLOAT32 else {}
    if settings.quantization == "8bit":
        shared |= _inputs(shape, shape.matrices)
    return inner + copies + size * sum(width for read, width in shared.items() if read != HEADS)


def _inputs(shape: ModelShape, names: Iterable[str]) -> dict[str, int]:
    """Widths of the distinct tensors that some matrices read."""
    return {one.reads: one.inputs for one in map(shape.matrix, names)}


def _require(name: str, value: str, known: Iterable[str]) -> None:
    if value not in set(known):
        raise ValueError(f"Expected a known {name}; got {value!r}. {nearest(value, known)}")
