"""Memory of a training, estimated from a model on torch's meta device, where tensors have shapes and no numbers.

Weights, adapter, optimiser, rollout and cache follow from shapes. Activations are the bytes that autograd saves for one
token in a forward pass, and one measured factor, `WORK_SPACE`. `python -m benchmarks measure memory` compares them with
training passes of random models. Not counted: the CUDA context, gaps of the allocator, eager attention, whose scores
grow with the square of the length (Gemma 2), and in 8 bits the inputs that bitsandbytes keeps of its matrices.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AutoModelForCausalLM
from transformers.pytorch_utils import Conv1D

from poad_sb3.common.critics import MarginalCritic
from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm
from poad_sb3.distributions import CandidateDistribution, ThinkDistribution, TrieDistribution
from poad_sb3.language_model import lm_head
from poad_sb3.language_model.language_model import CACHED_PER_FORWARD
from poad_sb3.language_model.loading import DTYPES
from poad_sb3.language_model.lora import adapt
from poad_sb3.prompts import Question
from poad_sb3.settings import ModelSettings
from poad_sb3.settings.sampling import ActionSampling
from poad_sb3.vec_env.text_observations import parse_observation

__all__ = ["MemoryEstimate", "ModelSize", "Workload", "estimate", "estimate_training", "free_memory"]

WORK_SPACE = 0.4
"""Work space of the backward pass, as a share of the tensors that autograd saves in one layer.

Measured as (peak - saved) / (saved in a layer) on the 24 training passes of `data/results/memory.json`: 0.18 to 0.53.
"""
_FLOAT32 = 4
_LEARNED = 16
"""Bytes of a trained weight: float32 weight, gradient, and the two moments of Adam."""
_TOKEN = 25
"""Bytes of an action token in a rollout: its decision flag, four float32, and the number of its features."""
_QUANTIZED = {"8bit": 1.0, "4bit": 0.5625}
"""Bytes of a quantised weight: LLM.int8() (arXiv 2208.07339); QLoRA (arXiv 2305.14314), with a float32 scale for each
block of 64."""
_ATTENTION = "without_mask"
"""Name of an attention for the meta device; for those of transformers it reads the numbers of a mask."""


class ModelSize(NamedTuple):
    """Numbers of a model that memory follows from.

    Attributes:
        parameters: Number of weights of the base model; tied ones count once.
        frozen: Size of the weights that are not trained, in bytes.
        trained: Number of weights that are trained.
        vocabulary: Number of rows of the embedding.
        hidden: Width of the residual stream.
        layers: Number of layers.
        kv_width: Width of the keys and values of all layers together.
        itemsize: Size of a number of the base model, in bytes.
        saved: Memory that autograd saves for a token, in bytes.
    """

    parameters: int
    frozen: int
    trained: int
    vocabulary: int
    hidden: int
    layers: int
    kv_width: int
    itemsize: int
    saved: int

    @classmethod
    def of(cls, config: Any, settings: ModelSettings | None = None) -> ModelSize:
        """Measure the model that a transformers config describes, without its weights.

        Args:
            config: Config of a causal language model of transformers.
            settings: Settings of the model.

        Raises:
            ValueError: If the forward pass needs numbers, as that of a mixture of experts does.
        """
        settings = settings or ModelSettings()
        dtype = DTYPES[str(settings.dtype).removeprefix("torch.")]
        config = copy.deepcopy(config)  # transformers notes the attention there
        config._attn_implementation = _ATTENTION
        with torch.device("meta"):
            base = AutoModelForCausalLM.from_config(config, dtype=dtype)
            parameters, head = base.num_parameters(), base.get_output_embeddings()
            linear = [layer for layer in base.modules() if isinstance(layer, (nn.Linear, Conv1D)) and layer is not head]
            quantizable = sum(layer.weight.numel() for layer in linear)
            network = adapt(base, settings.lora).eval()
            try:
                saved = _saved_for_a_token(base)
            except Exception as error:  # of the model's own code, such as experts that are chosen by numbers
                raise ValueError(
                    f"Expected an architecture whose forward pass goes without numbers; {config.model_type!r} raises "
                    f"{type(error).__name__}. Fix: start a short training and look at what it takes."
                ) from error
        frozen = sum(parameter.nbytes for parameter in network.parameters() if not parameter.requires_grad)
        if settings.lora is None and settings.critic_trunk == "frozen":
            frozen = parameters * dtype.itemsize  # a copy of the model for the critic
        elif settings.quantization is not None:
            # bitsandbytes leaves embeddings, head and norms as they are.
            frozen += int(quantizable * (_quantized(settings.quantization) - dtype.itemsize))
        text = config.get_text_config()
        heads = getattr(text, "num_attention_heads", 0)
        head_dim = getattr(text, "head_dim", None) or text.hidden_size // max(1, heads)
        kv_heads = getattr(text, "num_key_value_heads", None) or heads
        return cls(
            parameters=parameters,
            frozen=frozen,
            trained=sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad),
            vocabulary=text.vocab_size,
            hidden=text.hidden_size,
            layers=text.num_hidden_layers,
            kv_width=2 * text.num_hidden_layers * kv_heads * head_dim,
            itemsize=dtype.itemsize,
            saved=saved,
        )


class Workload(NamedTuple):
    """Numbers of tokens that memory follows from. The defaults are those of the table in the documentation.

    Attributes:
        pass_tokens: Number of tokens of the largest training pass.
        scored: Number of these tokens at which the language-model head runs.
        children: Number of tokens scored there, on average; 0 for the whole vocabulary.
        n_texts: Number of texts that are continued at a time in a rollout; 0 where actions are listed, not written.
        text_tokens: Number of tokens of each of these texts, prompt and action.
        rollout_tokens: Number of action tokens of a rollout; each has a feature vector.
        gradient_sums: Number of sums of gradients beside the present one; see `PPOSettings.micro_batches`.
        critic_networks: Number of the critic's networks; 0 without a critic.
    """

    pass_tokens: int = 1024
    scored: int = 128
    children: float = 4.0
    n_texts: int = 4
    text_tokens: int = 1024
    rollout_tokens: int = 16_384
    gradient_sums: int = 2
    critic_networks: int = 1


class MemoryEstimate(NamedTuple):
    """Memory that a training needs, by purpose, in bytes.

    Attributes:
        weights: Frozen weights: the base model, or in full fine-tuning the copy of it for the critic.
        trained: Trained parameters (adapter, or all weights): float32 weights, gradients and the moments of Adam.
        critic: The same of the critic's MLP, and the statistics of its whitening.
        rollout: Features and other data of the action tokens of a rollout.
        activations: Activations that one training pass keeps for its backward pass, and its work space.
        logits: Results of the head in one training pass.
        gradients: Sums of gradients of earlier micro-batches, or of other ranks.
        decoding: Keys and values of the texts that are continued at a time, and the pass over their prompts.
        values: Results of the critic for all features at a time.
    """

    weights: int
    trained: int
    critic: int
    rollout: int
    activations: int
    logits: int
    gradients: int
    decoding: int
    values: int

    @property
    def total(self) -> int:
        """Peak memory. Update, writing and valuing take turns, so only the largest of them counts."""
        update = self.activations + self.logits + self.gradients
        return sum(self[:4]) + max(update, self.decoding, self.values)


def estimate(
    size: ModelSize, settings: ModelSettings | None = None, workload: Workload | None = None
) -> MemoryEstimate:
    """Estimate the memory that a training needs.

    Args:
        size: Size of the model, measured with the same settings.
        settings: Settings of the model.
        workload: Numbers of tokens of the training.
    """
    settings, workload = settings or ModelSettings(), workload or Workload()
    widths = (size.hidden, *settings.critic_arch, 1)
    matrices = sum(first * second for first, second in itertools.pairwise(widths))
    whitening = 2 * _FLOAT32 * size.hidden * (size.hidden + 1)
    return MemoryEstimate(
        weights=size.frozen,
        trained=_LEARNED * size.trained,
        critic=workload.critic_networks * (_LEARNED * matrices + whitening),
        rollout=(_FLOAT32 * size.hidden + _TOKEN) * workload.rollout_tokens,
        activations=_activations(size, settings, workload),
        logits=_logits(size, settings, workload),
        gradients=_FLOAT32 * workload.gradient_sums * size.trained,
        decoding=_decoding(size, workload),
        values=_FLOAT32 * workload.rollout_tokens * 2 * sum(widths[:-1]) if workload.critic_networks else 0,
    )


def estimate_training(algorithm: LLMOnPolicyAlgorithm, observation: Any) -> MemoryEstimate:
    """Estimate the memory that learning will need. Later prompts and actions may be longer than the first.

    An upper bound: passes are taken as full, and rows as merged as far as they can be.

    Args:
        algorithm: Algorithm with all its settings.
        observation: Batch of first observations, one of each environment.

    Raises:
        ValueError: If the model is sharded or its forward pass needs numbers, or rollouts have no known length.
        ObservationError: If the observations allow no action.
        ModelError: If a prompt is longer than the model's context.
    """
    lm, kwargs = algorithm.policy.lm, algorithm.policy_kwargs or {}
    given = {name: kwargs.get(name, default) for name, default in ModelSettings.defaults().items()}
    settings = ModelSettings(**{**given, "dtype": str(lm.base.dtype)})
    if settings.fsdp:
        raise ValueError("Expected weights on one device; fsdp shards them. Fix: look at what a short training takes.")
    steps = algorithm.max_rollout_steps()
    if steps is None:
        raise ValueError(
            "Expected rollouts of a known length; they are whole episodes, and this environment registers no "
            "max_episode_steps. Fix: a limit in its registration, or gym.make(id, max_episode_steps=...)."
        )
    # Counted, since the weights may be quantised by any library.
    frozen = sum(tensor.nbytes for tensor in (*lm.parameters(), *lm.buffers()) if not tensor.requires_grad)
    size = ModelSize.of(lm.base.config, settings)._replace(frozen=frozen)
    questions = parse_observation(observation)[0]
    rows = [_longest_row(algorithm, question) for question in questions]
    row_tokens, scored, children, action = map(max, zip(*rows, strict=True))
    actions = steps * algorithm.n_envs
    together = min(algorithm.batch_size, actions)  # rows that begin alike are merged, so all may be in one pass
    pass_tokens = max(row_tokens, min(lm.max_tokens_per_forward, together * row_tokens))
    writes = algorithm.action_sampling in (ActionSampling.FREE, ActionSampling.THINK)
    texts = max(1, CACHED_PER_FORWARD * lm.max_tokens_per_forward // row_tokens)
    critic, values = algorithm.policy.critic, algorithm.credit.n_values(action)
    if algorithm.kl_coef:
        values = action
    elif critic is not None and not critic.reads_prefixes:
        listed = max(len(question.actions or ()) for question in questions)
        values = 1 + (min(listed, MarginalCritic.max_leaves) if critic.reads_leaves and values > 1 else 0)
    ranks = algorithm.ranks.size
    sums = (algorithm.micro_batches // ranks).bit_length() - 1  # one unfinished on each level of a binary tree
    workload = Workload(
        pass_tokens=pass_tokens,
        scored=min(pass_tokens, together * scored),
        children=children,
        n_texts=min(algorithm.n_envs, texts) if writes else 0,
        text_tokens=row_tokens,
        rollout_tokens=actions * values + (algorithm.n_envs if values else 0),  # and the state after the last step
        gradient_sums=max(sums, 1 + ranks) if ranks > 1 else sums,
        critic_networks=0 if critic is None else critic.n_networks,
    )
    return estimate(size, settings, workload)


def free_memory(device: torch.device | str) -> int | None:
    """Return the free memory of a device, in bytes; None if unknown.

    Args:
        device: Device of torch.
    """
    device = torch.device(device)
    if device.type == "cpu":
        limits = [_free_in_container(), int(psutil.virtual_memory().available)]
        return min(limit for limit in limits if limit is not None)
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else None


def _free_in_container(group: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the memory that the control group (version 2) of a container has left; None without a limit."""
    try:
        limit, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
        statistics = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no such group, or "max"
        return None
    return max(0, limit - used + int(statistics.get("inactive_file", 0)))  # the page cache is given back


# ---------------------------------------------------------------------- parts


def _activations(size: ModelSize, settings: ModelSettings, workload: Workload) -> int:
    """Return the memory of a training pass at its peak, without weights and logits.

    Each token needs the tensors that autograd saves for it in all layers, or with checkpointing the inputs of the
    layers and the saved tensors of one of them. On top come the work space, and the mask of merged rows, a number and a
    bool for each pair of tokens.
    """
    layer = size.saved / size.layers
    saved = size.layers * size.itemsize * size.hidden + layer if settings.gradient_checkpointing else size.saved
    mask = (size.itemsize + 1) * workload.pass_tokens
    return int(workload.pass_tokens * (saved + WORK_SPACE * layer + mask))


def _logits(size: ModelSize, settings: ModelSettings, workload: Workload) -> int:
    """Return the memory of the head in a training pass.

    Along a trie: rows of the head for all children, in its own dtype and in float32, the hidden states beside them, and
    their products. Otherwise the logits of the vocabulary, as far as they are kept, and tables for one slice of them.
    In full fine-tuning the head's own gradient, before it is added to the rest.
    """
    head = _FLOAT32 * size.vocabulary * size.hidden if settings.lora is None else 0
    if workload.children:
        copies = 2 if size.itemsize == _FLOAT32 else 3
        return head + int(workload.scored * workload.children) * size.hidden * (size.itemsize + copies * _FLOAT32)
    in_slice = max(1, lm_head.SLICE_LOGITS // size.vocabulary)
    kept = min(workload.scored, lm_head.MAX_LOGITS // size.vocabulary)
    # Log-probabilities and probabilities, and of several slices the gradient of the one before.
    tables = 2 if workload.scored <= in_slice else 3
    return head + _FLOAT32 * size.vocabulary * (kept + tables * min(workload.scored, in_slice))


def _decoding(size: ModelSize, workload: Workload) -> int:
    """Return the memory of keys and values, and of the pass over all prompts at once."""
    if not workload.n_texts:
        return 0
    # A new token copies the keys and values of a layer.
    cache = size.itemsize * size.kv_width * workload.text_tokens * (size.layers + 1) // size.layers
    prompt = size.saved // size.layers * workload.text_tokens  # without gradients, about the tensors of one layer
    return workload.n_texts * (cache + prompt)


def _longest_row(algorithm: LLMOnPolicyAlgorithm, question: Question) -> tuple[int, int, float, int]:
    """Return numbers of tokens for a question: of the longest row, scored ones in it, children of one, of an action."""
    distribution = algorithm.policy.distribution
    if isinstance(distribution, ThinkDistribution):
        action = algorithm.max_thought_tokens + distribution.n_behind(question)
        return len(distribution.prompt(question)) + action, action, 0.0, action
    if not isinstance(distribution, TrieDistribution):
        action = algorithm.max_new_tokens
        return len(distribution.prompt(question)) + action, action, 0.0, action
    prompt, trie, row = distribution.tokenized(question)
    action = max(map(len, trie.sequences))
    if algorithm.paper_mode:  # every token of an action is scored among the whole vocabulary
        return len(prompt) + action, action, 0.0, action
    if isinstance(distribution, CandidateDistribution):  # one row has all actions
        return len(row.row.tokens), len(row.row.reads), 0.0, action
    children = sum(map(len, row.children)) / max(1, len(row.children))
    return len(prompt) + action, max(map(len, trie.decisions)), children, action


def _quantized(quantization: str | Mapping[str, Any]) -> float:
    """Return the bytes of a weight that bitsandbytes holds."""
    if isinstance(quantization, Mapping):
        quantization = "4bit" if quantization.get("load_in_4bit") else "8bit"
    return _QUANTIZED[quantization]


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Attend by torch's kernel, as transformers calls it; mask and caps of scores are left out."""
    repeats = query.shape[1] // key.shape[1]
    if repeats > 1:
        key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    return nn.functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).contiguous(), None


AttentionInterface.register(_ATTENTION, _attention)


def _saved_for_a_token(base: Any) -> int:
    """Return the bytes that autograd saves in a forward pass of one token, besides the weights."""
    weights = {tensor.untyped_storage()._cdata for tensor in (*base.parameters(), *base.buffers())}
    saved: dict[int, Tensor] = {}  # tensors, so that no two storages have one address

    def pack(tensor: Tensor) -> Tensor:
        saved.setdefault(tensor.untyped_storage()._cdata, tensor)
        return tensor

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        base.get_decoder()(input_ids=torch.zeros(1, 1, dtype=torch.long), use_cache=False)
    return sum(tensor.untyped_storage().nbytes() for key, tensor in saved.items() if key not in weights)
