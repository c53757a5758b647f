"""The time of a training on code by phase, and the time saved by parts.

The same short training on DataSciCoding, four times: environments one after the other, all of them at once, in two
parts that take turns with the model, and these parts in two Ray actors. Interleaved, medians of several; every training
has the same seed. The share of rewards equal to those of the first training is recorded too: all of them in the first
two layouts, and in the others but for random numbers on the edge between two tokens, where rounding decides (rows
decode in other batches). Writes overlap.json and overlap.png.

The pocket model does not know Python, and a text that is no program costs no time to evaluate. So its text is replaced
by one of a few programs, chosen by the text; they run in the sandbox, on all splits, without the cache. The model's own
cost is that of a real training: it writes as many tokens, and learns from them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from operator import eq
from typing import Annotated, Any

import gymnasium as gym
import torch
import typer
from matplotlib.figure import Figure
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv

from benchmarks.reports.plots import style
from benchmarks.reports.tables import show_records
from benchmarks.runner.files import write_picture, write_result
from benchmarks.runner.machine import RESULTS
from poad_sb3 import NTPO
from poad_sb3.distributed.ray_vec_env import make_ray_envs
from poad_sb3.vec_env.pipelined import make_pipelined_envs

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
    """Replaces texts of a model without Python by one of the programs."""

    def action(self, action: Any) -> Any:
        """Return a program, by the text."""
        space: Any = self.action_space
        return space.encode(PROGRAMS[sum((space.decode_finished(action) or "").encode()) % len(PROGRAMS)])


def environment() -> gym.Env[Any, Any]:
    """Make an environment that evaluates a program at every step."""
    return Writes(gym.make(ENV_ID, cache=False, terminate_on_success=False))


VECTORS: dict[str, Callable[[int], VecEnv]] = {
    "one after the other": lambda n_envs: make_vec_env(environment, n_envs),
    "at once, one part": lambda n_envs: make_pipelined_envs(environment, n_envs, 1),
    "two parts in turns": lambda n_envs: make_pipelined_envs(environment, n_envs, 2),
    "two parts, in two Ray actors": lambda n_envs: make_ray_envs(
        environment, {}, n_envs, 2, 2, demand={"sandbox": 1.0}
    ),
}


class Rewards(BaseCallback):
    """Collects the rewards of the environments."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[float] = []

    def _on_step(self) -> bool:
        self.seen += [round(float(reward), 6) for reward in self.locals["rewards"]]
        return True


def one_training(
    vector: VecEnv, *, envs: int, steps: int, tokens: int, rollouts: int, seed: int
) -> tuple[list[dict[str, float]], list[float]]:
    """Run a training, and return the seconds of the parts of each rollout with its update, and all rewards.

    The seconds of the first rollout, a warm-up, are left out.
    """
    # Without the tail of the distribution: in it, tokens are as narrow as the rounding of a sum.
    settings = {"top_p": 0.95, "n_steps": steps, "n_epochs": 1, "batch_size": 16, "max_new_tokens": tokens}
    model = NTPO("LLMPolicy", vector, action_sampling="free", seed=seed, **settings)
    rewards, cycles = Rewards(), []
    for _ in range(1 + rollouts):
        model.learn(steps * envs, rewards, reset_num_timesteps=False)
        cycles.append({part: model.logger.name_to_value[f"time/seconds_{part}"] for part in PARTS})
    vector.close()
    return cycles[1:], rewards.seen


def measure(runs: int, **options: int) -> dict[str, Any]:
    """Run all trainings, interleaved."""
    cycles: dict[str, list[dict[str, float]]] = {name: [] for name in VECTORS}
    same: dict[str, list[float]] = {name: [] for name in VECTORS}
    first: list[float] = []
    for _ in range(runs):
        for name, make in VECTORS.items():
            found, rewards = one_training(make(options["envs"]), **options)
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


@style()
def draw(result: dict[str, Any]) -> Figure:
    """Draw a bar of seconds by part for each layout."""
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    axes = figure.subplots()
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
    figure.legend(loc="outside lower center", ncols=len(PARTS), fontsize=8)
    return figure


def overlap(
    envs: int = 8,
    steps: Annotated[int, typer.Option(min=1, help="Of each environment in a rollout.")] = 8,
    tokens: Annotated[int, typer.Option(min=1, help="Largest number of an action.")] = 64,
    rollouts: Annotated[int, typer.Option(min=1, help="Measured ones of a training.")] = 3,
    runs: Annotated[int, typer.Option(min=1, help="Trainings of each kind.")] = 3,
    threads: Annotated[int, typer.Option(min=1, help="Of the model; other cores are left to the sandbox.")] = 1,
    seed: int = 0,
) -> None:
    """Measure where the time of a training on code goes, in four layouts of the environments."""
    torch.set_num_threads(threads)
    options = {"envs": envs, "steps": steps, "tokens": tokens, "rollouts": rollouts, "seed": seed}
    result = {"env_id": ENV_ID, **options, "runs": runs, "threads": threads, "layouts": measure(runs, **options)}
    write_result("overlap", result)
    write_picture(RESULTS / "overlap.png", draw(result))
    rows = {name: {**one, **one["seconds"]} for name, one in result["layouts"].items()}
    show_records("environments", rows, ("same_rewards", "wall", *PARTS))
