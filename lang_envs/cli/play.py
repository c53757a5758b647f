"""A person plays an episode in the terminal."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from rich.console import Console
from rich.text import Text

from lang_envs.wrappers import TextAction

__all__ = ["play_episode"]

_QUIT = "q"


def play_episode(console: Console, env: gym.Env[Any, Any], seed: int) -> None:
    """Show, ask, act, until the episode or the input ends."""
    talking = TextAction(env)
    text, info = talking.reset(seed=seed)
    total, n_actions = 0.0, 0
    terminated = truncated = False
    while not (terminated or truncated):
        _show(console, env, text)
        said = _ask(console, info["admissible_actions"])
        if said is None:
            break
        text, reward, terminated, truncated, info = talking.step(said)
        total, n_actions = total + float(reward), n_actions + 1
        outcome = _outcome(info)
        console.print(Text(f"{said}: {outcome}reward {float(reward):+.3f}, return {total:+.3f}", style="yellow"))
    else:
        _show(console, env, text)
    console.print(
        Text(f"{_ending(terminated, truncated, info)} {n_actions} actions, return {total:+.3f}.", style="bold")
    )


def _outcome(info: dict[str, Any]) -> str:
    if info["invalid_action"]:
        return "not understood; "
    return "" if info.get("command_succeeded", True) else "refused by the world; "


def _ending(terminated: bool, truncated: bool, info: dict[str, Any]) -> str:
    if info["success"]:
        return "You reached the goal."
    if terminated or truncated:
        return "You failed." if terminated else "Time is up."
    return "You left."


def _show(console: Console, env: gym.Env[Any, Any], text: str) -> None:
    if env.render_mode == "ansi":
        console.print(Text(f"\n{env.render()}"))
    console.print(Text(f"\n{text}"))


def _ask(console: Console, listed: list[str] | None) -> str | None:
    """What the player wants to do; None to leave."""
    for number, action in enumerate(listed or (), start=1):
        console.print(Text(f"{number:3d}  {action}"))
    choice = "a sentence" if listed is None else "a number or a sentence"
    while True:
        try:
            line = console.input(f"{choice}, {_QUIT} to leave: ").strip()
        except (EOFError, KeyboardInterrupt, UnicodeDecodeError):
            console.print()
            return None
        if listed is None or not line.isdecimal():
            if line:
                return None if line == _QUIT else line
        elif 1 <= int(line) <= len(listed):
            return listed[int(line) - 1]
        else:
            console.print(Text(f"Expected a number from 1 to {len(listed)}; got {line}."))
