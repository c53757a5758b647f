"""Where the time of a training on code goes, and what groups save of it: `python -m benchmarks.overlap`.

The same short training on DataSciCoding, three times: environments one after the other, all of them at once, and in two
groups that take turns with the model. Interleaved, medians of several; every training has the same seed. What share of
the rewards is that of the first training is recorded too: all of them in the first two layouts, and in the third but
for random numbers on the edge between two tokens, where rounding decides (rows decode in other company). Writes
results/overlap.json and results/overlap.png.

The pocket model knows no Python, and a text that is no program costs nothing to evaluate. So what it says is replaced
by one of a few programs, chosen by the text; they run in the sandbox, on all splits, without the cache. What the model
does costs what it costs in a real training: it writes as many tokens, and learns from them.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from operator import eq
from typing import Any

import gymnasium as gym
import matplotlib.pyplot as plt
import torch
from rich.console import Console
from rich.table import Table
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv

from benchmarks.environment import RESULTS, describe_machine
from poad_sb3 import NTPO
from poad_sb3.env_groups import make_env_groups

ENV_ID = "DataSciCoding-balance-scale-v0"
PARTS = {
    "acting": ("model: acting", "#2f6f8f"),
    "values": ("model: values", "#3a9a6f"),
    "update": ("model: update", "#d9a326"),
    "env": ("waiting for environments", "#a02f3c"),
    "overhead": ("overhead", "0.6"),
}
PROGRAMS = tuple(
    f"from sklearn.{module} import {name}\nreturn {name}({arguments}).fit(x_train, y_train)"
    for module, name, arguments in (
        ("naive_bayes", "GaussianNB", ""),
        ("tree", "DecisionTreeClassifier", "random_state=0"),
        ("linear_model", "LogisticRegression", "max_iter=200"),
        ("ensemble", "RandomForestClassifier", "n_estimators=10, random_state=0"),
    )
)


class Writes(gym.ActionWrapper[Any, Any, Any]):
    """Turns what a model that knows no Python says into one of the programs."""

    def action(self, action: Any) -> Any:  # noqa: ANN401 - of a space that is known at run time
        """A program, by the text."""
        space: Any = self.action_space
        return space.encode(PROGRAMS[sum((space.decode_finished(action) or "").encode()) % len(PROGRAMS)])


def environment() -> gym.Env[Any, Any]:
    """One that evaluates a program at every step."""
    return Writes(gym.make(ENV_ID, cache=False, terminate_on_success=False))


VECTORS: dict[str, Callable[[int], VecEnv]] = {
    "one after the other": lambda n_envs: make_vec_env(environment, n_envs),
    "at once, one group": lambda n_envs: make_env_groups(environment, n_envs, 1),
    "two groups in turns": lambda n_envs: make_env_groups(environment, n_envs, 2),
}


class Rewards(BaseCallback):
    """What the environments paid."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[float] = []

    def _on_step(self) -> bool:
        self.seen += [round(float(reward), 6) for reward in self.locals["rewards"]]
        return True


def one_training(vector: VecEnv, options: argparse.Namespace) -> tuple[list[dict[str, float]], list[float]]:
    """Seconds of the parts of each rollout with its update, but for a first one that warms up; and all rewards."""
    # Without the tail of the distribution: in it, tokens are as narrow as the rounding of a sum.
    settings = {
        "top_p": 0.95,
        "n_steps": options.steps,
        "n_epochs": 1,
        "batch_size": 16,
        "max_new_tokens": options.tokens,
    }
    model = NTPO("LLMPolicy", vector, action_sampling="free", seed=options.seed, **settings)
    rewards, cycles = Rewards(), []
    for _ in range(1 + options.rollouts):
        model.learn(options.steps * options.envs, rewards, reset_num_timesteps=False)
        cycles.append({part: model.logger.name_to_value[f"time/seconds_{part}"] for part in PARTS})
    vector.close()
    return cycles[1:], rewards.seen


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All trainings, interleaved."""
    cycles: dict[str, list[dict[str, float]]] = {name: [] for name in VECTORS}
    same: dict[str, list[float]] = {name: [] for name in VECTORS}
    first: list[float] = []
    for _ in range(options.runs):
        for name, make in VECTORS.items():
            found, rewards = one_training(make(options.envs), options)
            cycles[name] += found
            first = first or rewards
            same[name].append(sum(map(eq, rewards, first)) / len(first))
    result = {}
    for name, some in cycles.items():
        walls = [sum(one.values()) for one in some]
        medians = {part: round(statistics.median(one[part] for one in some), 4) for part in PARTS}
        spread = {"wall_min": round(min(walls), 4), "wall_max": round(max(walls), 4)}
        shares = {"same_rewards": round(min(same[name]), 4)}
        result[name] = {"wall": round(statistics.median(walls), 4), **spread, **shares, "seconds": medians}
    return result


def plot(result: dict[str, Any]) -> None:
    """Write results/overlap.png."""
    figure, axes = plt.subplots(figsize=(9, 3.4), dpi=120)
    for place, one in enumerate(result["layouts"].values()):
        start = 0.0
        for part, (label, color) in PARTS.items():
            seconds = one["seconds"][part]
            axes.barh(place, seconds, left=start, color=color, label=label if place == 0 else None)
            if seconds > 0.06 * result["layouts"]["one after the other"]["wall"]:
                axes.text(start + seconds / 2, place, f"{seconds:.2f}", ha="center", va="center", color="w", fontsize=8)
            start += seconds
        axes.text(start, place, f"  {one['wall']:.2f} s", va="center", fontsize=9)
    axes.set_yticks(range(len(result["layouts"])), list(result["layouts"]))
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel(f"seconds of a rollout ({result['envs']} environments x {result['steps']} steps) with its update")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="lower center", ncols=len(PARTS), fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(RESULTS / "overlap.png")
    plt.close(figure)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Where the time of a training on code goes.")
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--steps", type=int, default=8, help="of each environment in a rollout")
    parser.add_argument("--tokens", type=int, default=64, help="largest number of an action")
    parser.add_argument("--rollouts", type=int, default=3, help="measured ones of a training")
    parser.add_argument("--runs", type=int, default=3, help="trainings of each kind")
    parser.add_argument("--threads", type=int, default=1, help="of the model; other cores are left to the sandbox")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    result = {**describe_machine(), "env_id": ENV_ID, **vars(options), "layouts": measure(options)}
    (RESULTS / "overlap.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    plot(result)
    table = Table("environments", "same rewards", "wall, s", *(f"{label}, s" for label, _ in PARTS.values()))
    for name, one in result["layouts"].items():
        table.add_row(
            name, f"{one['same_rewards']:.1%}", f"{one['wall']:.2f}", *(f"{one['seconds'][part]:.3f}" for part in PARTS)
        )
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
