"""The learning study: POAD with its defaults on Tomato Salad, several seeds.

python -m benchmarks.tomato_salad [--steps 10000] [--seeds 0 1 2]

Writes results/tomato_salad.json and .png. The defaults were tuned on other seeds (docs/decisions.md).
"""

from __future__ import annotations

import argparse
import json

import numpy as np
from rich.console import Console

from benchmarks.environment import RESULTS, describe_machine
from benchmarks.evaluation import model_agent, oracle_agent, play, random_agent, summarize
from benchmarks.training import Curve, plot_curves, train

ENV_ID = "Overcooked-TomatoSalad-v0"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="POAD on Tomato Salad.")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    console = Console()
    references = {
        "oracle": summarize(play(ENV_ID, oracle_agent(), 2)),
        "random": summarize(play(ENV_ID, random_agent(np.random.default_rng(0)), 1000)),
    }
    curves, rows = [], []
    for seed in options.seeds:
        model, curve = train(ENV_ID, options.steps, seed, eval_every=1000, eval_episodes=50)
        final = summarize(play(ENV_ID, model_agent(model), 200, seed=1))
        curves.append(curve)
        rows.append(_row(curve, final._asdict()))
        console.print(rows[-1] | {"curve": "..."})
    RESULTS.mkdir(exist_ok=True)
    lines = {name: summary.mean_return for name, summary in references.items()}
    plot_curves(
        curves, lines, f"POAD on Tomato Salad, pocket model, {options.steps} steps", RESULTS / "tomato_salad.png"
    )
    result = {
        **describe_machine(),
        "env": ENV_ID,
        "steps": options.steps,
        "references": {name: summary._asdict() for name, summary in references.items()},
        "runs": rows,
    }
    (RESULTS / "tomato_salad.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _row(curve: Curve, final: dict[str, object]) -> dict[str, object]:
    return {
        "seed": curve.seed,
        "final": final,
        "train_seconds": round(curve.train_seconds, 1),
        "largest_first_ratio_error": curve.first_ratio_error,
        "curve": [
            {"steps": steps, "return": round(one.mean_return, 4), "success": one.success_rate}
            for steps, one in zip(curve.steps, curve.summaries, strict=True)
        ],
    }


if __name__ == "__main__":
    main()
