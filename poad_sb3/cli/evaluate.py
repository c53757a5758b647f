"""`poad eval`: evaluate a trained agent on whole episodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table

from lang_envs.cli.common import parse_settings
from lang_envs.errors import LangEnvsError
from poad_sb3.cli.common import checkpoint_at, environments, fail, moved_model
from poad_sb3.common.save_util import read_header
from poad_sb3.errors import PoadError

if TYPE_CHECKING:
    from poad_sb3.common.episodes import Episode


_SIDE_BY_SIDE = 16
"""Maximum number of episodes that are played at a time."""


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
        console: Console to print to.
        source: Folder of a run, or a checkpoint.
        env_id: Id of the environment; None for that of the run.
        env_settings: NAME=VALUE arguments of the environment, over those of the run if it is the run's.
        settings: NAME=VALUE arguments of `policy_kwargs`, over those of the checkpoint, for a base model that has
            moved.
        episodes: Number of episodes.
        deterministic: Whether to choose the most probable action instead of sampling.
        seed: Seed of the episodes and of the samples.
    """
    moved = moved_model(settings)
    checkpoint, config = checkpoint_at(source)
    if env_id is None and config is None:
        fail(f"Expected --env ID with a checkpoint that is in no run's folder; got {source}.")
    of_run = config is not None and env_id in (None, config.env_id)
    name = env_id or (config.env_id if config is not None else "")
    kwargs = {
        **(config.env_kwargs if config is not None and of_run else {}),
        **parse_settings("--env-set", env_settings, fail),
    }
    environments(name, kwargs, 1).close()  # or it fails with a sentence
    from poad_sb3.common.episodes import policy_episodes
    from poad_sb3.runs.loading import load_checkpoint

    played: list[Episode] = []
    try:
        header = read_header(checkpoint)
        policy = load_checkpoint(checkpoint, policy_kwargs=moved).policy
        for first in range(0, episodes, _SIDE_BY_SIDE):
            n = min(_SIDE_BY_SIDE, episodes - first)
            played += policy_episodes(
                policy, name, n, deterministic=deterministic, seed=seed, first=first, env_kwargs=kwargs
            )
    except (PoadError, LangEnvsError, OSError, ValueError) as error:
        fail(str(error))
    except Exception as error:  # environments may raise anything
        fail(f"Expected {episodes} episodes of {name}; got {type(error).__name__}: {error}. Fix: the environment.")
    how = "most probable actions" if deterministic else "sampled actions"
    title = f"{header['algorithm']} at step {header['num_timesteps']} on {name}: {episodes} episodes, {how}"
    console.print(title, markup=False, highlight=False, soft_wrap=True)
    console.print(_table(played))


def _table(played: Sequence[Episode]) -> Table:
    columns = {
        "return": [sum(step["reward"] for step in episode) for episode in played],
        "actions": [len(episode) for episode in played],
        "success": [episode[-1]["success"] for episode in played if episode[-1]["success"] is not None],
    }
    table = Table("", "mean", "standard error", box=None)
    for name, column in columns.items():
        if column:  # third-party environments may have no success
            values = np.array(column, dtype=np.float64)
            error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
            table.add_row(name, f"{values.mean():.4f}", f"{error:.4f}" if len(values) > 1 else "-")
    return table
