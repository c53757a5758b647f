"""Four methods on Food Preparation by the same policy: what credit alone is worth.

python -m benchmarks.methods tune --seeds 101 102 --workers 2      # learning rates of every method
python -m benchmarks.methods run --seeds 0 1 2 3 4 --workers 2     # with the rates that did best
python -m benchmarks.methods report                                # results/methods.json and .png of all pieces

All act by the softmax over candidates that TWOSOME samples from, so they differ in credit: POAD (BAD), NTPO and ARCHER
(token credit that discounts inside an action), TWOSOME (none inside). Every method is tuned over the same learning
rates on the same seeds, none of which is reported. Every run is a piece in results/methods and is not repeated.
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from scipy import stats

from benchmarks.environment import RESULTS, describe_machine
from benchmarks.training import train
from poad_sb3 import ARCHER, NTPO, POAD, TWOSOME
from poad_sb3.on_policy import LLMOnPolicyAlgorithm

__all__ = ["METHODS", "area", "interval"]

ENV_ID = "VirtualHome-FoodPreparation-v0"
STEPS = 4_000
EVAL_EVERY, EVAL_EPISODES = 1_000, 50
METHODS: dict[str, type[LLMOnPolicyAlgorithm]] = {"POAD": POAD, "NTPO": NTPO, "TWOSOME": TWOSOME, "ARCHER": ARCHER}
RATES = (5e-4, 1e-3, 2e-3)
PIECES = RESULTS / "methods"
TUNING = PIECES / "tuning"


def area(steps: list[int], returns: list[float]) -> float:
    """Mean height of a learning curve: the area under it divided by its width (trapezoids)."""
    return float(np.trapezoid(returns, steps) / (steps[-1] - steps[0]))


def interval(values: list[float]) -> tuple[float, float]:
    """95% interval of the mean by Student's t; the value itself where there is one."""
    if len(values) < 2:
        return values[0], values[0]
    half = float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5)
    return float(np.mean(values)) - half, float(np.mean(values)) + half


def _run(method: str, rate: float, seed: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    _, curve = train(
        ENV_ID,
        STEPS,
        seed,
        eval_every=EVAL_EVERY,
        eval_episodes=EVAL_EPISODES,
        algorithm=METHODS[method],
        action_sampling="candidates",
        learning_rate=rate,
    )
    returns = [one.mean_return for one in curve.summaries]
    return {
        "method": method,
        "learning_rate": rate,
        "seed": seed,
        "area": round(area(curve.steps, returns), 4),
        "steps": curve.steps,
        "returns": [round(one, 4) for one in returns],
        "success": [one.success_rate for one in curve.summaries],
        "train_seconds": round(curve.train_seconds, 1),
        "largest_first_ratio_error": curve.first_ratio_error,
    }


def _write(path: Path, content: Any) -> None:  # noqa: ANN401 - of JSON
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    draft.replace(path)


class _Job(NamedTuple):
    method: str
    rate: float
    seed: int
    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / f"{self.method.lower()}_{self.rate:g}_{self.seed}.json"


def _piece(job: _Job) -> dict[str, Any]:
    if not job.path.exists():
        _write(job.path, {**describe_machine(), "env": ENV_ID, **_run(job.method, job.rate, job.seed)})
    piece: dict[str, Any] = json.loads(job.path.read_text(encoding="utf-8"))
    return piece


def _all(jobs: list[_Job], workers: int, console: Console) -> None:
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for job, piece in zip(jobs, pool.map(_piece, jobs), strict=True):
            console.print(f"{job.method} {job.rate:g} seed {job.seed}: area {piece['area']}", piece["returns"])


def tune(seeds: list[int], workers: int, console: Console) -> None:
    """Every learning rate of every method on every seed."""
    _all([_Job(method, rate, seed, TUNING) for seed in seeds for rate in RATES for method in METHODS], workers, console)


def best_rates() -> dict[str, float]:
    """For each method the learning rate with the largest mean area on the tuning seeds.

    Raises:
        ValueError: Unless every rate of every method was tried on the same seeds: an equal budget.
    """
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(TUNING.glob("*.json"))]
    areas: dict[tuple[str, float], dict[int, float]] = {(name, rate): {} for name in METHODS for rate in RATES}
    for one in runs:
        areas[one["method"], one["learning_rate"]][one["seed"]] = one["area"]
    tried = {key: sorted(by_seed) for key, by_seed in areas.items()}
    if len({tuple(seeds) for seeds in tried.values()}) != 1 or not all(tried.values()):
        raise ValueError(f"Expected all rates of all methods on the same seeds; got {tried}. Fix: tune first.")
    mean = {key: float(np.mean(list(by_seed.values()))) for key, by_seed in areas.items()}
    return {name: max(RATES, key=lambda rate, name=name: mean[name, rate]) for name in METHODS}


def run(seeds: list[int], workers: int, console: Console) -> None:
    """The reported runs."""
    _all(
        [_Job(method, rate, seed, PIECES) for seed in seeds for method, rate in best_rates().items()], workers, console
    )


def report(console: Console) -> None:
    """Put the pieces together."""
    best = best_rates()
    pieces = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(PIECES.glob("*.json"))]
    pieces = [one for one in pieces if one["learning_rate"] == best[one["method"]]]
    rows = {}
    table = Table(
        "method", "learning rate", "seeds", "untrained", "area under the curve", "95 %", "final return", title=ENV_ID
    )
    for method in METHODS:
        own = [piece for piece in pieces if piece["method"] == method]
        if not own:
            continue
        areas = [piece["area"] for piece in own]
        low, high = interval(areas)
        finals = [piece["returns"][-1] for piece in own]
        untrained = float(np.mean([piece["returns"][0] for piece in own]))
        rows[method] = {
            "learning_rate": own[0]["learning_rate"],
            "seeds": [piece["seed"] for piece in own],
            "untrained": round(untrained, 4),
            "area": round(float(np.mean(areas)), 4),
            "interval": [round(low, 4), round(high, 4)],
            "final": round(float(np.mean(finals)), 4),
            "areas": areas,
        }
        table.add_row(
            method,
            f"{own[0]['learning_rate']:g}",
            str(len(own)),
            f"{untrained:.3f}",
            f"{np.mean(areas):.3f}",
            f"{low:.3f} to {high:.3f}",
            f"{np.mean(finals):.3f}",
        )
    console.print(table)
    _write(RESULTS / "methods.json", {**describe_machine(), "env": ENV_ID, "steps": STEPS, "methods": rows})
    _plot(pieces)


def _plot(pieces: list[dict[str, Any]]) -> None:
    figure, axes = plt.subplots(figsize=(7, 4.2), dpi=120)
    for method in METHODS:
        own = [piece for piece in pieces if piece["method"] == method]
        if not own:
            continue
        shortest = min(len(piece["steps"]) for piece in own)
        returns = np.array([piece["returns"][:shortest] for piece in own])
        bands = np.array([interval(list(column)) for column in returns.T])
        steps = own[0]["steps"][:shortest]
        axes.plot(steps, returns.mean(0), marker="o", markersize=3, label=f"{method}, {len(own)} seeds")
        axes.fill_between(steps, bands[:, 0], bands[:, 1], alpha=0.15)
    axes.set(
        xlabel="environment steps (actions)", ylabel="return, sampled", title=f"{ENV_ID}, pocket model, same policy"
    )
    axes.legend(loc="lower right", fontsize=8)
    axes.grid(alpha=0.25)
    figure.tight_layout()
    figure.savefig(RESULTS / "methods.png")
    plt.close(figure)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Four methods by the same policy on Food Preparation.")
    parser.add_argument("what", choices=("tune", "run", "report"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--workers", type=int, default=1, help="runs at a time, one thread each")
    options = parser.parse_args()
    console = Console()
    if options.what == "tune":
        tune(options.seeds, options.workers, console)
        console.print(best_rates())
        return
    if options.what == "run":
        run(options.seeds, options.workers, console)
    report(console)


if __name__ == "__main__":
    main()
