"""`make demo`: train POAD on Tomato Salad with the pocket model, compare, and show.

python -m benchmarks.demo [--steps 5000] [--episodes 100] [--seed 0] [--out runs/demo]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.evaluation import Agent, Summary, model_agent, oracle_agent, play, random_agent, summarize
from benchmarks.training import plot_curves, train
from lang_envs.recording import record_gif
from poad_sb3 import POAD

ENV_ID = "Overcooked-TomatoSalad-v0"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Train POAD on Tomato Salad with the pocket model.")
    parser.add_argument("--steps", type=int, default=5_000, help="environment steps")
    parser.add_argument("--episodes", type=int, default=100, help="episodes for each row of the table")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="folder for curve, GIF and checkpoint")
    options = parser.parse_args()
    console = Console()
    if not console.is_terminal:
        console = Console(width=100)  # a log file has no width of its own
    console.print(f"Training POAD on {ENV_ID}: {options.steps} steps with the pocket model (0.9 M parameters).")

    untrained = POAD("LLMPolicy", ENV_ID, seed=options.seed)
    model, curve = train(ENV_ID, options.steps, options.seed, eval_every=640, eval_episodes=30, progress_bar=True)
    agents: dict[str, Agent] = {
        "random": random_agent(np.random.default_rng((options.seed, 1))),
        "untrained": model_agent(untrained),
        "POAD, sampled": model_agent(model),
        "POAD, greedy": model_agent(model, deterministic=True),
        "oracle": oracle_agent(),
    }
    results = {name: summarize(play(ENV_ID, agent, options.episodes)) for name, agent in agents.items()}
    console.print(_table(results))

    lines = {name: results[name].mean_return for name in ("oracle", "random")}
    plot_curves(
        [curve],
        lines,
        "POAD on Tomato Salad, pocket model",
        options.out / "learning_curve.png",
        "return, discounted 0.99 per move",
    )
    record_gif(ENV_ID, agents["POAD, greedy"], options.out / "episode.gif")
    model.save(options.out / "poad.zip")
    console.print(f"Training took {curve.train_seconds:.0f} s (without the evaluations along the way).")
    for name in ("learning_curve.png", "episode.gif", "poad.zip"):
        console.print(f"  {options.out / name}")


def _table(results: dict[str, Summary]) -> Table:
    first = next(iter(results.values()))
    table = Table(title=f"{ENV_ID}: {first.n_episodes} episodes, return discounted 0.99 per move")
    table.add_column("agent", no_wrap=True)
    for heading in ("mean return", "95% interval", "success", "95% interval", "actions", "moves"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, one in results.items():
        low, high = one.return_interval
        varies = low < high
        table.add_row(
            name,
            f"{one.mean_return:.3f}",
            f"[{low:.3f}, {high:.3f}]" if varies else "-",
            f"{one.success_rate:.0%}",
            "[{:.0%}, {:.0%}]".format(*one.success_interval) if varies else "-",
            f"{one.mean_actions:.1f}",
            f"{one.mean_moves:.1f}",
        )
    table.caption = (
        "- : greedy and oracle play the same episode every time. POAD discounts 0.95 per action, not 0.99 per move, "
        "so its best plan may take a few moves more than the oracle's."
    )
    return table


if __name__ == "__main__":
    main()
