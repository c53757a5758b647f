"""Time of a training in one process, and in two ranks: the same seed, the same result, a model of 50M parameters.

One process with one thread, one with two, and two ranks with one thread each, in turns, each in new processes; and one
process with whole passes (`micro_batches=1`), which shows the cost of the cut. Each trains two rollouts with their
updates, and the second is timed. Writes ranks.json.
"""

from __future__ import annotations

import hashlib
import os
import statistics
import subprocess
import sys
import time
import warnings
from functools import partial
from typing import Annotated, Any, NamedTuple

import torch
import typer
from stable_baselines3.common.env_util import make_vec_env

from benchmarks.files import write_result
from benchmarks.performance.synthetic import SyntheticTask, TaskSizes, make_model
from benchmarks.performance.timing import in_turns
from benchmarks.reports.tables import show_records
from poad_sb3 import POAD
from poad_sb3.distributed import end_ranks, start_ranks


class Layout(NamedTuple):
    """A way to run the training.

    Attributes:
        n_procs: Number of ranks.
        threads: Threads of each rank.
        micro_batches: Micro-batches of a minibatch.
    """

    n_procs: int
    threads: int
    micro_batches: int = 4


LAYOUTS = {
    "one process, one thread": Layout(1, 1),
    "one process, one thread, whole passes": Layout(1, 1, 1),
    "one process, two threads": Layout(1, 2),
    "two ranks, one thread each": Layout(2, 1),
}
_ANSWER = "timed: "


def train(size: str, n_envs: int, n_steps: int, layout: Layout) -> None:
    """Train two rollouts as one of the ranks; rank 0 prints the seconds of the second and a digest of the weights."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(layout.threads)
    ranks = start_ranks(layout.n_procs)
    envs = make_vec_env(partial(SyntheticTask, TaskSizes()), n_envs)
    model = POAD(
        "LLMPolicy", envs, seed=0, n_steps=n_steps, batch_size=n_steps * n_envs, n_epochs=1, learning_rate=1e-4,
        micro_batches=layout.micro_batches,
        policy_kwargs={"model": partial(make_model, size, 16_000), "check": "warn"},
    )  # fmt: skip
    for _ in range(2):
        started = time.perf_counter()
        model.learn(n_steps * n_envs, reset_num_timesteps=False)
    seconds = time.perf_counter() - started
    digest = hashlib.sha256(b"".join(t.numpy().tobytes() for t in model.policy.state_dict().values())).hexdigest()
    if ranks.is_first:
        print(f"{_ANSWER}{seconds} {digest[:16]}")
    end_ranks()


def timed(size: str, n_envs: int, n_steps: int, layout: Layout) -> tuple[float, str]:
    """Run a layout in processes of its own; return seconds and digest."""
    code = f"from benchmarks.performance.ranks import *; train({size!r}, {n_envs}, {n_steps}, Layout{tuple(layout)})"
    command = [sys.executable, "-c", code]
    if layout.n_procs > 1:
        launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(layout.n_procs))
        command = [sys.executable, *launcher, "--no-python", *command]
    environment = {**os.environ, "OMP_NUM_THREADS": str(layout.threads), "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    answers = [line for line in done.stdout.splitlines() if line.startswith(_ANSWER)]
    if done.returncode or not answers:
        raise RuntimeError(f"Expected a training; it ended with {done.returncode}: {done.stderr[-2000:]}")
    seconds, digest = answers[0].removeprefix(_ANSWER).split()
    return float(seconds), digest


def ranks(
    size: Annotated[str, typer.Option(help="Of the model.")] = "50m",
    envs: int = 8,
    steps: Annotated[int, typer.Option(min=1, help="Of each environment in a rollout.")] = 2,
    repeats: int = 5,
) -> None:
    """Time trainings in one and in two processes."""
    works = {name: partial(timed, size, envs, steps, layout) for name, layout in LAYOUTS.items()}
    turns = in_turns(works, repeats)
    seconds = {name: [elapsed for elapsed, _ in of] for name, of in turns.items()}
    alone = seconds["one process, one thread"]
    rows: dict[str, Any] = {
        name: {
            "median": round(statistics.median(times), 3),
            "min": round(min(times), 3),
            "max": round(max(times), 3),
            "speedup": round(statistics.median(a / b for a, b in zip(alone, times, strict=True)), 3),
            "digests": sorted({digest for _, digest in turns[name]}),
        }
        for name, times in seconds.items()
    }
    settings = {"model": size, "envs": envs, "steps": steps, "repeats": repeats}
    show_records("layout", rows, ("median", "min", "max", "speedup"))
    write_result("ranks", {**settings, "layouts": rows})
