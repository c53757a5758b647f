"""Steps that every method needs to learn MultiKey with one key.

One decision an episode, one slot, two words: all settings but the method are its defaults, with the pocket model.
Learned is a mean return of 0.9 of the optimum over the last 100 episodes of training, which are sampled. Writes
multikey_learning.json.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import gymnasium as gym
import numpy as np
import torch
import typer
from stable_baselines3.common.callbacks import BaseCallback

import poad_sb3
from benchmarks.files import write_result
from benchmarks.options import parse_seeds
from benchmarks.reports.tables import show_table
from poad_sb3.presets import ALGORITHMS

ENV_ID, KWARGS = "MultiKey-v0", {"k": 1, "d": 0, "horizon": 1}
STEPS, LEARNED, EPISODES = 8_192, 0.9, 100
METHODS = tuple(name for name in ALGORITHMS if name != "GLAM")  # with one word an action it is TWOSOME


class _Learned(BaseCallback):
    """Stops a training that has learned, and reads the log of its updates."""

    def __init__(self) -> None:
        super().__init__()
        self.returns: list[float] = []
        self.steps: int | None = None
        self.ratio_errors: list[float] = []

    def _on_rollout_start(self) -> None:
        logged = self.model.logger.name_to_value  # of the update before, not written yet
        if "train/first_ratio_error" in logged:
            self.ratio_errors.append(float(logged["train/first_ratio_error"]))

    def _on_step(self) -> bool:
        self.returns += [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        if len(self.returns) >= EPISODES and np.mean(self.returns[-EPISODES:]) >= LEARNED:
            self.steps = self.num_timesteps
        return self.steps is None


def run(method: str, seed: int) -> dict[str, Any]:
    """Train one method with one seed until it has learned, or for `STEPS` steps."""
    torch.set_num_threads(1)
    model = getattr(poad_sb3, method)("LLMPolicy", gym.make(ENV_ID, **KWARGS), seed=seed)
    learned = _Learned()
    model.learn(STEPS, callback=learned)
    error = max(learned.ratio_errors)
    return {"method": method, "seed": seed, "steps": learned.steps, "first_ratio_error": error}


HEAD = ("method", "steps of each seed", "largest first-ratio error")


def learning_rows(runs: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a table with the head `HEAD`, one for each method."""
    for name in dict.fromkeys(training["method"] for training in runs):
        chosen = [training for training in runs if training["method"] == name]
        steps = ", ".join(str(training["steps"] or f"> {STEPS:,}") for training in chosen)
        yield name, steps, f"{max(training['first_ratio_error'] for training in chosen):.0e}"


def multikey_learning(seeds: Annotated[str, typer.Option(metavar="N,N")] = "0,1,2") -> None:
    """Train every method on MultiKey with one key."""
    rows = [run(name, seed) for seed in parse_seeds(seeds) for name in METHODS]
    show_table(HEAD, learning_rows(rows))
    settings = {"env": ENV_ID, "env_kwargs": KWARGS, "steps": STEPS, "learned": LEARNED, "episodes": EPISODES}
    write_result("multikey_learning", {**settings, "runs": rows})
