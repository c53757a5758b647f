"""A person plays an episode in the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
from rich.console import Console
from rich.text import Text

from lang_envs.arguments import finite_reward
from lang_envs.cli.common import counted, signed
from lang_envs.text import printable
from lang_envs.wrappers import TextAction

_QUIT = "q"
_END = "."
_NO_MORE = "\nThe input has ended."
_MAX_SHOWN = 60  # characters of an action in a message


def play_episode(console: Console, env: gym.Env[Any, Any], seed: int) -> None:
    """Show, ask, act, until the episode or the input ends."""
    talking = TextAction(env)
    text, info = talking.reset(seed=seed)
    total, n_actions = 0.0, 0
    terminated = truncated = False
    while not (terminated or truncated):
        show(console, env, text)
        action = ask(console, info["admissible_actions"])
        if action is None:
            break
        text, reward, terminated, truncated, info = talking.step(action)
        reward = finite_reward(reward, env.unwrapped)
        total, n_actions = total + reward, n_actions + 1
        tell(console, action, reward, total, info)
    else:
        show(console, env, text)
    if info["success"]:
        ending = "You reached the goal."
    elif terminated or truncated:
        ending = "You failed." if terminated else "The budget is used up."
    else:
        ending = "You left."
    console.print(Text(f"{ending} {counted(n_actions)}, return {signed(total)}.", style="bold"))


def tell(console: Console, text: str, reward: float, total: float, info: Mapping[str, Any]) -> None:
    """Print the outcome of an action in a line."""
    if info["invalid_action"]:
        outcome = "not understood; "
    elif "status" in info:
        outcome = f"{info['status']}; "
    else:
        outcome = "" if info.get("command_succeeded", True) else "refused by the world; "
    first, *rest = text.split("\n")
    first = printable(first)
    action = first if len(first) <= _MAX_SHOWN else f"{first[:_MAX_SHOWN]}..."
    action += f" ({len(rest) + 1} lines)" if rest else ""
    console.print(Text(f"{action}: {outcome}reward {signed(reward)}, return {signed(total)}", style="yellow"))


def show(console: Console, env: gym.Env[Any, Any], text: str) -> None:
    """Print the drawing of the environment, where it draws as text, and the observation."""
    if env.render_mode == "ansi":
        console.print(Text(f"\n{env.render()}"), soft_wrap=True)
    console.print(Text(f"\n{text}"), soft_wrap=True)  # as the agent gets it, line for line


def ask(console: Console, listed: list[str] | None) -> str | None:
    """Read the player's action; None to leave."""
    try:
        return _ask_for_text(console) if listed is None else _ask_for_choice(console, listed)
    except KeyboardInterrupt:
        console.print()
        return None


def _ask_for_choice(console: Console, listed: list[str]) -> str | None:
    for number, action in enumerate(listed, start=1):
        console.print(Text(f"{number:3d}  {action}"))
    while True:
        line = _read(console, f"a number or a sentence, {_QUIT} to leave: ")
        if line is None:
            console.print(_NO_MORE)
            return None
        line = line.strip()
        if not line.isdecimal():
            if line:
                return None if line == _QUIT else line
        elif 1 <= int(line) <= len(listed):
            return listed[int(line) - 1]
        else:
            console.print(Text(f"Expected a number from 1 to {len(listed)}; got {line}."))


def _ask_for_text(console: Console) -> str | None:
    """Read lines with their indentation, up to one that holds a single full stop or the end of the input."""
    console.print(Text(f"any text, of several lines too; then a line with a single {_END} ({_QUIT} alone to leave)"))
    lines: list[str] = []
    while True:
        line = _read(console, "")
        if line == _END or line is None:
            text = "\n".join(lines)
            if text.strip():
                return text
            if line is None:
                console.print(_NO_MORE)
                return None
            lines = []
        elif line.strip() == _QUIT and not lines:
            return None
        else:
            lines.append(line)


def _read(console: Console, prompt: str) -> str | None:
    try:
        return console.input(prompt)
    except (EOFError, UnicodeDecodeError):
        return None
