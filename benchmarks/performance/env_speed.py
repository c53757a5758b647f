"""Speed of the environments, text included.

Random admissible actions through `gym.make(id, disable_env_checker=True)`, encoded and decoded as an agent would;
resets with a new seed each; frames along a random walk. Prints medians and writes env_speed.json.

Only for ids that list their actions. A step of DataSciCoding is an evaluation of code, with the cost of the sandbox
and the code cost: `python -m benchmarks measure sandbox-latency`.
"""

from __future__ import annotations

import statistics
import time
from functools import partial

import gymnasium as gym
import numpy as np

from benchmarks.performance.env_scores import LISTED_IDS
from benchmarks.performance.timing import milliseconds
from benchmarks.reports.tables import show_records
from benchmarks.runner.files import write_result
from benchmarks.runner.options import Count


def steps_per_second(env_id: str, n_steps: int, seed: int) -> float:
    """Return the environment steps (actions) per second, resets included."""
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
    """Return the median time of a reset with a seed, in microseconds."""
    env = gym.make(env_id, disable_env_checker=True)
    return 1e3 * statistics.median(
        milliseconds(partial(env.reset, seed=seed), time.perf_counter) for seed in range(n_resets)
    )


def frame_milliseconds(env_id: str, n_frames: int) -> float:
    """Return the median time of an RGB frame along a random walk, in milliseconds.

    The first frame is left out: it paints the sprites and is slower.
    """
    env = gym.make(env_id, disable_env_checker=True, render_mode="rgb_array")
    rng, times = np.random.default_rng((0, 1)), []
    _, info = env.reset(seed=0)
    env.render()
    for _ in range(n_frames):
        _, _, terminated, truncated, info = env.step(env.action_space.encode(rng.choice(info["admissible_actions"])))
        times.append(milliseconds(env.render, time.perf_counter))
        if terminated or truncated:
            _, info = env.reset()
    return statistics.median(times)


def env_speed(steps: Count = 20_000, runs: Count = 5) -> None:
    """Measure the speed of every environment that lists its actions."""
    speeds = {}
    for env_id in LISTED_IDS:
        rates = [steps_per_second(env_id, steps, seed) for seed in range(runs)]
        speeds[env_id] = {
            "steps_per_second": round(statistics.median(rates)),
            "runs": [round(rate) for rate in rates],
            "reset_microseconds": round(reset_microseconds(env_id, 500), 1),
            "frame_milliseconds": round(frame_milliseconds(env_id, 300), 2),
        }
    show_records("id", speeds, ("steps_per_second", "reset_microseconds", "frame_milliseconds"))
    write_result("env_speed", {"ids": speeds})
