"""Speed of the environments, text included: `python -m benchmarks.env_speed`.

Random admissible actions through `gym.make(id, disable_env_checker=True)`, encoded and decoded as an agent would.
Prints the median of several runs and writes results/env_speed.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import gymnasium as gym
import numpy as np
from rich.console import Console

from benchmarks.environment import RESULTS, describe_machine
from lang_envs import ENV_ROWS


def steps_per_second(env_id: str, n_steps: int, seed: int) -> float:
    """Environment steps (macro-actions) a second, resets included."""
    env = gym.make(env_id, disable_env_checker=True)
    picks = np.random.default_rng(seed).random(n_steps).tolist()
    encode = env.action_space.encode
    _, info = env.reset(seed=seed)
    started = time.perf_counter()
    for pick in picks:
        actions = info["admissible_actions"]
        _, _, terminated, truncated, info = env.step(encode(actions[int(pick * len(actions))]))
        if terminated or truncated:
            _, info = env.reset()
    return n_steps / (time.perf_counter() - started)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Speed of the environments.")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    speeds = {}
    for row in ENV_ROWS:
        runs = [steps_per_second(row.id, options.steps, seed) for seed in range(options.runs)]
        speeds[row.id] = {"median": round(statistics.median(runs)), "runs": [round(run) for run in runs]}
    Console().print(speeds)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "env_speed.json").write_text(
        json.dumps({**describe_machine(), "steps_per_second": speeds}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
