"""POAD on KeyToken with other discounts inside actions: the effect of the gap on training.

The gap is that of `theory`.

Actions of 2 words up to a greatest length, of different lengths, so that discounting inside them changes the best one.
All settings but `gamma_token` are the defaults. Writes keytoken.json and .png. The share of orders carried out right is
that of sampled episodes after training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Annotated, Any

import gymnasium as gym
import numpy as np
import torch
import typer
from matplotlib.figure import Figure

from benchmarks.agents.policy import PolicyAgent
from benchmarks.reports.plots import style
from benchmarks.runner.evaluation import play
from benchmarks.runner.files import write_picture, write_result
from benchmarks.runner.machine import RESULTS
from benchmarks.runner.options import parse_seeds
from poad_sb3 import POAD

ENV_ID = "KeyToken-v0"
GAMMA_TOKENS = (1.0, 0.95, 0.9, 0.8, 0.5)
LENGTHS = (2, 8, 32, 64)
STEPS, EPISODES = 2_048, 60


def _train(n_tokens: int, gamma_token: float, seed: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    kwargs = {"n_tokens": n_tokens, "key_position": 0, "variable_lengths": n_tokens > 2}
    model = POAD("LLMPolicy", gym.make(ENV_ID, **kwargs), gamma_token=gamma_token, seed=seed).learn(STEPS)
    played = play(ENV_ID, PolicyAgent.of(model), EPISODES, seed=10_000, env_kwargs=kwargs)
    mean_return = round(float(np.mean([summary.episode_return for summary in played])), 4)
    return {"n_tokens": n_tokens, "gamma_token": gamma_token, "seed": seed, "mean_return": mean_return}


@style()
def draw(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Share of orders carried out right, by length and `gamma_token`."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    for gamma_token in GAMMA_TOKENS:
        chosen = [row for row in rows if row["gamma_token"] == gamma_token]
        means = [np.mean([row["mean_return"] for row in chosen if row["n_tokens"] == n]) for n in LENGTHS]
        axes.plot(LENGTHS, means, marker="o", markersize=4, label=f"gamma_token = {gamma_token:g}")
    axes.axhline(0.2, color="0.35", linestyle=":", linewidth=1.2, label="uniform")
    axes.set(
        xlabel="greatest number of words of an action",
        ylabel="share of orders carried out right",
        title=f"POAD after {STEPS:,} steps of {ENV_ID}, {len({row['seed'] for row in rows})} seed(s)",
        xscale="log",
        ylim=(0, 1.02),
    )
    axes.set_xticks(LENGTHS, [str(n) for n in LENGTHS])
    axes.minorticks_off()
    axes.legend(fontsize=8)
    return figure


def keytoken(
    seeds: Annotated[str, typer.Option(metavar="N,N")] = "0,1",
    workers: Annotated[int, typer.Option(min=1, help="Runs at a time, one thread each.")] = 1,
) -> None:
    """Train POAD on KeyToken with discounts inside actions."""
    cells = [(n, gamma, seed) for seed in parse_seeds(seeds) for n in LENGTHS for gamma in GAMMA_TOKENS]
    rows = []
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for row in pool.map(_train, *zip(*cells, strict=True)):
            rows.append(row)
            print(row)
    write_result("keytoken", {"env": ENV_ID, "steps": STEPS, "episodes": EPISODES, "cells": rows})
    write_picture(RESULTS / "keytoken.png", draw(rows))
