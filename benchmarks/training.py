"""Train a model and watch it: the loop that the demo and the studies share."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from benchmarks.evaluation import Summary, play, policy_agent, summarize
from poad_sb3 import POAD
from poad_sb3.on_policy import LLMOnPolicyAlgorithm

__all__ = ["Curve", "FirstRatioWatch", "plot_curves", "train"]

_EVALUATION_SEED = 10_000


class Curve(NamedTuple):
    """Evaluations during one training run: steps, and a summary at each.

    Attributes:
        seed: Of the run.
        steps: Environment steps at the evaluations.
        summaries: What they found.
        train_seconds: Wall time without the evaluations.
        cpu_seconds: Processor time, likewise; on one thread, the wall time of a machine with nothing else to do.
        first_ratio_error: The largest of all updates; None if one of them was no number.
    """

    seed: int
    steps: list[int]
    summaries: list[Summary]
    train_seconds: float
    cpu_seconds: float
    first_ratio_error: float | None


class FirstRatioWatch(BaseCallback):
    """Keeps the largest first-minibatch ratio error of a training run."""

    def __init__(self) -> None:
        super().__init__()
        self._largest = 0.0

    @property
    def largest_ratio_error(self) -> float | None:
        """None if one of them was no number."""
        return self._largest if np.isfinite(self._largest) else None

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        self._note()

    def _on_training_end(self) -> None:
        self._note()

    def _note(self) -> None:
        logged = self.logger.name_to_value.get("train/first_ratio_error", 0.0)
        self._largest = float(np.maximum(self._largest, logged))  # unlike max() it keeps NaN


class _Watch(FirstRatioWatch):
    """Evaluates at rollout boundaries too."""

    def __init__(self, env_id: str, env_kwargs: Mapping[str, Any], every: int, n_episodes: int) -> None:
        super().__init__()
        self.env_id, self.env_kwargs, self.every, self.n_episodes = env_id, env_kwargs, every, n_episodes
        self.steps: list[int] = []
        self.summaries: list[Summary] = []
        self.evaluation_seconds = self.evaluation_cpu_seconds = 0.0

    def _on_rollout_start(self) -> None:
        super()._on_rollout_start()
        if not self.steps or self.num_timesteps - self.steps[-1] >= self.every:
            self.evaluate()

    def _on_training_end(self) -> None:
        super()._on_training_end()
        if not self.steps or self.num_timesteps > self.steps[-1]:
            self.evaluate()

    def evaluate(self) -> None:
        started, worked = time.perf_counter(), time.process_time()
        assert isinstance(self.model, LLMOnPolicyAlgorithm)
        # Seeded by itself: training draws the same random numbers however often it is watched.
        agent = policy_agent(self.model)
        episodes = play(self.env_id, agent, self.n_episodes, seed=_EVALUATION_SEED, env_kwargs=self.env_kwargs)
        self.steps.append(self.num_timesteps)
        self.summaries.append(summarize(episodes))
        self.evaluation_seconds += time.perf_counter() - started
        self.evaluation_cpu_seconds += time.process_time() - worked


def train(
    env_id: str,
    steps: int,
    seed: int,
    *,
    eval_every: int,
    eval_episodes: int,
    env_kwargs: Mapping[str, Any] = MappingProxyType({}),
    progress_bar: bool = False,
    algorithm: type[LLMOnPolicyAlgorithm] = POAD,
    **arguments: Any,  # noqa: ANN401 - of the algorithm
) -> tuple[LLMOnPolicyAlgorithm, Curve]:
    """Train with the defaults (the pocket setting), or with other arguments.

    Args:
        env_id: The task.
        steps: Environment steps; with 0 the untrained model is evaluated.
        seed: Of everything random in training.
        eval_every: Steps between two evaluations, at the ends of rollouts.
        eval_episodes: Of each evaluation; actions are sampled.
        env_kwargs: Arguments of `gym.make`.
        progress_bar: Whether one is shown.
        algorithm: What trains.
        **arguments: Of the algorithm.

    Returns:
        The model and its curve; its times exclude the evaluations.
    """
    model = algorithm("LLMPolicy", gym.make(env_id, **env_kwargs), seed=seed, **arguments)
    watch = _Watch(env_id, env_kwargs, eval_every, eval_episodes)
    started, worked = time.perf_counter(), time.process_time()
    model.learn(steps, callback=watch, progress_bar=progress_bar)
    seconds = time.perf_counter() - started - watch.evaluation_seconds
    cpu = time.process_time() - worked - watch.evaluation_cpu_seconds
    return model, Curve(seed, watch.steps, watch.summaries, seconds, cpu, watch.largest_ratio_error)


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
