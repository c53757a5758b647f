"""How much memory a training needs: arithmetic on the shape of a model, checked by measurement.

Everything follows from shapes, so nothing is loaded to find out whether it fits. `python -m benchmarks.memory` compares
the figures with the bytes that trainings of random models really hold. Not counted: the CUDA context, fragmentation of
the allocator, and eager attention (Gemma 2), whose scores grow with the square of the length.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import NamedTuple

from poad_sb3.model_shapes import HEADS, SHAPES, ModelShape
from poad_sb3.training_settings import DTYPE_BYTES, TrainingSettings

__all__ = ["CACHE_ROOM", "MAX_LOGITS", "SHAPES", "SLICE_LOGITS", "MemoryEstimate", "ModelShape", "TrainingSettings",
           "activation_bytes", "cache_bytes", "estimate", "largest_that_fits", "logit_bytes"]  # fmt: skip

_FLOAT32 = 4
_TOKEN = 25
"""Bytes of an action token in a rollout: whether it decides, four float32, and the number of its features."""
_LEARNED = 16
"""Bytes of a weight that is trained: float32 weight, gradient, and the two moments of Adam."""
MAX_LOGITS = 1 << 24
"""Logits of the vocabulary that are kept for the backward pass; those of more rows are computed once more there."""
SLICE_LOGITS = 1 << 22
"""Logits that go through the head together. Much fewer waste the product (measured: twice the time at an eighth)."""
_SLICE_TABLES = 3
"""Tables as large as a slice beside the logits: log-probabilities, probabilities, the gradient of the slice before."""
CACHE_ROOM = 64
"""Tokens that a cache of keys and values has room for when it is full and moves."""


class MemoryEstimate(NamedTuple):
    """Bytes that a training needs, by what they hold.

    Attributes:
        weights: Frozen weights: the base model, or in full fine-tuning the copy of it.
        trained: What is learned (adapter, or all weights): float32 weights, gradients and the moments of Adam.
        critic: The same for the critic's MLP, and the statistics of its whitening.
        features: Float32 features of the action tokens of a rollout.
        activations: What one training pass keeps for going back, and its work space.
        logits: What is asked of the head in one training pass: tables `[rows, vocabulary]`, or rows of the head.
        kv_cache: Keys and values of the texts that are continued at a time, the pass over their prompts, and the merged
            weights that write them.
        values: What the critic computes of all features at a time.
        tokens: What else a rollout holds of its tokens; the ids are in main memory, wherever the model is.
    """

    weights: int
    trained: int
    critic: int
    features: int
    activations: int
    logits: int
    kv_cache: int
    values: int = 0
    tokens: int = 0

    @property
    def total(self) -> int:
        """Bytes at the worst moment. Writing, valuing and the update take turns, so only the largest of them counts."""
        return sum(self[:4]) + self.tokens + max(self.activations + self.logits, self.kv_cache, self.values)


def estimate(shape: ModelShape, settings: TrainingSettings | None = None) -> MemoryEstimate:
    """Bytes that a training needs.

    Args:
        shape: Of the model.
        settings: Of the training; the defaults are those of `LLMPolicy`.

    Raises:
        ValueError: If the model has no matrix of the name of a LoRA target.
    """
    settings = settings or TrainingSettings()
    widths = (shape.hidden, *settings.critic_arch, 1)
    layers = sum(first * second for first, second in itertools.pairwise(widths))  # without biases
    return MemoryEstimate(
        weights=_frozen_bytes(shape, settings),
        trained=_LEARNED * _trained_parameters(shape, settings),
        critic=_LEARNED * layers + 2 * _FLOAT32 * shape.hidden * (shape.hidden + 1),
        features=_FLOAT32 * shape.hidden * settings.rollout_tokens,
        activations=activation_bytes(shape, settings),
        logits=logit_bytes(shape, settings),
        kv_cache=cache_bytes(shape, settings),
        values=_FLOAT32 * settings.rollout_tokens * 2 * sum(widths[:-1]),
        tokens=_TOKEN * settings.rollout_tokens + settings.host_bytes,
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
    size = DTYPE_BYTES[settings.dtype]
    if settings.lora_rank is None:
        return size * shape.parameters if settings.critic_trunk == "frozen" else 0
    if settings.quantization is None:
        return size * shape.parameters
    others = size * (shape.parameters - shape.matrix_parameters)
    if settings.quantization == "4bit":
        return others + shape.matrix_parameters // 2 + _FLOAT32 * shape.matrix_parameters // 64
    outputs = shape.layers * sum(shape.matrix(name).outputs for name in shape.matrices)
    return others + shape.matrix_parameters + _FLOAT32 * outputs


def _trained_parameters(shape: ModelShape, settings: TrainingSettings) -> int:
    """LoRA learns two matrices, `[rank, inputs]` and `[outputs, rank]`, for each that it changes."""
    if settings.trained_parameters is not None:
        return settings.trained_parameters
    if settings.lora_rank is None:
        return shape.parameters
    targets = map(shape.matrix, settings.lora_targets)
    return shape.layers * settings.lora_rank * sum(one.inputs + one.outputs for one in targets)


# ---------------------------------------------------------------------- the head, and decoding


def logit_bytes(shape: ModelShape, settings: TrainingSettings) -> int:
    """Bytes that one training pass asks of the language-model head, forth and back.

    `trie`: rows of the head for all children, in its own dtype and if that is not float32 also in float32, the hidden
    states beside them, and their products. `candidates`, `free`: the logits of the vocabulary, as far as they are kept,
    and tables for one slice of them. In full fine-tuning the head's own gradient, before it is added to the others.
    Not counted: three more tables of a slice with `kl_coef`.
    """
    rows = math.ceil(settings.tokens * settings.action_share)
    own = _FLOAT32 * shape.vocabulary * shape.hidden if settings.lora_rank is None else 0
    if settings.action_sampling == "trie":
        size = DTYPE_BYTES[settings.dtype]
        of_child = 2 * _FLOAT32 + size + (0 if size == _FLOAT32 else _FLOAT32)
        return own + math.ceil(rows * settings.children) * shape.hidden * of_child
    in_slice = max(1, SLICE_LOGITS // shape.vocabulary)
    kept = min(rows, MAX_LOGITS // (in_slice * shape.vocabulary) * in_slice)
    tables = (_SLICE_TABLES if rows > in_slice else _SLICE_TABLES - 1) + (rows > kept)
    return own + _FLOAT32 * shape.vocabulary * (kept + tables * min(rows, in_slice))


def cache_bytes(shape: ModelShape, settings: TrainingSettings) -> int:
    """Bytes of keys and values, of the widest place in the pass over all prompts at once, and of merged weights.

    In float32 the sums of adapted matrices and their adapters are held while texts are written.
    """
    if not settings.decode_batch:
        return 0
    size = DTYPE_BYTES[settings.dtype]
    kept = 2 * shape.layers * shape.kv_width * size * (settings.decode_context + CACHE_ROOM)
    work = size * (_mlp_tensors(shape) * shape.intermediate + 3 * shape.hidden) * settings.decode_context
    merged = 0
    if settings.dtype == "float32" and settings.quantization is None and settings.lora_rank is not None:
        matrices = map(shape.matrix, settings.lora_targets)
        merged = _FLOAT32 * shape.layers * sum(one.inputs * one.outputs for one in matrices)
    return merged + settings.decode_batch * (kept + work)


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
    with bitsandbytes 0.50.2 and `use_reentrant=False`). On top comes the mask of packed rows, a
    number and a bool for each pair of tokens. Rows that begin alike are merged into one, which may be as long as the
    whole pass unless `merged_tokens` says otherwise: this is the most that it may be, and less where rows differ.
    Scaled-dot-product attention itself keeps no table of scores, only a float32 for each head and token.

    The terms are what PyTorch's formulas of derivatives (derivatives.yaml) save for each operation of transformers'
    layers (compare Korthikanti et al., arXiv 2205.05198, for layers of which everything is trained), with keys and
    values repeated for all heads, as transformers does where there is a mask.
    """
    size = DTYPE_BYTES[settings.dtype]
    layer = _layer_bytes(shape, settings)
    kept = shape.layers * layer
    if settings.gradient_checkpointing:
        beside = size * sum(_inputs(shape, shape.matrices).values()) if settings.quantization == "8bit" else 0
        kept = shape.layers * (size * shape.hidden + beside) + layer
    work = size * (_mlp_tensors(shape) * shape.intermediate + 2 * shape.hidden)
    last_norm = _norm_bytes(shape, settings, shape.hidden)
    per_token = kept + work + last_norm + (size + 1) * settings.longest_row
    unpacked = 0
    if settings.quantization is not None:  # one matrix at a time is turned back into numbers of the dtype
        unpacked = size * max(one.inputs * one.outputs for one in map(shape.matrix, shape.matrices))
    return settings.tokens * per_token + unpacked


def _layer_bytes(shape: ModelShape, settings: TrainingSettings) -> int:
    """Bytes that one token keeps in one layer."""
    size = DTYPE_BYTES[settings.dtype]
    norms = shape.norms * _norm_bytes(shape, settings, shape.hidden)
    if shape.qk_norm:
        norms += _norm_bytes(shape, settings, shape.heads_width + shape.kv_width)
    attention = 4 * size * shape.heads_width + _FLOAT32 * shape.heads
    mlp = size * _mlp_tensors(shape) * shape.intermediate
    return norms + attention + mlp + _read_bytes(shape, settings)


def _norm_bytes(shape: ModelShape, settings: TrainingSettings, width: int) -> int:
    """RMSNorm keeps its input in float32, and if it is trained, what its weight multiplies; LayerNorm as it is."""
    if shape.layer_norm:
        return DTYPE_BYTES[settings.dtype] * width
    return _FLOAT32 * width * (2 if settings.lora_rank is None else 1)


def _mlp_tensors(shape: ModelShape) -> int:
    """The activation function's own, and the two factors of a gated MLP (the first of them its output)."""
    return shape.activation_tensors + 2 * shape.gated


def _read_bytes(shape: ModelShape, settings: TrainingSettings) -> int:
    """Bytes that one token keeps of what the trained matrices of a layer read.

    In float32 all share the tensor that they read, and the attention's output is kept anyway. In bfloat16 peft casts it
    to float32, for each matrix anew. 8-bit matrices keep their inputs too, though they are frozen.
    """
    size = DTYPE_BYTES[settings.dtype]
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
