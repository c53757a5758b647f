"""The learning studies: POAD with its defaults on the four training tasks, several seeds each.

python -m benchmarks.learning [--tasks tomato_salad ...] [--seeds 0 1 2] [--workers 2]

Writes results/learning_<task>.json and .png. The defaults were tuned on other seeds (docs/decisions.md).
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console

from benchmarks.environment import RESULTS, describe_machine
from benchmarks.evaluation import (
    discount_of,
    model_agent,
    oracle_agent,
    play,
    random_agent,
    summarize,
)
from benchmarks.training import Curve, plot_curves, train

__all__ = ["STUDIES", "Study"]


class Study(NamedTuple):
    """A task and the environment steps that a run on it may take."""

    env_id: str
    steps: int


STUDIES: dict[str, Study] = {
    "tomato_salad": Study("Overcooked-TomatoSalad-v0", 10_000),
    "tomato_lettuce_salad": Study("Overcooked-TomatoLettuceSalad-v0", 40_000),
    "food_preparation": Study("VirtualHome-FoodPreparation-v0", 10_000),
    "entertainment": Study("VirtualHome-Entertainment-v0", 30_000),
}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="POAD on the four training tasks.")
    parser.add_argument("--tasks", nargs="+", choices=STUDIES, default=list(STUDIES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--workers", type=int, default=1, help="runs at a time, one thread each")
    options = parser.parse_args()
    console = Console()
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        runs = {name: [pool.submit(_run, STUDIES[name], seed) for seed in options.seeds] for name in options.tasks}
        for name, futures in runs.items():
            _write(name, STUDIES[name], [future.result() for future in futures], console)


class _Run(NamedTuple):
    curve: Curve
    final: dict[str, Any]


def _run(study: Study, seed: int) -> _Run:
    torch.set_num_threads(1)
    model, curve = train(study.env_id, study.steps, seed, eval_every=study.steps // 10, eval_episodes=50)
    return _Run(curve, summarize(play(study.env_id, model_agent(model), 200, seed=1))._asdict())


def _write(name: str, study: Study, runs: list[_Run], console: Console) -> None:
    references = {
        "oracle": summarize(play(study.env_id, oracle_agent(), 2)),
        "random": summarize(play(study.env_id, random_agent(np.random.default_rng((0, 1))), 1000)),
    }
    rows = [_row(run) for run in runs]
    for row in rows:
        console.print(name, row | {"curve": "..."})
    lines = {agent: summary.mean_return for agent, summary in references.items()}
    title = f"POAD on {study.env_id}, pocket model"
    label = f"return, discounted {discount_of(study.env_id)} per move"
    RESULTS.mkdir(exist_ok=True)
    plot_curves([run.curve for run in runs], lines, title, RESULTS / f"learning_{name}.png", label)
    result = {
        **describe_machine(),
        "env": study.env_id,
        "steps": study.steps,
        "discount": discount_of(study.env_id),
        "references": {agent: summary._asdict() for agent, summary in references.items()},
        "runs": rows,
    }
    (RESULTS / f"learning_{name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _row(run: _Run) -> dict[str, object]:
    curve = run.curve
    return {
        "seed": curve.seed,
        "final": run.final,
        "train_seconds": round(curve.train_seconds, 1),
        "largest_first_ratio_error": curve.first_ratio_error,
        "curve": [
            {"steps": steps, "return": round(one.mean_return, 4), "success": one.success_rate}
            for steps, one in zip(curve.steps, curve.summaries, strict=True)
        ],
    }


if __name__ == "__main__":
    main()
