"""Training with a base in bfloat16 on a CPU, against float32.

POAD trains SmolLM2 on Tomato Salad, 8 environments and 32 steps, one epoch without a KL bound, in turns with each
setting on one thread. Shown are medians over the rollouts, each with its update: environment steps a second of
processor time, the ratio to float32 of the same turn, microseconds for a token position (forward or backward), and the
largest error of a first ratio. Beside them the speed of one matrix product of the model's size.

    python -m benchmarks measure bfloat16
    ONEDNN_MAX_CPU_ISA=AVX2 python -m benchmarks measure bfloat16 --rollouts 0    # as on processors without avx512_bf16

Writes bfloat16.json, unless `--rollouts 0` leaves the trainings out.
"""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import Annotated, Any

import torch
import typer
from stable_baselines3.common.callbacks import CallbackList

from benchmarks.files import write_result
from benchmarks.performance.our_loop import PositionCounter
from benchmarks.performance.timing import in_turns, milliseconds
from benchmarks.reports.tables import show_records
from poad_sb3 import POAD
from poad_sb3.language_model.loading import DTYPES
from poad_sb3.vec_env.make_envs import make_envs

SETTINGS: dict[str, dict[str, Any]] = {
    "float32": {},
    "bfloat16": {"dtype": "bfloat16"},
    "bfloat16, eager": {"dtype": "bfloat16", "attn_implementation": "eager"},
}
_ROWS, _INPUTS, _OUTPUTS = 512, 576, 1536
"""Sizes of the matrix product: tokens of a pass, and the first matrix of an MLP of SmolLM2."""
_REPEATS = 25


class Training:
    """A training that is run one rollout and update at a time.

    Args:
        model: `model` of the policy.
        settings: Other arguments of the policy.
    """

    def __init__(self, model: str, settings: dict[str, Any]) -> None:
        self.algorithm = POAD(
            "LLMPolicy", make_envs("Overcooked-TomatoSalad-v0", {}, 8), n_steps=32, batch_size=64, n_epochs=1,
            temperature=4.0, learning_rate=1e-3, target_kl=None, seed=0, device="cpu",
            policy_kwargs={"model": model, **settings},
        )  # fmt: skip
        self._counter = PositionCounter(self.algorithm.policy.lm.base)
        _, self._callback = self.algorithm._setup_learn(10**9, CallbackList([]))

    def turn(self) -> dict[str, float]:
        """Run a rollout and its update; return their cost."""
        algorithm = self.algorithm
        assert algorithm.env is not None
        rollout = (algorithm.env, self._callback, algorithm.rollout_buffer, algorithm.n_steps)
        seconds = (milliseconds(partial(algorithm.collect_rollouts, *rollout)) + milliseconds(algorithm.train)) / 1e3
        logged = algorithm.logger.name_to_value
        return {
            "steps_per_second": algorithm.n_steps * algorithm.n_envs / seconds,
            "us_per_position": 1e6 * seconds / sum(self._counter.take()),
            "first_ratio_error": float(logged["train/first_ratio_error"]),
        }


def product_speed() -> dict[str, float]:
    """Measure a matrix product in each dtype, in GFLOP/s."""
    inputs, weight = torch.randn(_ROWS, _INPUTS), torch.randn(_OUTPUTS, _INPUTS)
    speeds = {}
    for name, dtype in DTYPES.items():
        multiply = partial(torch.matmul, inputs.to(dtype), weight.to(dtype).T)
        times = [milliseconds(multiply) for _ in range(_REPEATS)]
        speeds[name] = round(2e-6 * _ROWS * _INPUTS * _OUTPUTS / median(times), 1)
    return speeds


def summarize(turns: dict[str, list[dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Return the medians of each setting, and the median ratio of its speed to float32's in the same turn."""
    rows = {}
    for name, costs in turns.items():
        pairs = zip(costs, turns["float32"], strict=True)
        rows[name] = {
            "steps_per_second": round(median(cost["steps_per_second"] for cost in costs), 2),
            "times_float32": round(median(a["steps_per_second"] / b["steps_per_second"] for a, b in pairs), 2),
            "us_per_position": round(median(cost["us_per_position"] for cost in costs), 1),
            "first_ratio_error": max(cost["first_ratio_error"] for cost in costs),
        }
    return rows


def bfloat16(
    rollouts: Annotated[int, typer.Option(min=0, help="Rollouts of each setting.")] = 6,
    model: Annotated[str, typer.Option(help="`model` of the policy.")] = "smollm2",
) -> None:
    """Compare trainings in bfloat16 and in float32 on a CPU."""
    torch.set_num_threads(1)
    speeds = product_speed()
    show_records("dtype", {name: {"GFLOP/s": speed} for name, speed in speeds.items()}, ("GFLOP/s",))
    if not rollouts:
        return
    turns = in_turns({name: Training(model, settings).turn for name, settings in SETTINGS.items()}, rollouts)
    rows = summarize(turns)
    show_records("setting", rows, tuple(rows["float32"]))
    result = {"model": model, "rollouts": rollouts, "gflops": speeds, "settings": rows, "turns": turns}
    typer.echo(write_result("bfloat16", result))
