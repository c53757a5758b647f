"""`poad eval`: whole episodes with a trained agent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from lang_envs.cli.common import parse_settings
from lang_envs.errors import LangEnvsError
from poad_sb3.cli.common import environments, fail, found, moved_model
from poad_sb3.common.save_util import read_header
from poad_sb3.errors import PoadError

if TYPE_CHECKING:
    from stable_baselines3.common.vec_env import VecEnv

    from poad_sb3.badq import BADQ
    from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm


class _Episode(NamedTuple):
    episode_return: float
    n_actions: int
    success: bool


def evaluate_run(
    console: Console,
    source: Path,
    env_id: str | None,
    env_settings: Sequence[str],
    settings: Sequence[str] = (),
    *,
    episodes: int,
    deterministic: bool,
    seed: int,
) -> None:
    """Play episodes and show their means.

    Args:
        console: Where to show them.
        source: Folder of a run, or a checkpoint.
        env_id: Environment; None for that of the run.
        env_settings: NAME=VALUE arguments of it, over those of the run if it is the run's.
        settings: NAME=VALUE of `policy_kwargs`, over those of the checkpoint: a base model that has moved.
        episodes: How many.
        deterministic: The most probable action instead of a sample.
        seed: Of the episodes and of the samples.
    """
    moved = moved_model(settings)
    checkpoint, config = found(source)
    if env_id is None and config is None:
        fail(f"Expected --env ID with a checkpoint that is in no run's folder; got {source}.")
    of_run = config is not None and env_id in (None, config.env_id)
    name = env_id or (config.env_id if config is not None else "")
    kwargs = {
        **(config.env_kwargs if config is not None and of_run else {}),
        **parse_settings("--env-set", env_settings, fail),
    }
    envs = environments(name, kwargs, 1)
    from poad_sb3.runs.loading import load_checkpoint

    try:
        header = read_header(checkpoint)
        model = load_checkpoint(checkpoint, policy_kwargs=moved)
        model.policy.seed(seed)
        played = _play(model, envs, episodes, deterministic=deterministic, seed=seed)
    except (PoadError, LangEnvsError, OSError, ValueError) as error:
        fail(str(error))
    finally:
        envs.close()
    how = "most probable actions" if deterministic else "sampled actions"
    title = f"{header['algorithm']} at step {header['num_timesteps']} on {name}: {episodes} episodes, {how}"
    console.print(title, markup=False, highlight=False, soft_wrap=True)
    console.print(_table(played))


def _play(
    model: LLMOnPolicyAlgorithm | BADQ, envs: VecEnv, n_episodes: int, *, deterministic: bool, seed: int
) -> list[_Episode]:
    from poad_sb3.vec_env.text_observations import wrap_language_env

    wrapped: Any = wrap_language_env(envs, model.policy.lm.prompter.template.context_spec)
    played: list[_Episode] = []
    for number in range(n_episodes):
        wrapped.seed(seed + number)
        observation, over, total, n_actions, info = wrapped.reset(), False, 0.0, 0, {}
        while not over:
            actions, _ = model.predict(observation, deterministic=deterministic)
            observation, rewards, dones, infos = wrapped.step(actions)
            total, n_actions, over, info = total + float(rewards[0]), n_actions + 1, bool(dones[0]), infos[0]
        played.append(_Episode(total, n_actions, bool(info.get("is_success", info.get("success", False)))))
    return played


def _table(played: Sequence[_Episode]) -> Table:
    returns, lengths, successes = (np.array(column, dtype=np.float64) for column in zip(*played, strict=True))
    table = Table("", "mean", "standard error", box=None)
    for name, values in (("return", returns), ("actions", lengths), ("success", successes)):
        error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
        table.add_row(name, f"{values.mean():.4f}", f"{error:.4f}" if len(values) > 1 else "-")
    return table
