"""Estimates of memory against the bytes that trainings really hold.

Random Llama models in several shapes run one training pass of merged rows on the CPU, in a process each. Beside the
activations of `poad_sb3.memory.estimate` stands the peak: the most bytes that tensors made in the pass held at any
moment, counted exactly.

The cost of the head is measured likewise, on the pocket model: few rows, whose logits are kept; and many rows, which go
through it in slices. Writes memory.json.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.files import write_result
from benchmarks.performance.timing import in_new_process
from benchmarks.reports.tables import show_table
from poad_sb3.language_model.gradient_checkpointing import enable_checkpointing
from poad_sb3.language_model.lora import adapt
from poad_sb3.memory import ModelSize, Workload, estimate
from poad_sb3.settings import ModelSettings

SHAPES = {
    "512 x 8": (512, 1376, 8, 8),
    "1024 x 8": (1024, 2816, 16, 16),
    "1024 x 8, 4 kv heads": (1024, 2816, 16, 4),
}
"""Width, width of the MLP, heads and key-value heads of a model with 8 layers."""
ALL_MATRICES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
WORKLOAD = Workload(pass_tokens=1024)
WAYS: dict[str, dict[str, Any]] = {
    "LoRA q, v": {},
    "LoRA q, v, bfloat16": {"dtype": "bfloat16"},
    "LoRA all, bfloat16": {"dtype": "bfloat16", "lora": {"target_modules": ALL_MATRICES}},
    "full": {"lora": None},
}


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of the storages that operations make, while they live.

    Attributes:
        now: Bytes alive now.
        peak: Most bytes alive at any moment.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._sizes: dict[int, int] = {}

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: object, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operation, and count the bytes of its tensors."""
        result = func(*args, **(kwargs or {}))
        given = {
            tensor.untyped_storage()._cdata for tensor in tree_leaves((args, kwargs)) if isinstance(tensor, Tensor)
        }
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and tensor.untyped_storage()._cdata not in given | self._sizes.keys():
                storage = tensor.untyped_storage()
                self._sizes[storage._cdata] = storage.nbytes()
                self.now += storage.nbytes()
                self.peak = max(self.peak, self.now)
                weakref.finalize(storage, self._drop, storage._cdata)
        return result

    def _drop(self, key: int) -> None:
        self.now -= self._sizes.pop(key)


# ---------------------------------------------------------------------- a training pass


def config_of(shape: str) -> LlamaConfig:
    """Return the config of one of `SHAPES`."""
    hidden, intermediate, heads, kv_heads = SHAPES[shape]
    return LlamaConfig(
        hidden_size=hidden, num_hidden_layers=8, intermediate_size=intermediate, num_attention_heads=heads,
        num_key_value_heads=kv_heads, vocab_size=1000,
    )  # fmt: skip


def training_pass(base: Any, settings: ModelSettings) -> Callable[..., Tensor]:
    """Prepare a model for training.

    Returns:
        A function that makes the forward pass of a full chunk, rows that were merged into one, or of a few tokens.
    """
    model = adapt(base.to(getattr(torch, settings.dtype)), settings.lora)
    if settings.gradient_checkpointing:
        enable_checkpointing(base)
        model.train()
    else:
        model.eval()
    for parameter in model.parameters():
        if parameter.requires_grad:  # counted as trained, not as an activation
            parameter.grad = torch.zeros_like(parameter)
    tokens = torch.randint(base.config.vocab_size, (1, WORKLOAD.pass_tokens))

    def forward(few: int | None = None) -> Tensor:
        ids = tokens if few is None else tokens[:1, :few]
        length = ids.shape[1]
        visible = torch.ones(len(ids), 1, length, length, dtype=torch.bool).tril_()
        mask = torch.zeros(visible.shape, dtype=base.dtype).masked_fill_(~visible, torch.finfo(base.dtype).min)
        hidden: Tensor = base.get_decoder()(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        return hidden[:, -(length // 8) :].float().sum()

    return forward


def measure(forward: Callable[[], Tensor]) -> int:
    """Return the peak bytes of one training pass, besides the parameters."""
    forward()  # allocates once for all passes
    with LiveBytes() as live:
        forward().backward()
    return live.peak


def measure_logits(action_sampling: str, n_rows: int = 512) -> tuple[int, int]:
    """Return the peak bytes of the head of the pocket model, forward and backward, and the estimate."""
    from poad_sb3.language_model.language_model import LanguageModel
    from poad_sb3.language_model.lm_head import Picks

    lm = LanguageModel()
    hidden = torch.randn(n_rows, lm.hidden_size, requires_grad=True)
    children = [(1, 2, 3)] * n_rows
    choice, temperatures = Picks(torch.arange(n_rows) % 7, [1] * n_rows), torch.ones(n_rows)

    def loss() -> Tensor:  # as in poad_sb3.distributions.base
        if action_sampling == "trie":
            return lm.child_logits(hidden, children).sum()
        if action_sampling == "candidates":
            return lm.child_log_probs(hidden, children).sum()
        log_probs, entropies, _ = lm.statistics(hidden, choice, temperatures)
        return log_probs.sum() + entropies.sum()

    with LiveBytes() as live:
        loss().backward()
    workload = Workload(pass_tokens=n_rows, scored=n_rows, children=3.0 if action_sampling == "trie" else 0.0)
    return live.peak, estimate(ModelSize.of(lm.base.config), workload=workload).logits


# ---------------------------------------------------------------------- the table


def _one(shape: str, settings: ModelSettings) -> int:
    torch.set_num_threads(1)
    forward = training_pass(LlamaForCausalLM(config_of(shape)), settings)
    forward(8).backward()
    return measure(forward)


def memory() -> None:
    """Compare estimates of the memory of training passes with the bytes that they hold."""
    cases, logits = [], {}
    for shape, (name, changes), checkpointing in itertools.product(SHAPES, WAYS.items(), (False, True)):
        settings = ModelSettings(gradient_checkpointing=checkpointing, **changes)
        case = {"model": shape, "trained": name, "gradient_checkpointing": checkpointing}
        estimated = estimate(ModelSize.of(config_of(shape), settings), settings, WORKLOAD).activations
        cases.append(case | _figures(estimated, in_new_process(_one, shape, settings)))
    for sampling, n_rows in itertools.product(("trie", "candidates", "free"), (512, 8192, 32_768)):
        peak, estimated = measure_logits(sampling, n_rows)
        logits[f"{sampling}, {n_rows} rows"] = _figures(estimated, peak)
    show_table(list(cases[0]), (case.values() for case in cases), width=140)
    show_table(("head", "estimate", "peak", "estimate / peak"), ((name, *row.values()) for name, row in logits.items()))
    write_result("memory", {"tokens": WORKLOAD.pass_tokens, "cases": cases, "head": logits})


def _figures(estimated: int, peak: int) -> dict[str, float]:
    return {"estimate": estimated, "peak": peak, "estimate_over_peak": round(estimated / peak, 3)}
