"""`step_all`: a step of a vector of environments that ends even if one of their processes has died."""

from __future__ import annotations

from multiprocessing.connection import wait

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import SubprocVecEnv, VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn

__all__ = ["step_all"]


def step_all(env: VecEnv, actions: NDArray[np.int64]) -> VecEnvStepReturn:
    """Step the environments; one whose process has ended is told, instead of waiting for its answer for ever.

    Args:
        env: The environments.
        actions: Encoded actions, `[n_envs, max_length]`.

    Returns:
        Observations, rewards, ends and infos, as `VecEnv.step`.

    Raises:
        RuntimeError: If a worker process has ended.
    """
    workers = env.unwrapped
    if not isinstance(workers, SubprocVecEnv):
        return env.step(actions)
    try:
        env.step_async(actions)
        for number, (remote, process) in enumerate(zip(workers.remotes, workers.processes, strict=True)):
            # Forked workers hold the ends of each other's pipes, so the pipe of a dead one need not close.
            if process.sentinel in wait([remote, process.sentinel]):
                process.join()
                raise EOFError(f"environment {number}, exit code {process.exitcode}")
        return env.step_wait()
    except (EOFError, BrokenPipeError, ConnectionResetError) as error:
        raise RuntimeError(
            f"Expected an answer of every environment; a worker process has ended ({error or type(error).__name__}). "
            "Nothing was learned from this step. Fix: see what it said; go on from a checkpoint, with new workers."
        ) from error
