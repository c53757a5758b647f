"""Estimates of memory against the bytes that trainings really hold: `python -m benchmarks.memory`.

Random Llama models in several shapes run one training pass of merged rows on the CPU, in a process each. Three figures
stand beside the estimate of `poad_sb3.memory.activation_bytes`:

* `saved`: bytes of the distinct storages that autograd keeps for going back (`saved_tensors_hooks`; without gradient
  checkpointing only, which has hooks of its own);
* `peak`: the most bytes that tensors made in the pass held at any moment. Exact, and the figure to compare with;
* `rss`: growth of the process's resident memory in the pass (Linux only). Above `peak` it is gaps in the heap of glibc:
  with `MALLOC_MMAP_THRESHOLD_=262144` in the environment the two agree (512 x 8, LoRA, float32: 274.1 and 271.6 MB, by
  default 495.9; with checkpointing 68.5 and 66.6).

What is asked of the head is measured likewise, on the pocket model: few rows, whose logits are kept; and many, which go
through it in slices. Writes results/memory.json.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import itertools
import json
import multiprocessing
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.environment import RESULTS, describe_machine
from poad_sb3.memory import ModelShape, TrainingSettings, activation_bytes, logit_bytes

__all__ = ["LiveBytes", "Measured", "measure", "measure_logits", "training_pass"]

SHAPES = (
    ModelShape("512 x 8", 8, 512, 1376, 8, 8, 64, 1000),
    ModelShape("1024 x 8", 8, 1024, 2816, 16, 16, 64, 1000),
    ModelShape("1024 x 8, 4 kv heads", 8, 1024, 2816, 16, 4, 64, 1000),
)
ALL_MATRICES = SHAPES[0].matrices
BASE = TrainingSettings(max_tokens_per_forward=1024, row_tokens=256)
WAYS = {
    "LoRA q, v": {},
    "LoRA q, v, bfloat16": {"dtype": "bfloat16"},
    "LoRA all, bfloat16": {"dtype": "bfloat16", "lora_targets": ALL_MATRICES},
    "full": {"lora_rank": None},
}


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of the storages that operations make, while they live.

    Attributes:
        now: Bytes alive.
        peak: The most there were.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._sizes: dict[int, int] = {}

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: object, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:  # noqa: ANN401 - whatever the operation returns
        """Run an operation, and count what it made."""
        result = func(*args, **(kwargs or {}))
        given = {one.untyped_storage()._cdata for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)}
        for one in tree_leaves(result):
            if isinstance(one, Tensor) and one.untyped_storage()._cdata not in given | self._sizes.keys():
                storage = one.untyped_storage()
                self._sizes[storage._cdata] = storage.nbytes()
                self.now += storage.nbytes()
                self.peak = max(self.peak, self.now)
                weakref.finalize(storage, self._drop, storage._cdata)
        return result

    def _drop(self, key: int) -> None:
        self.now -= self._sizes.pop(key)


class Measured(NamedTuple):
    """Bytes of one training pass; see the module."""

    saved: int | None
    peak: int
    rss: int | None


# ---------------------------------------------------------------------- a training pass


def training_pass(model: Any, settings: TrainingSettings) -> Callable[..., Tensor]:  # noqa: ANN401 - transformers
    """Prepare a model for training.

    Returns:
        A function that makes the forward pass of a full chunk, rows that were merged into one, or of a few tokens.
    """
    from peft import LoraConfig, get_peft_model

    base = model.to(getattr(torch, settings.dtype))
    if settings.lora_rank is not None:
        config = LoraConfig(task_type="CAUSAL_LM", r=settings.lora_rank, target_modules=[*settings.lora_targets])
        model = get_peft_model(base, config)
    if settings.gradient_checkpointing:
        enable = getattr(base, "activation_checkpointing_enable", None) or base.gradient_checkpointing_enable  # older
        enable({"use_reentrant": False})
        model.train()
    else:
        model.eval()
    for parameter in model.parameters():
        if parameter.requires_grad:  # counted as trained, not as an activation
            parameter.grad = torch.zeros_like(parameter)
    tokens = torch.randint(base.config.vocab_size, (1, settings.tokens))

    def forward(few: int | None = None) -> Tensor:
        ids = tokens if few is None else tokens[:1, :few]
        length = ids.shape[1]
        seen = torch.ones(len(ids), 1, length, length, dtype=torch.bool).tril_()
        mask = torch.zeros(seen.shape, dtype=base.dtype).masked_fill_(~seen, torch.finfo(base.dtype).min)
        hidden: Tensor = base.get_decoder()(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        return hidden[:, -(length // 8) :].float().sum()

    return forward


def measure(forward: Callable[[], Tensor], parameters: Sequence[Tensor]) -> Measured:
    """Run training passes, and count what they hold besides the parameters; `rss` is left to others."""
    own = {one.untyped_storage()._cdata for one in parameters}
    saved: dict[int, int] = {}
    kept: list[Tensor] = []  # so that no two storages have one address

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            saved[storage._cdata] = storage.nbytes()
            kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        forward()
    kept.clear()
    gc.collect()
    with LiveBytes() as live:
        forward().backward()
    return Measured(sum(saved.values()), live.peak, None)


def _resident_growth(run: Callable[[], object]) -> int | None:
    """Bytes by which resident memory grows while something runs; None elsewhere than on Linux."""
    if sys.platform != "linux":
        return None
    status, reset = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what was freed before must not be used again unseen
    reset.write_text("5")  # the highest mark falls to the present size
    before = _status_bytes(status, "VmRSS")
    run()
    return _status_bytes(status, "VmHWM") - before


def _status_bytes(status: Path, name: str) -> int:
    words = next(line.split() for line in status.read_text(encoding="utf-8").splitlines() if line.startswith(name))
    return int(words[1]) * 1024


def measure_logits(action_sampling: str, n_rows: int = 512) -> tuple[int, int]:
    """Bytes that asking the head of the pocket model takes at its peak, forth and back; and what is estimated."""
    from poad_sb3.lm import LanguageModel
    from poad_sb3.models.head import Picks

    lm = LanguageModel()
    hidden = torch.randn(n_rows, lm.hidden_size, requires_grad=True)
    children = [(1, 2, 3)] * n_rows
    choice, temperatures = Picks(torch.arange(n_rows) % 7, [1] * n_rows), torch.ones(n_rows)

    def loss() -> Tensor:  # as in poad_sb3.decisions
        if action_sampling == "trie":
            return lm.child_logits(hidden, children).sum()
        if action_sampling == "candidates":
            return lm.child_log_probs(hidden, children).sum()
        known = lm.statistics(hidden, choice, temperatures)
        return known.log_probs.sum() + known.entropies.sum()

    with LiveBytes() as live:
        loss().backward()
    settings = TrainingSettings(
        action_sampling=action_sampling, max_tokens_per_forward=n_rows, row_tokens=1, action_share=1.0, children=3.0
    )
    return live.peak, logit_bytes(ModelShape.of(lm.base.config), settings)


# ---------------------------------------------------------------------- the table


def _one(shape: ModelShape, settings: TrainingSettings) -> Measured:
    """In a process of its own: the greatest resident size never goes down."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(1)
    config = LlamaConfig(
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        intermediate_size=shape.intermediate,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        vocab_size=shape.vocabulary,
    )
    model = LlamaForCausalLM(config)
    forward = training_pass(model, settings)
    forward(8).backward()  # what is made once for all passes
    rss = _resident_growth(lambda: forward().backward())
    found = measure(forward, [*model.parameters(), *model.buffers()])._replace(rss=rss)
    return found._replace(saved=None) if settings.gradient_checkpointing else found


def main() -> None:
    """Command line."""
    argparse.ArgumentParser(description="Memory of a training pass, estimated and measured.").parse_args()
    table = Table(
        "model", "trained", "checkpointing", "estimate, MB", "peak, MB", "estimate / peak", "/ saved", "/ rss"
    )
    cases = []
    for shape in SHAPES:
        for name, changes in WAYS.items():
            for checkpointing in (False, True):
                settings = replace(BASE, gradient_checkpointing=checkpointing, **changes)
                with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                    found = pool.submit(_one, shape, settings).result()
                estimated = activation_bytes(shape, settings)
                ratios = [round(estimated / one, 3) if one else None for one in (found.peak, found.saved, found.rss)]
                case = {"model": shape.name, "trained": name, "gradient_checkpointing": checkpointing}
                numbers = {"estimate": estimated, **found._asdict()}
                cases.append({**case, **numbers, "estimate_over_peak": ratios[0]})
                sizes = (f"{one / 1e6:.1f}" for one in (estimated, found.peak))
                shown = ("-" if one is None else f"{one:.3f}" for one in ratios)
                table.add_row(shape.name, name, "yes" if checkpointing else "no", *sizes, *shown)
    logits = {}
    for sampling, n_rows in itertools.product(("trie", "candidates", "free"), (512, 8192, 32_768)):
        peak, estimated = measure_logits(sampling, n_rows)
        logits[f"{sampling}, {n_rows} rows"] = {
            "peak": peak,
            "estimate": estimated,
            "estimate_over_peak": round(estimated / peak, 3),
        }
    Console(width=140).print(table)
    for name, case in logits.items():
        print(f"head, {name}: estimate / peak {case['estimate_over_peak']}")
    result = {**describe_machine(), "tokens": BASE.tokens, "row_tokens": BASE.row_tokens}
    result |= {"cases": cases, "head": logits}
    (RESULTS / "memory.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
