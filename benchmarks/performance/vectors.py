"""Steps per second of eight kitchens, without a model: in this process, in SB3's processes and in Ray actors.

A step of a kitchen is short, so the table shows the cost of the calls. Layouts take turns; medians of several. The
cluster of Ray starts once and does not count; the start is that of the environments. Writes vectors.json.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import SubprocVecEnv, VecEnv

import lang_envs  # noqa: F401
from benchmarks.performance.timing import in_turns
from benchmarks.reports.tables import show_records
from benchmarks.runner.files import write_result
from benchmarks.runner.options import Count
from poad_sb3.distributed.ray_cluster import RayConnection
from poad_sb3.distributed.ray_vec_env import make_ray_envs
from poad_sb3.vec_env.make_envs import make_envs

ENV_ID = "Overcooked-TomatoSalad-v0"
N_ENVS = 8


def kitchen() -> gym.Env[Any, Any]:
    """Make an environment; its import registers the ids in the processes that SB3 spawns."""
    return gym.make(ENV_ID)


def in_actors(n_actors: int) -> VecEnv:
    """Make the environments in Ray actors that take no cores."""
    return make_ray_envs(ENV_ID, {}, N_ENVS, n_actors, demand={})


LAYOUTS: dict[str, Callable[[], VecEnv]] = {
    "in this process": lambda: make_envs(ENV_ID, {}, N_ENVS),
    "SB3's SubprocVecEnv, 8 processes": lambda: make_vec_env(
        kitchen, N_ENVS, vec_env_cls=SubprocVecEnv, vec_env_kwargs={"start_method": "spawn"}
    ),
    **{f"Ray, {n} actor{'s' if n > 1 else ''}": partial(in_actors, n) for n in (1, 2, 4, 8)},
}


def timed(make: Callable[[], VecEnv], n_steps: int) -> tuple[float, float]:
    """Return the seconds to make the environments, and those of a step of all of them."""
    started = time.perf_counter()
    envs = make()
    envs.reset()
    start = time.perf_counter() - started
    space = gym.make(ENV_ID).action_space
    action = np.stack([space.encode("pick up the tomato")] * N_ENVS)  # type: ignore[attr-defined]
    started = time.perf_counter()
    for _ in range(n_steps):
        envs.step(action)
    seconds = (time.perf_counter() - started) / n_steps
    envs.close()
    return start, seconds


def vectors(steps: Count = 200, repeats: Count = 5) -> None:
    """Time steps of environments in this process, in worker processes and in Ray actors."""
    connection = RayConnection()
    times = in_turns({name: partial(timed, make, steps) for name, make in LAYOUTS.items()}, repeats)
    connection.close()
    rows = {}
    for name, some in times.items():
        start, seconds = (statistics.median(column) for column in zip(*some, strict=True))
        rows[name] = {"per_second": round(N_ENVS / seconds), "ms": round(1e3 * seconds, 2), "start": round(start, 1)}
    write_result("vectors", {"env_id": ENV_ID, "envs": N_ENVS, "steps": steps, "repeats": repeats, "layouts": rows})
    show_records("environments", rows, ("per_second", "ms", "start"))
