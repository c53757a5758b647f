"""Speed of the environments, text included: `python -m benchmarks.env_speed`.

Random admissible actions through `gym.make(id, disable_env_checker=True)`, encoded and decoded as an agent would;
resets with a new seed each; frames along a random walk. Prints medians and writes results/env_speed.json.

Only for ids that list their actions. A step of DataSciCoding is an evaluation of code, which costs what the sandbox
and the code cost: `python -m benchmarks.sandbox_latency`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import gymnasium as gym
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.env_scores import LISTED_IDS
from benchmarks.environment import RESULTS, describe_machine


def steps_per_second(env_id: str, n_steps: int, seed: int) -> float:
    """Environment steps (actions) a second, resets included."""
    env = gym.make(env_id, disable_env_checker=True)
    picks = np.random.default_rng((seed, 1)).random(n_steps).tolist()
    encode = env.action_space.encode
    _, info = env.reset(seed=seed)
    started = time.perf_counter()
    for pick in picks:
        actions = info["admissible_actions"]
        _, _, terminated, truncated, info = env.step(encode(actions[int(pick * len(actions))]))
        if terminated or truncated:
            _, info = env.reset()
    return n_steps / (time.perf_counter() - started)


def reset_microseconds(env_id: str, n_resets: int) -> float:
    """Median time of a reset with a seed."""
    env = gym.make(env_id, disable_env_checker=True)
    times = []
    for seed in range(n_resets):
        started = time.perf_counter()
        env.reset(seed=seed)
        times.append(time.perf_counter() - started)
    return 1e6 * statistics.median(times)


def frame_milliseconds(env_id: str, n_frames: int) -> float:
    """Median time of an RGB frame along a random walk; the first, which paints the sprites, is left out."""
    env = gym.make(env_id, disable_env_checker=True, render_mode="rgb_array")
    rng, times = np.random.default_rng((0, 1)), []
    _, info = env.reset(seed=0)
    env.render()
    for _ in range(n_frames):
        _, _, terminated, truncated, info = env.step(env.action_space.encode(rng.choice(info["admissible_actions"])))
        started = time.perf_counter()
        env.render()
        times.append(time.perf_counter() - started)
        if terminated or truncated:
            _, info = env.reset()
    return 1e3 * statistics.median(times)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Speed of the environments.")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    table = Table("id", "steps / s", "reset, us", "frame, ms")
    speeds = {}
    for env_id in LISTED_IDS:
        runs = [steps_per_second(env_id, options.steps, seed) for seed in range(options.runs)]
        speeds[env_id] = {
            "steps_per_second": round(statistics.median(runs)),
            "runs": [round(run) for run in runs],
            "reset_microseconds": round(reset_microseconds(env_id, 500), 1),
            "frame_milliseconds": round(frame_milliseconds(env_id, 300), 2),
        }
        numbers = (speeds[env_id][name] for name in ("steps_per_second", "reset_microseconds", "frame_milliseconds"))
        table.add_row(env_id, *(f"{number:,}" for number in numbers))
    Console().print(table)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "env_speed.json").write_text(json.dumps({**describe_machine(), "ids": speeds}, indent=1) + "\n")


if __name__ == "__main__":
    main()
