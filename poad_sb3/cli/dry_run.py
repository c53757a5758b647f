"""`poad train --dry-run`: the memory of a training, with the environments but without weights."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from poad_sb3.cli.common import DOES_NOT_FIT, environments, fail
from poad_sb3.cli.memory import fix, plain, size
from poad_sb3.cli.request import Request
from poad_sb3.cli.train import Resolved, make_algorithm, resolve
from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm
from poad_sb3.memory.doctor import MARGIN, free_memory, usable_memory
from poad_sb3.memory.dry_run import Expected, expect, largest_pass, remedy
from poad_sb3.memory.outline import OutlinePolicy
from poad_sb3.settings.model import DEFAULT_LORA

_PASSES = (
    "A minibatch goes through the model in passes of at most max_tokens_per_forward tokens (rows x padded length), so "
    "batch_size changes little: how many decisions one of them may hold."
)


class DryRun(NamedTuple):
    """Result of a dry run.

    Attributes:
        expected: Memory that the training needs.
        device: Device of the training.
        free: Free memory of the device, in bytes; None if unknown.
        usable: Part of it that the training may use, in bytes; None if unknown.
        largest: Largest `max_tokens_per_forward` that fits; None if not even one row does, or if unknown.
    """

    expected: Expected
    device: str
    free: int | None
    usable: int | None
    largest: int | None

    @property
    def fits(self) -> bool | None:
        """Whether the training fits; None if unknown."""
        return None if self.usable is None else self.expected.needed.total <= self.usable

    @property
    def rows(self) -> int | None:
        """Number of rows of the expected length in the largest pass."""
        return None if self.largest is None else self.largest // self.expected.workload.row_tokens


def dry_run(
    console: Console, request: Request, out: Path | None, *, resume: bool, as_json: bool, n_procs: int = 1
) -> None:
    """Show the memory that a training would need; write no file.

    Args:
        console: Console to print to.
        request: Options of the command.
        out: Folder of the run.
        resume: Whether to resume the run in the folder, as in a training.
        as_json: Whether to print the figures as JSON instead of a table.
        n_procs: Number of ranks; the figures are those of one of them. Ranks of one device share its memory.

    Raises:
        typer.Exit: If the training would not fit, with the code `DOES_NOT_FIT`.
    """
    resolved = resolve(request, out, resume=resume)
    model = _outline(resolved, request.arguments)
    if n_procs & (n_procs - 1) or model.micro_batches % n_procs:
        parts = model.micro_batches
        fail(f"Expected --n-procs to be a power of two that divides micro_batches ({parts}); got {n_procs}.")
    if n_procs == 1 and (model.policy_kwargs or {}).get("fsdp"):
        fail("Expected several ranks for fsdp=true; got one. Fix: --n-procs, or leave fsdp out.")
    found = _find(model, n_procs)
    if as_json:
        console.print(
            json.dumps(_facts(model, found), indent=1, default=str), markup=False, highlight=False, soft_wrap=True
        )
    else:
        _show(console, model, resolved, found)
    if found.fits is False:
        raise typer.Exit(DOES_NOT_FIT)


def _outline(resolved: Resolved, given: Iterable[str]) -> LLMOnPolicyAlgorithm:
    """Create the algorithm as the training would, without weights; `given` arguments must have an effect."""
    config = resolved.config
    envs = environments(config.env_id, config.env_kwargs, config.n_envs)
    return make_algorithm(config, envs, resolved.device, given, OutlinePolicy)


def _find(model: LLMOnPolicyAlgorithm, n_procs: int) -> DryRun:
    device = str(model.device)
    free = free_memory(device)
    n_devices = torch.cuda.device_count() if device.startswith("cuda") else 1
    if free is not None:
        free //= -(-n_procs // n_devices)
    usable = usable_memory(free)
    assert model.env is not None
    try:
        expected = expect(model, model.env.reset())
        expected = expected._replace(workload=expected.workload._replace(ranks=n_procs))
    except Exception as error:  # an environment may raise anything
        fail(f"The memory cannot be estimated: {error}")
    finally:
        model.env.close()
    largest = None if usable is None else largest_pass(expected, usable)
    return DryRun(expected, device, free, usable, largest)


def _facts(model: LLMOnPolicyAlgorithm, found: DryRun) -> dict[str, Any]:
    """Return the figures for JSON."""
    expected = found.expected
    settings = {**vars(expected.settings), "model": model.policy.lm.source.name}
    return {
        "model": plain(expected.size),
        "settings": {**settings, "action_sampling": model.action_sampling, **plain(expected.workload)},
        "rows": plain(expected.rows),
        "needed": {**plain(expected.needed), "total": expected.needed.total},
        "device": found.device,
        "free": found.free,
        "usable": found.usable,
        "fits": found.fits,
        "largest_pass": {"max_tokens_per_forward": found.largest, "rows": found.rows},
        "remedy": None if found.usable is None or found.fits else remedy(expected, found.usable),
    }


# ---------------------------------------------------------------------- the table


def _show(console: Console, model: LLMOnPolicyAlgorithm, resolved: Resolved, found: DryRun) -> None:
    config, expected = resolved.config, found.expected
    title = f"{config.algorithm} on {config.env_id} with {model.policy.lm.source.name}: nothing is trained or written"
    console.print(Text(title, style="bold"), soft_wrap=True)
    table = Table("memory", Column(justify="right"), "of", box=None)
    for name, n_bytes, what in _parts(model, expected):
        table.add_row(Text(name, style="cyan", no_wrap=True), Text(size(n_bytes)), Text(what))
    table.add_row(Text("total", style="bold"), Text(size(expected.needed.total), style="bold"), _total(expected))
    console.print(table)
    for line in _verdict(model, found):
        console.print(line, soft_wrap=True)


def _parts(model: LLMOnPolicyAlgorithm, expected: Expected) -> Iterable[tuple[str, int, str]]:
    of_model, settings, workload, rows = expected
    needed, trained = expected.needed, of_model.trained
    bits = f", layers in {settings.quantization}" if settings.quantization else ""
    kept = "a frozen copy for the critic" if settings.lora is None else f"{of_model.parameters:,} weights"
    dtype = str(settings.dtype).removeprefix("torch.")
    yield "frozen weights", needed.weights, f"{kept} in {dtype}{bits}" if needed.weights else "none"
    name = "all weights" if settings.lora is None else f"LoRA, rank {({**DEFAULT_LORA, **settings.lora})['r']}"
    shares = f"weights {size(4 * trained)}, gradients {size(4 * trained)}, Adam {size(8 * trained)}"
    yield name, needed.trained, f"{trained:,} trained: {shares}"
    widths = " -> ".join(map(str, (of_model.hidden, *settings.critic_arch, 1)))
    yield "critic", needed.critic, f"{widths}, and its whitening"
    steps = f"{model.max_rollout_steps()} steps x {model.n_envs} environments"
    yield "rollout: features", needed.features, f"{steps}, up to {rows.action} tokens an action"
    yield "rollout: tokens", needed.tokens, f"prompts of up to {rows.prompt} tokens, and actions, in main memory"
    again = "recomputed in the backward pass" if settings.gradient_checkpointing else "kept for the backward pass"
    yield "activations", needed.activations, f"passes of {workload.tokens(settings)} tokens, {again}"
    among = f"{workload.children:.1f} children" if workload.children else f"{of_model.vocabulary} words"
    yield "logits", needed.logits, f"up to {workload.action_share:.1%} of a pass x {among}"
    parts = f"of {workload.micro_batches} micro-batches, added up before the last one"
    parts += f", and of {workload.ranks} ranks" if workload.ranks > 1 else ""
    yield "gradients", needed.sums, parts if needed.sums else "none beside those above"
    yield "critic's pass", needed.values, "over the features of a whole rollout"
    many = f"{workload.decode_batch} texts x {workload.decode_context} tokens"
    yield "KV cache", needed.kv_cache, many if workload.decode_batch else "none: actions are listed, not written"


def _total(expected: Expected) -> Text:
    needed = expected.needed
    turns = {
        "the update": needed.activations + needed.logits + needed.sums,
        "the critic's pass": needed.values,
        "the KV cache": needed.kv_cache,
    }
    return Text(f"the last five take turns: {max(turns, key=lambda name: turns[name])} counts")


def _verdict(model: LLMOnPolicyAlgorithm, found: DryRun) -> Iterable[Text]:
    settings = found.expected.settings
    if found.usable is None or found.free is None:
        yield Text(f"How much memory is free on {found.device} is unknown: compare the total with what you have.")
    else:
        ranks = found.expected.workload.ranks
        each = f" for each of {ranks} ranks" if ranks > 1 else ""
        free = f"{size(found.free)} free on {found.device}{each}, {MARGIN:.0%} left alone"
        yield Text(f"It fits: {free}.", style="green") if found.fits else Text(f"It does not fit: {free}.", style="red")
        if not found.fits:
            yield Text(fix(found.expected, found.usable))
        yield _largest(model, found)
    yield Text(f"{_PASSES} Lengths are those of the first observations: later ones may be longer.", style="dim")
    if settings.quantization:
        yield Text("Without double quantisation; with it, a little less.", style="dim")


def _largest(model: LLMOnPolicyAlgorithm, found: DryRun) -> Text:
    row = found.expected.workload.row_tokens
    if found.largest is None:
        return Text(f"Not even a pass of one row ({row} tokens) fits.")
    return Text(
        f"Largest pass that fits: max_tokens_per_forward={found.largest}, {found.rows} rows of {row} tokens; "
        f"a minibatch has {min(model.batch_size, (model.max_rollout_steps() or 1) * model.n_envs)}."
    )
