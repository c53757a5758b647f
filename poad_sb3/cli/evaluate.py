"""`poad eval`: evaluate a trained agent on whole episodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from lang_envs.cli.common import console, echo, parse_settings
from poad_sb3.cli.common import BAD, EnvSettings, Moved, Source, environments, fail, moved_model, require_llm

if TYPE_CHECKING:
    from poad_sb3.common.episodes import Episode

_SIDE_BY_SIDE = 16
"""Maximum number of episodes that are played at a time."""


def evaluate(
    source: Source,
    env_id: Annotated[str | None, typer.Option("--env", help="Environment; that of the run by default.")] = None,
    env_settings: EnvSettings = None,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes to play.")] = 100,
    deterministic: Annotated[
        bool, typer.Option("--deterministic/--sample", help="The most probable action, or a sample as in training.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of episodes and samples.")] = 0,
    settings: Moved = None,
) -> None:
    """Play whole episodes with a trained agent."""
    require_llm()
    from poad_sb3.common.episodes import policy_episodes
    from poad_sb3.common.save_util import read_header
    from poad_sb3.runs.loading import find_checkpoint, load_checkpoint

    moved = moved_model(settings)
    checkpoint, config = find_checkpoint(source)
    name = env_id or (config.env_id if config is not None else "")
    if not name:
        fail(f"Expected --env ID with a checkpoint that is in no run's folder; got {source}.")
    kwargs = parse_settings("--env-set", env_settings or (), fail)
    if config is not None and name == config.env_id:
        kwargs = {**config.env_kwargs, **kwargs}
    environments(name, kwargs, 1).close()  # or it fails with a sentence
    try:
        header = read_header(checkpoint)
        policy = load_checkpoint(checkpoint, policy_kwargs=moved).policy
        play = partial(policy_episodes, policy, deterministic=deterministic)
        played = play_in_parts(play, name, episodes, seed=seed, env_kwargs=kwargs)
    except BAD as error:
        fail(str(error))
    except Exception as error:  # environments may raise anything
        fail(f"Expected {episodes} episodes of {name}; got {type(error).__name__}: {error}. Fix: the environment.")
    how = "most probable actions" if deterministic else "sampled actions"
    echo(f"{header['algorithm']} at step {header['num_timesteps']} on {name}: {episodes} episodes, {how}")
    console().print(_table(played))
    if any(step["note"] for step in played[0]):
        console().print(_thoughts(played[0]))


def play_in_parts(
    play: Callable[..., list[Episode]], env_id: str, n_episodes: int, *, seed: int, env_kwargs: Mapping[str, Any]
) -> list[Episode]:
    """Play episodes, a bounded number side by side.

    Args:
        play: Function such as `policy_episodes`, from id, number, `seed`, `first` and `env_kwargs` to episodes.
        env_id: Id of the environment.
        n_episodes: Number of episodes.
        seed: Seed of episodes and samples.
        env_kwargs: Arguments of `gym.make`.
    """
    played: list[Episode] = []
    for first in range(0, n_episodes, _SIDE_BY_SIDE):
        n = min(_SIDE_BY_SIDE, n_episodes - first)
        played += play(env_id, n, seed=seed, first=first, env_kwargs=env_kwargs)
    return played


def _table(played: Sequence[Episode]) -> Table:
    import numpy as np

    columns = {
        "return": [sum(step["reward"] for step in episode) for episode in played],
        "actions": [len(episode) for episode in played],
        "success": [episode[-1]["success"] for episode in played if episode[-1]["success"] is not None],
    }
    table = Table("", "mean", "standard error", box=None)
    for name, column in columns.items():
        if column:  # third-party environments may have no success
            values = np.array(column, dtype=np.float64)
            error = f"{values.std(ddof=1) / np.sqrt(len(values)):.4f}" if len(values) > 1 else "-"
            table.add_row(name, f"{values.mean():.4f}", error)
    return table


def _thoughts(episode: Episode) -> Table:
    table = Table("", "thought", "action", "reward", box=None, title="First episode", title_justify="left")
    for number, step in enumerate(episode, start=1):
        table.add_row(str(number), Text(step["note"]), Text(step["action"]), f"{step['reward']:.4f}")
    return table
