"""Memory of a training, estimated from a model on torch's meta device, where tensors have shapes and no numbers.

Weights, adapter, optimiser, rollout, logits and cache are counted exactly. Activations are the bytes that autograd
saves for one token in a forward pass of the model without weights, and one measured factor, `WORK_SPACE`. `python -m
benchmarks measure memory` compares them with training passes of random models. Not counted: the CUDA context, gaps
of the allocator, and eager attention (Gemma 2), whose scores grow with the square of the length.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AutoModelForCausalLM
from transformers.pytorch_utils import Conv1D

from poad_sb3.language_model import lm_head
from poad_sb3.language_model.decoding import CACHE_ROOM
from poad_sb3.language_model.loading import DTYPES
from poad_sb3.language_model.lora import adapt
from poad_sb3.settings import ModelSettings

__all__ = ["MemoryEstimate", "ModelSize", "Workload", "activation_bytes", "cache_bytes", "estimate", "logit_bytes"]

WORK_SPACE = 0.4
"""Work space of the backward pass, as a share of the tensors that autograd saves in one layer.

Measured as (peak - saved) / (saved in a layer) on the 24 training passes of `data/results/memory.json`: 0.18 to 0.53,
more where little is saved (an adapter on two matrices in float32), less where much is (all weights). With 0.4 the
activations are within 10 % of each of the 24 peaks. Weak for layers unlike Llama's, and for one or two layers.
"""
_FLOAT32 = 4
_TOKEN = 25
"""Bytes of an action token in a rollout: its decision flag, four float32, and the number of its features."""
_LEARNED = 16
"""Bytes of a trained weight: float32 weight, gradient, and the two moments of Adam."""
_SLICE_TABLES = 3
"""Number of tables as large as a slice beside the logits: log-probabilities, probabilities, the gradient of the slice
before."""


class ModelSize(NamedTuple):
    """Numbers of a model that memory follows from.

    Attributes:
        parameters: Number of weights of the base model; tied ones count once.
        frozen: Size of the weights that are not trained, without quantization, in bytes.
        trained: Number of weights that are trained.
        matrices: Number of weights of the linear layers, those that bitsandbytes quantises.
        outputs: Number of outputs of these layers together.
        largest_matrix: Number of weights of the largest of them.
        adapted: Number of weights of those that have an adapter.
        vocabulary: Number of rows of the embedding.
        hidden: Width of the residual stream.
        layers: Number of layers.
        kv_width: Width of the keys and values of all layers together.
        number: Size of a number of the base model, in bytes.
        saved: Memory that autograd saves for a token, in bytes.
        read: Memory that the linear layers read for a token, in bytes.
        saved_8bit: Memory that autograd saves for a token if the linear layers keep their inputs, as those of 8 bits
            do, in bytes.
    """

    parameters: int
    frozen: int
    trained: int
    matrices: int
    outputs: int
    largest_matrix: int
    adapted: int
    vocabulary: int
    hidden: int
    layers: int
    kv_width: int
    number: int
    saved: int
    read: int
    saved_8bit: int

    @classmethod
    def of(cls, config: Any, settings: ModelSettings | None = None) -> ModelSize:
        """Measure the model that a transformers config describes, without its weights.

        Args:
            config: Config of a causal language model of transformers.
            settings: Settings of the model; only `dtype` and `lora` count.

        Raises:
            ValueError: If the forward pass needs numbers, as that of a mixture of experts does.
        """
        settings = settings or ModelSettings()
        config = copy.deepcopy(config)  # transformers notes the kernel of the attention there
        config._attn_implementation = _FusedAttention.NAME
        with torch.device("meta"):
            base = AutoModelForCausalLM.from_config(config, dtype=_dtype(settings))
            parameters = base.num_parameters()
            head = base.get_output_embeddings()
            matrices = [one for one in base.modules() if isinstance(one, (nn.Linear, Conv1D)) and one is not head]
            network = adapt(base, settings.lora).eval()
            try:
                saved, read, both = _saved_for_a_token(base, matrices)
            except Exception as error:  # of the model's own code, such as experts that are chosen by numbers
                raise ValueError(
                    f"Expected an architecture whose forward pass goes without numbers; {config.model_type!r} raises "
                    f"{type(error).__name__}. Fix: start a short training and look at what it takes."
                ) from error
        text = config.get_text_config()
        heads = getattr(text, "num_attention_heads", 0)
        head_dim = getattr(text, "head_dim", None) or text.hidden_size // max(1, heads)
        sizes = [one.weight.numel() for one in matrices]
        adapted = [one.get_base_layer() for one in network.modules() if getattr(one, "lora_A", None)]
        return cls(
            parameters=parameters,
            frozen=sum(_bytes(one) for one in network.parameters() if not one.requires_grad),
            trained=sum(one.numel() for one in network.parameters() if one.requires_grad),
            matrices=sum(sizes),
            outputs=sum(one.weight.shape[isinstance(one, Conv1D)] for one in matrices),
            largest_matrix=max(sizes, default=0),
            adapted=sum(one.weight.numel() for one in adapted),
            vocabulary=text.vocab_size,
            hidden=text.hidden_size,
            layers=text.num_hidden_layers,
            kv_width=2 * text.num_hidden_layers * (getattr(text, "num_key_value_heads", None) or heads) * head_dim,
            number=_dtype(settings).itemsize,
            saved=saved,
            read=read,
            saved_8bit=both,
        )


class Workload(NamedTuple):
    """Numbers of tokens that memory follows from. The defaults are those of the tables in the documentation.

    Attributes:
        row_tokens: Number of tokens of a row, prompt and actions; a pass has at least one row.
        merged_tokens: Number of tokens of the longest row after merging rows that begin alike, if it is known to be
            less than a whole pass.
        action_share: Share of the tokens of a pass at which the language-model head runs.
        children: Number of tokens scored there, on average; 0 for the whole vocabulary.
        decode_batch: Number of texts that are continued at a time in a rollout; 0 where actions are listed, not
            written.
        decode_context: Number of tokens of each of these texts, prompt and action.
        rollout_tokens: Number of action tokens of a rollout; each has a feature vector.
        host_bytes: Size of the other data of a rollout, in main memory, in bytes: token ids of prompts and
            actions.
        has_critic: Whether the method has a critic.
        micro_batches: Number of parts of a minibatch, whose gradients are added along a binary tree; see `PPOSettings`.
        ranks: Number of processes of the training. Each holds all of it, but for weights that `fsdp` shards.
    """

    row_tokens: int = 512
    merged_tokens: int | None = None
    action_share: float = 0.125
    children: float = 4.0
    decode_batch: int = 4
    decode_context: int = 1024
    rollout_tokens: int = 16_384
    host_bytes: int = 0
    has_critic: bool = True
    micro_batches: int = 4
    ranks: int = 1

    def tokens(self, settings: ModelSettings) -> int:
        """Return the number of tokens of the largest pass."""
        return max(settings.max_tokens_per_forward, self.row_tokens)

    def longest_row(self, settings: ModelSettings) -> int:
        """Return the number of tokens of the longest row of a pass, merged or not."""
        tokens = self.tokens(settings)
        return max(self.row_tokens, tokens if self.merged_tokens is None else min(tokens, self.merged_tokens))


class MemoryEstimate(NamedTuple):
    """Bytes that a training needs in one rank, by purpose.

    Attributes:
        weights: Frozen weights: the base model, or in full fine-tuning the copy of it. If they are sharded, only this
            rank's part, and the layers that are whole in a pass.
        trained: Trained parameters (adapter, or all weights): float32 weights, gradients and the moments of Adam.
        critic: Trained parameters of the critic's MLP, as for `trained`, and the statistics of its whitening.
        features: Features of the action tokens of a rollout, float32.
        activations: Activations that one training pass keeps for its backward pass, and its work space.
        logits: Results of the head in one training pass: tables `[rows, vocabulary]`, or rows of the head.
        kv_cache: Keys and values of the texts that are continued at a time, the pass over their prompts, and the merged
            weights that write them.
        values: Results of the critic for all features at a time.
        tokens: Other data of the tokens of a rollout; the ids are in main memory, wherever the model is.
        sums: Gradients of the micro-batches before the present one, added up, and those gathered from all ranks.
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
    sums: int = 0

    @property
    def total(self) -> int:
        """Peak memory, in bytes. Writing, valuing and the update take turns, so only the largest of them counts."""
        update = self.activations + self.logits + self.sums
        return sum(self[:4]) + self.tokens + max(update, self.kv_cache, self.values)


def estimate(
    size: ModelSize, settings: ModelSettings | None = None, workload: Workload | None = None
) -> MemoryEstimate:
    """Estimate the memory that a training needs, in bytes.

    Args:
        size: Size of the model, measured with the same settings.
        settings: Settings of the model.
        workload: Numbers of tokens of the training.
    """
    settings, workload = settings or ModelSettings(), workload or Workload()
    widths = (size.hidden, *settings.critic_arch, 1)
    layers = sum(first * second for first, second in itertools.pairwise(widths))  # without biases
    critic = _LEARNED * layers + 2 * _FLOAT32 * size.hidden * (size.hidden + 1)
    values = _FLOAT32 * workload.rollout_tokens * 2 * sum(widths[:-1])
    weights, trained, ranks = _frozen_bytes(size, settings), _LEARNED * size.trained, workload.ranks
    gradients = (workload.micro_batches // ranks).bit_length() - 1  # one unfinished on each level of the tree
    if settings.fsdp:
        whole = size.parameters - size.matrices + 2 * size.matrices // size.layers  # embeddings and head, two layers
        weights = -(-weights // ranks) + (size.number * whole if ranks > 1 else 0)
        trained, gradients = -(-trained // ranks), 0
    elif ranks > 1:
        gradients = max(gradients, 1 + ranks)  # the branch of this rank once more, and those of all
    return MemoryEstimate(
        weights=weights,
        trained=trained,
        critic=critic if workload.has_critic else 0,
        features=_FLOAT32 * size.hidden * workload.rollout_tokens,
        activations=activation_bytes(size, settings, workload),
        logits=logit_bytes(size, settings, workload),
        kv_cache=cache_bytes(size, settings, workload),
        values=values if workload.has_critic else 0,
        tokens=_TOKEN * workload.rollout_tokens + workload.host_bytes,
        sums=_FLOAT32 * gradients * size.trained,
    )


def activation_bytes(size: ModelSize, settings: ModelSettings, workload: Workload) -> int:
    """Return the memory that one training pass holds at its peak, without weights and logits, in bytes.

    Each token needs the tensors that autograd saves for it in all layers, or with checkpointing the inputs of the
    layers and the saved tensors of one of them; in 8 bits also the inputs of the matrices, held by bitsandbytes
    (`MatMul8bitLt`) where `torch.utils.checkpoint` cannot drop them (measured with bitsandbytes 0.50.2 and
    `use_reentrant=False`). On top come `WORK_SPACE`, and the mask of packed rows, a number and a bool for each pair of
    tokens. Rows that begin alike are merged into one, as long as the whole pass unless `merged_tokens` is given: an
    upper bound, not reached where rows differ.
    """
    bits = bits_of(settings.quantization)
    saved: float = size.saved_8bit if bits == 8 else size.saved
    layer = saved / size.layers
    if settings.gradient_checkpointing:
        saved = size.layers * size.number * size.hidden + (size.read if bits == 8 else 0) + layer
    mask = (size.number + 1) * workload.longest_row(settings)
    unpacked = size.number * size.largest_matrix if bits else 0  # turned back into numbers of the dtype one at a time
    return math.ceil(workload.tokens(settings) * (saved + WORK_SPACE * layer + mask)) + unpacked


def logit_bytes(size: ModelSize, settings: ModelSettings, workload: Workload) -> int:
    """Return the memory of the LM head in one forward and backward pass, in bytes.

    Along a trie: rows of the head for all children, in its own dtype and if that is not float32 also in float32, the
    hidden states beside them, and their products. Otherwise the logits of the vocabulary, as far as they are kept, and
    tables for one slice of them. In full fine-tuning the head's own gradient, before it is added to the others. Not
    counted: three more tables of a slice with `kl_coef`.
    """
    rows = math.ceil(workload.tokens(settings) * workload.action_share)
    own = _FLOAT32 * size.vocabulary * size.hidden if settings.lora is None else 0
    if workload.children:
        of_child = 2 * _FLOAT32 + size.number + (0 if size.number == _FLOAT32 else _FLOAT32)
        return own + math.ceil(rows * workload.children) * size.hidden * of_child
    in_slice = max(1, lm_head.SLICE_LOGITS // size.vocabulary)
    kept = min(rows, lm_head.MAX_LOGITS // (in_slice * size.vocabulary) * in_slice)
    tables = (_SLICE_TABLES if rows > in_slice else _SLICE_TABLES - 1) + (rows > kept)
    return own + _FLOAT32 * size.vocabulary * (kept + tables * min(rows, in_slice))


def cache_bytes(size: ModelSize, settings: ModelSettings, workload: Workload) -> int:
    """Return the memory of keys and values, of the pass over all prompts at once, and of merged weights, in bytes.

    Without gradients a pass holds about the inputs and outputs of one layer's matrices, twice their inputs. In
    float32 the sums of adapted matrices and their adapters are held while texts are written.
    """
    if not workload.decode_batch:
        return 0
    kept = size.kv_width * size.number * (workload.decode_context + CACHE_ROOM)
    work = 2 * size.read // size.layers * workload.decode_context
    merged = _FLOAT32 * size.adapted if size.number == _FLOAT32 and settings.quantization is None else 0
    return merged + workload.decode_batch * (kept + work)


def bits_of(quantization: str | Mapping[str, Any] | None) -> int | None:
    """Return 8 or 4 for weights that bitsandbytes holds, None for others.

    Args:
        quantization: Quantisation, as in `ModelSettings`, or as the config of a loaded model has it.

    Raises:
        ValueError: If another library holds the weights, whose bytes are not counted here.
    """
    if quantization is None or isinstance(quantization, str):
        return None if quantization is None else int(quantization[0])
    for bits in (8, 4):
        if quantization.get(f"load_in_{bits}bit") or quantization.get(f"_load_in_{bits}bit"):
            return bits
    raise ValueError(
        f"Expected weights that bitsandbytes holds in 8 or 4 bits; got {quantization.get('quant_method')!r}, which is "
        "not counted here. Fix: start a short training and look at what it takes."
    )


def _frozen_bytes(size: ModelSize, settings: ModelSettings) -> int:
    """Return the memory of the frozen weights, in bytes.

    bitsandbytes quantises the matrices of the layers and leaves embeddings, head and norms as they are. 8 bits: a byte
    for each weight and a float32 scale for each output (LLM.int8(), arXiv 2208.07339). 4 bits: half a byte, and a
    float32 scale for each block of 64, 4.5 bits in all (QLoRA, arXiv 2305.14314, without its double quantisation).
    """
    if settings.lora is None:
        return size.number * size.parameters if settings.critic_trunk == "frozen" else 0
    others = size.frozen - size.number * size.matrices
    match bits_of(settings.quantization):
        case 8:
            return others + size.matrices + _FLOAT32 * size.outputs
        case 4:
            return others + size.matrices // 2 + _FLOAT32 * size.matrices // 64
    return size.frozen


# ---------------------------------------------------------------------- a pass without numbers


class _FusedAttention(torch.autograd.Function):
    """Attention that saves the tensors of a fused kernel, for a model on the meta device: torch would choose the kernel
    that saves tables of scores there.
    """

    NAME = "poad_memory"

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        repeats = query.shape[1] // key.shape[1]
        if repeats > 1:  # as transformers does where there is a mask
            key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
        result = value.new_empty(*query.transpose(1, 2).shape[:3], value.shape[3])
        per_head = query.new_empty(query.shape[:3], dtype=torch.float32)
        ctx.save_for_backward(query, key, value, result, per_head)
        return result


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, None]:
    return _FusedAttention.apply(query, key, value), None  # type: ignore[no-untyped-call]


AttentionInterface.register(_FusedAttention.NAME, _attention)


def _saved_for_a_token(base: Any, matrices: list[nn.Module]) -> tuple[int, int, int]:
    """Return the bytes that autograd saves besides the weights, those that the matrices read, and those of both."""
    own = {one.untyped_storage()._cdata for one in (*base.parameters(), *base.buffers())}
    saved: dict[int, Tensor] = {}  # tensors, so that no two storages have one address
    read: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        saved.setdefault(tensor.untyped_storage()._cdata, tensor)
        return tensor

    def note(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        read.setdefault(inputs[0].untyped_storage()._cdata, inputs[0])

    hooks = [one.register_forward_pre_hook(note) for one in matrices]
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        base.get_decoder()(input_ids=torch.zeros(1, 1, dtype=torch.long), use_cache=False)
    for hook in hooks:
        hook.remove()

    def total(tensors: Mapping[int, Tensor]) -> int:
        return sum(one.untyped_storage().nbytes() for key, one in tensors.items() if key not in own)

    return total(saved), total(read), total(saved | read)


def _dtype(settings: ModelSettings) -> torch.dtype:
    return DTYPES[str(settings.dtype).removeprefix("torch.")]


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
