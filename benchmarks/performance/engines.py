"""Tokens a second of the policy's own decoding and of a server of vLLM on the same machine, with SmolLM2.

Both continue the same kinds of prompt, of one chat turn, by texts of a fixed length (no token ends one), in turns. No
prompt is repeated, so that the server's cache holds no more than their common beginning. Writes engines.json.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from benchmarks.performance.timing import in_turns
from benchmarks.reports.tables import show_records
from benchmarks.runner.files import write_result
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
    turns: int = 3,
) -> None:
    """Time texts written by the policy's own decoding and by vLLM."""
    torch.set_num_threads(threads)
    os.environ["OMP_NUM_THREADS"] = str(threads)  # of the server
    url = free_url()
    model = POAD(
        "LLMPolicy", make_envs("Overcooked-TomatoSalad-v0", {}, 2), n_steps=2, batch_size=4, device=device,
        action_sampling="free", policy_kwargs={"model": "smollm2", "dtype": dtype},
    )  # fmt: skip
    lm, n_asked = model.policy.lm, 0
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

    rows: dict[str, dict[str, Any]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(program(engine), serve_arguments(model), url, Path(folder) / LOG),
    ):
        for length in tokens or (32, 128):
            for n in texts or (8, 32, 64):
                sampling = SamplingSettings(max_new_tokens=length, generation_endpoint=url, generation_requests=n)
                kinds = {"own decoding": FreeDistribution(lm, sampling), "vLLM": EndpointDistribution(lm, sampling)}
                for kind in kinds.values():
                    seconds(kind, 1, length)  # the first call loads the adapter
                times = in_turns({name: partial(seconds, kind, n, length) for name, kind in kinds.items()}, turns)
                rates = {name: [n * length / t for t in of] for name, of in times.items()}
                rows[f"{n} texts of {length} tokens"] = {
                    **{name: round(statistics.median(of), 1) for name, of in rates.items()},
                    "ratio": round(statistics.median(np.divide(rates["vLLM"], rates["own decoding"])), 2),
                    "rates": {name: [round(rate, 1) for rate in of] for name, of in rates.items()},
                }
                show_records("tokens a second", rows, ("own decoding", "vLLM", "ratio"))
                settings = {"dtype": dtype, "device": device, "threads": threads, "turns": turns}
                write_result("engines", {**settings, "rows": rows})  # a later row may not end
