"""POAD on KeyToken with other discounts inside actions: what training makes of the gap of `benchmarks.theory`.

python -m benchmarks.keytoken [--seeds 0 1] [--workers 2]

Actions of 2 words up to a greatest length, of different lengths, so that discounting inside them changes which is
best. Everything but `gamma_token` is the default. Writes results/keytoken.json and .png. The share of orders carried
out right is that of sampled episodes after training.
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, NamedTuple

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np
import torch
from rich.console import Console

from benchmarks.environment import RESULTS, describe_machine
from lang_envs.wrappers import TextAction
from poad_sb3 import POAD

__all__ = ["GAMMA_TOKENS", "LENGTHS", "Cell"]

ENV_ID = "KeyToken-v0"
GAMMA_TOKENS = (1.0, 0.95, 0.9, 0.8, 0.5)
LENGTHS = (2, 8, 32, 64)
STEPS, EPISODES = 2_048, 60


class Cell(NamedTuple):
    """One run."""

    n_tokens: int
    gamma_token: float
    seed: int


def _make(n_tokens: int) -> gym.Env[Any, Any]:
    return gym.make(ENV_ID, n_tokens=n_tokens, key_position=0, variable_lengths=n_tokens > 2)


def _train(cell: Cell) -> dict[str, Any]:
    torch.set_num_threads(1)
    env = _make(cell.n_tokens)
    model = POAD("LLMPolicy", env, gamma_token=cell.gamma_token, seed=cell.seed).learn(STEPS)
    talking, returns = TextAction(_make(cell.n_tokens)), []
    for episode in range(EPISODES):
        text, info = talking.reset(seed=10_000 + episode)
        total, over = 0.0, False
        while not over:
            tokens, _ = model.predict(text, admissible_actions=info["admissible_actions"])
            action = model.action_space.decode(tokens)
            text, reward, terminated, truncated, info = talking.step(action)
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    return {**cell._asdict(), "mean_return": round(float(np.mean(returns)), 4)}


def _plot(rows: list[dict[str, Any]]) -> None:
    figure, axes = plt.subplots(figsize=(7, 4.2), dpi=120)
    for gamma_token in GAMMA_TOKENS:
        own = [one for one in rows if one["gamma_token"] == gamma_token]
        means = [np.mean([one["mean_return"] for one in own if one["n_tokens"] == n]) for n in LENGTHS]
        axes.plot(LENGTHS, means, marker="o", markersize=4, label=f"gamma_token = {gamma_token:g}")
    axes.axhline(0.2, color="0.35", linestyle=":", linewidth=1.2, label="uniform")
    axes.set(
        xlabel="greatest number of words of an action",
        ylabel="share of orders carried out right",
        title=f"POAD after {STEPS:,} steps of {ENV_ID}, {len({one['seed'] for one in rows})} seed(s)",
        xscale="log",
        ylim=(0, 1.02),
    )
    axes.set_xticks(LENGTHS, [str(n) for n in LENGTHS])
    axes.minorticks_off()
    axes.legend(fontsize=8)
    axes.grid(alpha=0.25)
    figure.tight_layout()
    figure.savefig(RESULTS / "keytoken.png")
    plt.close(figure)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="POAD on KeyToken with discounts inside actions.")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--workers", type=int, default=1, help="runs at a time, one thread each")
    options = parser.parse_args()
    console = Console()
    cells = [Cell(n, gamma, seed) for seed in options.seeds for n in LENGTHS for gamma in GAMMA_TOKENS]
    rows = []
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        for row in pool.map(_train, cells):
            rows.append(row)
            console.print(row)
    result = {**describe_machine(), "env": ENV_ID, "steps": STEPS, "episodes": EPISODES, "cells": rows}
    (RESULTS / "keytoken.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    _plot(rows)


if __name__ == "__main__":
    main()
