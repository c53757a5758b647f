"""Train a model and watch it: the loop that the demo and the learning study share."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from benchmarks.evaluation import Summary, model_agent, play, summarize
from poad_sb3 import POAD
from poad_sb3.on_policy import LLMOnPolicyAlgorithm

__all__ = ["Curve", "plot_curves", "train"]


class Curve(NamedTuple):
    """Evaluations during one training run: steps, and a summary at each."""

    seed: int
    steps: list[int]
    summaries: list[Summary]
    train_seconds: float
    first_ratio_error: float


class _Watch(BaseCallback):
    """Evaluates at rollout boundaries and keeps the largest first-minibatch ratio error."""

    def __init__(self, env_id: str, every: int, n_episodes: int) -> None:
        super().__init__()
        self.env_id, self.every, self.n_episodes = env_id, every, n_episodes
        self.steps: list[int] = []
        self.summaries: list[Summary] = []
        self.ratio_error = 0.0
        self.evaluation_seconds = 0.0

    def _on_rollout_start(self) -> None:
        self._note_ratio_error()
        if not self.steps or self.num_timesteps - self.steps[-1] >= self.every:
            self.evaluate()

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        self._note_ratio_error()
        self.evaluate()

    def _note_ratio_error(self) -> None:
        logged = self.logger.name_to_value.get("train/first_ratio_error", 0.0)
        self.ratio_error = max(self.ratio_error, float(logged))

    def evaluate(self) -> None:
        started = time.perf_counter()
        assert isinstance(self.model, LLMOnPolicyAlgorithm)
        episodes = play(self.env_id, model_agent(self.model), self.n_episodes, seed=10_000)
        self.steps.append(self.num_timesteps)
        self.summaries.append(summarize(episodes))
        self.evaluation_seconds += time.perf_counter() - started


def train(
    env_id: str,
    steps: int,
    seed: int,
    *,
    eval_every: int,
    eval_episodes: int,
    progress_bar: bool = False,
    algorithm: type[LLMOnPolicyAlgorithm] = POAD,
    **arguments: Any,  # noqa: ANN401 - of the algorithm
) -> tuple[LLMOnPolicyAlgorithm, Curve]:
    """Train with the defaults (the pocket setting), or with other arguments.

    Returns:
        The model and its curve; `train_seconds` excludes the evaluations.
    """
    model = algorithm("LLMPolicy", gym.make(env_id), seed=seed, **arguments)
    watch = _Watch(env_id, eval_every, eval_episodes)
    started = time.perf_counter()
    model.learn(steps, callback=watch, progress_bar=progress_bar)
    seconds = time.perf_counter() - started - watch.evaluation_seconds
    return model, Curve(seed, watch.steps, watch.summaries, seconds, watch.ratio_error)


def plot_curves(curves: list[Curve], lines: dict[str, float], title: str, path: Path, label: str) -> None:
    """Mean discounted return against environment steps, a line and a 95% band for each run."""
    figure, axes = plt.subplots(figsize=(7, 4.2), dpi=120)
    for curve in curves:
        low, high = np.array([summary.return_interval for summary in curve.summaries]).T
        means = [summary.mean_return for summary in curve.summaries]
        axes.plot(curve.steps, means, label=f"POAD, seed {curve.seed}")
        axes.fill_between(curve.steps, low, high, alpha=0.18)
    axes.fill_between([], [], [], color="0.5", alpha=0.25, label="95% interval of the mean")
    for (name, value), style in zip(lines.items(), ("--", ":", "-."), strict=False):
        axes.axhline(value, color="0.35", linestyle=style, linewidth=1.2, label=f"{name} ({value:.2f})")
    axes.set(xlabel="environment steps (actions)", ylabel=label, title=title)
    axes.legend(loc="lower right", fontsize=8)
    axes.grid(alpha=0.25)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    plt.close(figure)
