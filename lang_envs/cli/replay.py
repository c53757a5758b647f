"""A recorded episode, played again in the terminal and compared with the record."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
from rich.console import Console
from rich.text import Text

from lang_envs.arguments import is_number
from lang_envs.cli.common import constructor_defaults, counted, signed
from lang_envs.cli.play import show, tell
from lang_envs.report import ReportError, read_results
from lang_envs.report.replaying import replayed
from lang_envs.wrappers import TextAction

__all__ = ["cautious", "find_episode", "replay_episode"]

_LIMITS = ("time_limit", "memory_limit")


def find_episode(path: Path, identity: str | None) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the header and an episode of a results file, or of a file that a report has written for one episode.

    Args:
        path: Path of the results file, or of a report's file of one episode.
        identity: `ENV/SEED/EPISODE`, with `@STEPS` behind it for an episode of a training; None for a report's file.

    Raises:
        ReportError: If the file cannot be read or is not valid, or has no such episode with steps.
    """
    alone = _read_alone(path)
    if alone is not None:
        return alone, alone
    results = read_results(path)
    identities = []
    for episode in results.episodes:
        name = f"{episode['env']}/{episode['seed']}/{episode['episode']}"
        steps = episode.get("training_steps")
        if identity in (name, f"{name}@{steps}") and (steps is None or "@" in identity) and episode["steps_list"]:
            return results.header, episode
        if episode["steps_list"]:
            identities.append(name if steps is None else f"{name}@{steps}")
    fix = (
        f"one of {', '.join(identities[:4])}{' ...' if len(identities) > 4 else ''}"
        if identities
        else "record steps with `run --steps`"
    )
    raise ReportError(
        f"Expected ENV/SEED/EPISODE of an episode with steps in {path}, with @STEPS behind it for one of a training; "
        f"got {identity or 'no name'}. Fix: {fix}."
    )


def _read_alone(path: Path) -> dict[str, Any] | None:
    """Return the content of a file of one episode; None if it is another file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:  # lines of a results file
        return None
    if not isinstance(content, dict) or content.get("content") != "episode":
        return None
    kinds = (("env", str), ("env_settings", dict), ("reset_seed", int), ("steps", list))
    steps = content.get("steps")
    fits = (
        all(isinstance(content.get(name), kind) for name, kind in kinds)
        and content["reset_seed"] >= 0
        and all(
            isinstance(step, dict)
            and isinstance(step.get("observation"), str)
            and isinstance(step.get("action"), str)
            and isinstance(step.get("reward"), int | float)
            for step in steps or ()
        )
    )
    if not fits:
        raise ReportError(
            f"Expected env, env_settings, reset_seed and steps with observation, action and reward in {path}; "
            "got others. Fix: download the episode again."
        )
    return {**content, "steps_list": steps}


def cautious(env_id: str, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return recorded arguments for programs of an unknown author: confined, and with at most the usual limits."""
    with gym.make(env_id, disable_env_checker=True, **kwargs) as env:  # the entry point may be a function
        kind = type(env.unwrapped)
    if kind.metadata.get("actions") != "code":
        return kwargs
    usual = constructor_defaults(kind)
    limits = {name: min(kwargs[name], usual[name]) for name in _LIMITS if name in usual and is_number(kwargs.get(name))}
    return {**kwargs, **limits, "confinement": "require"}


def replay_episode(console: Console, env: gym.Env[Any, Any], episode: Mapping[str, Any]) -> bool:
    """Play the recorded actions of an episode, and print each step.

    Args:
        console: Console to print to.
        env: Environment that plays the actions.
        episode: Record of the episode, with its steps under `steps_list`.

    Returns:
        Whether every observation, reward and end is the recorded one.
    """
    steps: Sequence[Mapping[str, Any]] = episode["steps_list"]
    total, differences = 0.0, list[str]()
    moments = replayed(TextAction(env), episode["reset_seed"], steps)
    show(console, env, next(moments).text)
    for step, moment in zip(steps, moments, strict=True):
        total += moment.reward
        differences += moment.differences
        tell(console, step["action"], moment.reward, total, moment.info)
        show(console, env, moment.text)
    same = "as recorded" if not differences else f"not as recorded: {'; '.join(differences[:3])}"
    console.print(Text(f"{counted(len(steps))}, return {signed(total)}, {same}.", style="bold"))
    return not differences
