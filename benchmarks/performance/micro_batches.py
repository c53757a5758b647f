"""Processor time of trainings with `micro_batches` 4, which ranks may divide, against 1, the passes of one process.

Both trainings of a task have the same seed and take turns, a rollout with its update each; a first one warms up. The
time is that of this process, so programs in the sandbox do not count. Writes micro_batches.json.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from benchmarks.reports.tables import show_records
from benchmarks.runner.files import write_result
from benchmarks.runner.options import Count
from poad_sb3 import POAD, TWOSOME
from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm
from poad_sb3.vec_env.make_envs import make_envs


class Workload(NamedTuple):
    """A training.

    Attributes:
        method: Algorithm that trains.
        env_id: Id of the task.
        n_steps: Steps of each environment in a rollout.
        settings: Further arguments of the algorithm.
    """

    method: type[LLMOnPolicyAlgorithm]
    env_id: str
    n_steps: int
    settings: Mapping[str, Any] = MappingProxyType({})


CODE = {
    "action_sampling": "free",
    "max_new_tokens": 64,
    "policy_kwargs": {"model": "pocket-coder"},
}
WORKLOADS = {
    "Tomato Salad": Workload(POAD, "Overcooked-TomatoSalad-v0", 16),
    "Tomato Lettuce Salad": Workload(POAD, "Overcooked-TomatoLettuceSalad-v0", 16),
    "Food Preparation": Workload(POAD, "VirtualHome-FoodPreparation-v0", 16),
    "Entertainment, TWOSOME": Workload(TWOSOME, "VirtualHome-Entertainment-v0", 16),
    "DataSciCoding, balance-scale": Workload(POAD, "DataSciCoding-balance-scale-v0", 4, CODE),
}


def measure(workload: Workload, n_envs: int, repeats: int) -> dict[str, float]:
    """Return the seconds of a rollout with its update, by number of micro-batches, and the median of their ratios."""
    seconds: dict[int, list[float]] = {1: [], 4: []}
    envs = {n: make_envs(workload.env_id, {}, n_envs) for n in seconds}
    settings = {"n_steps": workload.n_steps, "seed": 0, **workload.settings}
    models = {n: workload.method("LLMPolicy", envs[n], micro_batches=n, **settings) for n in seconds}
    for _ in range(1 + repeats):
        for n, model in models.items():
            started = time.process_time()
            model.learn(workload.n_steps * n_envs, reset_num_timesteps=False)
            seconds[n].append(time.process_time() - started)
    for env in envs.values():
        env.close()
    pairs = list(zip(seconds[1], seconds[4], strict=True))[1:]
    ratio = statistics.median(cut / whole for whole, cut in pairs)
    whole, cut = (statistics.median(one) for one in zip(*pairs, strict=True))
    return {"whole": round(whole, 3), "cut": round(cut, 3), "ratio": round(ratio, 3)}


def micro_batches(envs: Count = 8, repeats: Count = 5) -> None:
    """Measure the cost of four micro-batches."""
    torch.set_num_threads(1)
    rows = {}
    for name, workload in WORKLOADS.items():
        rows[name] = measure(workload, envs, repeats)
        print(f"{name}: {rows[name]}")
    write_result("micro_batches", {"envs": envs, "repeats": repeats, "tasks": rows})
    show_records("task", rows, ("whole", "cut", "ratio"))
