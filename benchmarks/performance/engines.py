"""Tokens a second of the policy's own decoding and of a server of vLLM on the same machine, with SmolLM2.

Both continue the same kinds of prompt, of one chat turn, by texts of a fixed length (no token ends one), in turns. No
prompt is repeated, so that the server's cache holds no more than their common beginning. Writes engines.json, where
rows of other sizes stay if they were measured on such a processor with the same settings. The server's output is in
runs/engine.log.

    python -m benchmarks measure engines --engine .engines/vllm/bin/vllm
    python -m benchmarks measure engines --device cuda --dtype bfloat16 --engine "vllm --gpu-memory-utilization 0.4"
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from benchmarks.files import RESULTS, write_result
from benchmarks.performance.timing import gpu_name, in_turns
from benchmarks.reports.tables import show_records
from lang_bench.runner.machine import describe_machine
from poad_sb3 import POAD
from poad_sb3.cli.engine import LOG, free_url, program, serve_arguments, serving
from poad_sb3.distributions import EndpointDistribution, FreeDistribution
from poad_sb3.distributions.base import ActionDistribution, ScoreCache
from poad_sb3.prompts import Question
from poad_sb3.settings.sampling import SamplingSettings
from poad_sb3.vec_env.make_envs import make_envs

_OBSERVATION = (
    "Order {}. You stand in the kitchen, beside a cutting board. There is a tomato on the table, and a plate."
)


def engines(
    engine: Annotated[str, typer.Option(help="As of `poad train`.")] = ".engines/vllm/bin/vllm",
    texts: Annotated[list[int] | None, typer.Option(help="Written at a time; 8, 32 and 64.")] = None,
    tokens: Annotated[list[int] | None, typer.Option(help="Of each text; 32 and 128.")] = None,
    dtype: str = "float32",
    device: str = "cpu",
    threads: Annotated[int, typer.Option(min=1, help="Of each of the two.")] = 1,
    turns: Annotated[int, typer.Option(min=1, help="Measurements of each size.")] = 3,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="JSON file with the results.")] = None,
) -> None:
    """Time texts written by the policy's own decoding and by vLLM."""
    torch.set_num_threads(threads)
    os.environ["OMP_NUM_THREADS"] = str(threads)  # of the server

    settings: dict[str, Any] = {"dtype": dtype, "device": device, "threads": threads}
    settings["gpu"] = gpu_name(device)
    conditions = {**settings, **{name: describe_machine()[name] for name in ("cpu", "cpu_capability", "versions")}}
    out = out or RESULTS / "engines.json"
    before = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    kept = before["rows"] if all(before.get(name) == value for name, value in conditions.items()) else {}

    def record(rows: dict[str, Any]) -> None:
        show_records("tokens a second", rows, ("own decoding", "vLLM", "ratio"))
        write_result(out.stem, {**settings, "rows": {**kept, **rows}}, out.parent)  # a later row may not end

    sizes = [(n, length) for length in tokens or (32, 128) for n in texts or (8, 32, 64)]
    tokens_per_second("smollm2", sizes, program(engine), record, dtype=dtype, device=device, turns=turns)


def tokens_per_second(
    base: str,
    sizes: Sequence[tuple[int, int]],
    command: Sequence[str] | None,
    record: Callable[[dict[str, Any]], None] = lambda rows: None,
    *,
    dtype: str,
    device: str,
    turns: int,
) -> dict[str, Any]:
    """Time texts in free text, and return the medians by size.

    Args:
        base: `model` of the policy.
        sizes: Numbers of texts that are written together, and tokens of each.
        command: Program of vLLM, as `poad_sb3.cli.engine.program` returns it; None for own decoding alone.
        record: Function that gets the rows so far, after each.
        dtype: Type of the weights.
        device: Torch device.
        turns: Number of measurements of each size.
    """
    url, n_asked = free_url(), 0
    model = POAD(
        "LLMPolicy", make_envs("Overcooked-TomatoSalad-v0", {}, 2), n_steps=2, batch_size=4, device=device,
        action_sampling="free", policy_kwargs={"model": base, "dtype": dtype},
    )  # fmt: skip
    lm = model.policy.lm
    lm.prompter.end_tokens = frozenset()

    def seconds(distribution: ActionDistribution, n: int, length: int) -> float:
        nonlocal n_asked
        questions = [Question(_OBSERVATION.format(n_asked + index), None) for index in range(n)]
        n_asked += n
        begun = time.perf_counter()
        written = distribution.sample(questions, [np.random.default_rng(n_asked + i) for i in range(n)], ScoreCache([]))
        elapsed = time.perf_counter() - begun
        assert {len(action.path.action) for action in written} == {length}
        return elapsed

    rows: dict[str, Any] = {}
    log = Path("runs") / LOG
    if command is not None:
        log.parent.mkdir(exist_ok=True)
    with serving(command, serve_arguments(model), url, log) if command else contextlib.nullcontext():
        for n, length in sizes:
            sampling = SamplingSettings(max_new_tokens=length, generation_endpoint=url, generation_requests=n)
            kinds: dict[str, ActionDistribution] = {"own decoding": FreeDistribution(lm, sampling)}
            if command is not None:
                kinds["vLLM"] = EndpointDistribution(lm, sampling)
            for kind in kinds.values():
                seconds(kind, 1, length)  # the first call loads the adapter
            times = in_turns({name: partial(seconds, kind, n, length) for name, kind in kinds.items()}, turns)
            rates = {name: [n * length / t for t in of] for name, of in times.items()}
            row: dict[str, Any] = {name: round(statistics.median(of), 1) for name, of in rates.items()}
            if command is not None:
                row["ratio"] = round(statistics.median(np.divide(rates["vLLM"], rates["own decoding"])), 2)
            row["turns"] = turns
            row["rates"] = {name: [round(rate, 1) for rate in of] for name, of in rates.items()}
            rows[f"{n} texts of {length} tokens"] = row
            record(rows)
    return rows
