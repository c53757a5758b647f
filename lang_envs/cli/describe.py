"""Show an environment on one screen."""

from __future__ import annotations

import inspect
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lang_envs.cli.common import constructor_defaults
from lang_envs.registration import ALL_ROWS
from lang_envs.spaces import TokenSequence


def show_description(console: Console, env: gym.Env[Any, Any], spec: EnvSpec, seed: int) -> None:
    """Print everything there is to know before the first action."""
    console.print(Text(spec.id, style="bold cyan"))
    for row in ALL_ROWS:
        if row.id == spec.id:
            console.print(Text(row.summary))
    docstring = type(env.unwrapped).__doc__  # inspect.getdoc would take that of a base class
    about = inspect.cleandoc(docstring or "").partition("\n\n")[0]
    console.print(Text(f"\n{about}\n"))
    spaces = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name in ("observation_space", "action_space"):
        spaces.add_row(Text(name, style="bold"), Text(repr(getattr(env, name))))
    spaces.add_row(Text("render_modes", style="bold"), Text(", ".join(env.metadata.get("render_modes", []))))
    console.print(spaces)
    console.print()
    console.print(_arguments(env.unwrapped, spec))
    text, info = env.reset(seed=seed)
    console.print(Text(f"\nreset(seed={seed})", style="bold"))
    console.print(Text(text), soft_wrap=True)
    listed, space = info["admissible_actions"], env.action_space
    assert isinstance(space, TokenSequence)
    any_text = f"any text is an action; the action space holds {space.max_length - 1:,} tokens of {space.tokenizer}"
    console.print(Text("\nadmissible actions", style="bold"))
    console.print(Text(any_text if listed is None else "\n".join(listed)))
    if env.render_mode == "ansi":
        console.print(Text(f"\n{env.render()}"), soft_wrap=True)


def _arguments(env: gym.Env[Any, Any], spec: EnvSpec) -> Table:
    """Return a table of the constructor's arguments, and of those it passes `**kwargs` on to.

    Their values are those of the id, or as set for the environment.
    """
    made = {} if env.spec is None else env.spec.kwargs
    # that it is drawn as text is this command's doing
    values = spec.kwargs | {name: value for name, value in made.items() if name != "render_mode"}
    table = Table("argument", "default", "this id", box=None, padding=(0, 2, 0, 0))
    if isinstance(env.action_space, TokenSequence):
        values.setdefault("max_action_length", env.action_space.max_length)
    parameters = inspect.signature(type(env)).parameters
    for name, default in constructor_defaults(type(env)).items():
        if name == "max_observation_length" and name not in parameters:  # families set it themselves
            continue
        shown = "required" if default is inspect.Parameter.empty else repr(default)
        table.add_row(Text(name), Text(shown), Text(repr(values[name]) if name in values else ""))
    return table
