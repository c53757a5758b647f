"""Shared by the commands: the console, errors of one line, ids."""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn, SupportsFloat

import gymnasium as gym
import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from lang_envs.errors import LangEnvsError
from lang_envs.registration import creator
from lang_envs.spaces import TextSpace, TokenSequence
from lang_envs.text import nearest, terminal_text

_WIDTH = 120  # where there is no terminal to ask
_LITERALS = {"True": True, "False": False, "None": None}
"""Python's spellings of values that JSON spells differently; as text, each of them would count as true."""


class PlainConsole(Console):
    """A console that prints texts as they are: no markup, no emoji by name, control characters escaped."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """See `Console.render`."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=terminal_text(segment.text))


def console(width: int | None = None) -> Console:
    """Return the console of this moment's stdout, of its width if none is given."""
    return PlainConsole(width=width or (None if sys.stdout.isatty() else _WIDTH), markup=False, emoji=False)


def echo(text: object, *, err: bool = False) -> None:
    """Print a text on stdout or stderr, control characters escaped."""
    typer.echo(terminal_text(str(text)), err=err)


def fail(message: str) -> NoReturn:
    """Print one line on stderr, and exit with code 1."""
    echo(f"lang-envs: {message}", err=True)
    raise typer.Exit(1)


def counted(n_actions: int) -> str:
    """Return a number of actions, in words."""
    return f"{n_actions} action{'' if n_actions == 1 else 's'}"


def signed(reward: SupportsFloat) -> str:
    """Return a reward or return to four digits, as in the drawings of code; never "-0.0000"."""
    return f"{round(float(reward), 4) + 0.0:+.4f}"


def resolve(env_id: str) -> str:
    """Import the module of `module:Id-v0`, and return the registered id."""
    module, _, name = env_id.rpartition(":")
    if module:
        sys.path.append(str(Path.cwd()))  # last: a module of this folder must not hide an installed one
        try:
            importlib.import_module(module)
        except Exception as error:  # a module may raise anything
            fail(f"Expected a module that registers {name!r}; {module!r} cannot be imported ({error}).")
    if name not in gym.registry:
        env_ids = (env_id for env_id, spec in gym.registry.items() if not _is_gymnasiums(spec.entry_point))
        fail(f"There is no environment {name!r}. {nearest(name, env_ids, 'See: lang-envs list')}")
    return name


def _is_gymnasiums(entry_point: object) -> bool:
    module = entry_point if isinstance(entry_point, str) else getattr(entry_point, "__module__", "")
    return module.startswith("gymnasium.")


def parse_settings(option: str, pairs: Sequence[str], refuse: Callable[[str], NoReturn]) -> dict[str, Any]:
    """Parse settings NAME=VALUE; a dotted name goes into a mapping.

    A value is JSON, one of Python's True, False and None, or else text.

    Args:
        option: Name of the command's option, for errors.
        pairs: Values of the option.
        refuse: Function that prints the error and ends the command.
    """
    parsed: dict[str, Any] = {}
    dotted: set[str] = set()  # names that are given part by part
    for pair in pairs:
        name, equals, value = pair.partition("=")
        *outer, last = name.split(".")
        if not equals or not all(part.isidentifier() for part in (*outer, last)):
            refuse(f"Expected {option} NAME=VALUE, with identifiers and dots for a NAME; got {pair!r}.")
        level = parsed
        for part in outer:
            level = level.setdefault(part, {})
            if not isinstance(level, dict):
                refuse(f"Expected either {option} {part}=... or {option} {part}.NAME=...; got both.")
        if name in dotted:
            refuse(f"Expected either {option} {name}=... or {option} {name}.NAME=...; got both.")
        dotted |= {".".join(outer[: n + 1]) for n in range(len(outer))}
        try:
            level[last] = json.loads(value)
        except ValueError:
            level[last] = _LITERALS.get(value, value)
    return parsed


def arguments(pairs: Sequence[str]) -> dict[str, Any]:
    """Return arguments of `gym.make` from NAME=VALUE."""
    parsed = parse_settings("--set", pairs, fail)
    if "render_mode" in parsed:
        fail("Expected --set of another argument than render_mode, which the commands choose themselves.")
    return parsed


def require_parts(env_id: str, kwargs: dict[str, Any]) -> None:
    """Exit with one line if this machine lacks a package or a table of the environment; ignore other errors."""
    try:
        gym.make(env_id, disable_env_checker=True, **kwargs).close()
    except LangEnvsError as error:
        fail(str(error))
    except (TypeError, ValueError) as error:
        if kwargs:
            fail(_unknown_argument(env_id, kwargs, error) or str(error))
    except Exception:  # for those who make it in earnest
        return


def _unknown_argument(env_id: str, kwargs: dict[str, Any], error: Exception) -> str:
    """Return the unknown argument with a suggestion; an empty text if the error has another cause."""
    kind = creator(env_id)
    if "unexpected keyword argument" not in str(error) or not isinstance(kind, type):
        return ""
    defaults = constructor_defaults(kind)
    for name in kwargs:
        if name not in defaults and name not in inspect.signature(gym.make).parameters:
            see = f"See: lang-envs describe {env_id}"
            return f"{env_id} has no argument {name!r}. {nearest(name, defaults, see, 1)}"
    return ""


def constructor_defaults(kind: type) -> dict[str, Any]:
    """Return the defaults of the arguments of a constructor, and of those it passes `**kwargs` on to, by name."""
    defaults: dict[str, Any] = {}
    for base in kind.__mro__[:-1]:  # without object
        if "__init__" not in vars(base):
            continue
        parameters = list(inspect.signature(base).parameters.values())
        named = [
            parameter
            for parameter in parameters
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        ]
        defaults = {parameter.name: parameter.default for parameter in named} | defaults
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            break
    return defaults


def language_env(env_id: str, kwargs: dict[str, Any], *, drawn: bool = True) -> gym.Env[Any, Any]:
    """Make an environment, drawn as text where it can be and should be."""
    require_parts(env_id, kwargs)
    env = gym.make(env_id, disable_env_checker=True, **kwargs)
    spaces = env.observation_space, env.action_space
    if not (isinstance(spaces[0], TextSpace) and isinstance(spaces[1], TokenSequence)):
        got = " and ".join(type(space).__name__ for space in spaces)
        fail(f"Expected an environment of TextSpace and TokenSequence; {env_id} has {got}.")
    if not drawn or "ansi" not in env.metadata.get("render_modes", []):
        return env
    env.close()
    return gym.make(env_id, render_mode="ansi", disable_env_checker=True, **kwargs)
