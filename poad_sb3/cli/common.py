"""Shared code of the commands: options, one-line errors, algorithms by name."""

from __future__ import annotations

import importlib
import os
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from lang_envs.cli.common import echo, parse_settings
from lang_envs.errors import LangEnvsError, install_command
from lang_envs.text import nearest
from poad_sb3.common.hyperparameters import MOVABLE
from poad_sb3.errors import PoadError
from poad_sb3.presets import ALGORITHMS, MERGED

if TYPE_CHECKING:
    from stable_baselines3.common.vec_env import VecEnv

    from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A constructor argument, such as gamma=0.9 or policy_kwargs.model=FOLDER; repeatable.",
    ),
]
Moved = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="policy_kwargs.model or policy_kwargs.revision: where the base model is now.",
    ),
]
EnvSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--env-set", metavar="NAME=VALUE", help="An argument of gym.make, such as data=synthetic; repeatable."
    ),
]
Source = Annotated[Path, typer.Argument(metavar="RUN_OR_ZIP", help="Folder of a run, or a checkpoint.")]

REFUSED, STOPPED, DIFFERS, INTERRUPTED = 1, 3, 4, 130
"""Exit codes: refused before a start; stopped by an error; a score of `poad zoo eval` differs; Ctrl-C.

2 is Typer's, for usage; 5 is `LOST_RANK`.
"""
BAD = (PoadError, LangEnvsError, ValueError, TypeError, AssertionError, OSError, NotImplementedError)
"""Errors of wrong arguments, models and checkpoints. No RuntimeError: Typer ends commands by one."""

_SECONDS_AFTER_RANK_0 = 10.0
"""Time for rank 0 to report an error, in seconds: its launcher ends it when another rank ends."""
_FROM_PYTHON = "BADQ"
"""Name of the off-policy algorithm: it has other arguments, and writes no run folder."""


def fail(message: str, code: int = REFUSED) -> NoReturn:
    """Print one line on stderr and exit; of several ranks, rank 0 prints first."""
    if os.environ.get("RANK", "0") != "0":
        time.sleep(_SECONDS_AFTER_RANK_0)
    echo(f"poad: {' '.join(message.split())}", err=True)
    raise typer.Exit(code)


def _show_warning(message: Warning | str, *_: Any) -> None:
    echo(f"poad: warning: {' '.join(str(message).split())}", err=True)


class Commands(TyperGroup):
    """Commands whose refusals and warnings are one line each on stderr."""

    def invoke(self, ctx: Any) -> Any:
        """See `TyperGroup.invoke`."""
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning  # type: ignore[assignment]
                return super().invoke(ctx)
        except BrokenPipeError:  # the reader of stdout is gone
            raise
        except (PoadError, LangEnvsError, OSError) as error:
            fail(str(error))


def is_rank() -> bool:
    """Return whether this process was started as one of several, by `launch_ranks` or torchrun."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def algorithm_name(name: str) -> str:
    """Return the name of an algorithm as its class has it; case does not matter. Imports no algorithm."""
    matching = [candidate for candidate in ALGORITHMS if candidate.lower() == name.lower()]
    if name.upper() == _FROM_PYTHON:
        fail("Expected an algorithm that poad trains; BADQ is trained from Python: poad_sb3.BADQ(...).learn(steps).")
    if not matching:
        fail(f"There is no algorithm {name!r}. {nearest(name.upper(), ALGORITHMS)}")
    return matching[0]


def algorithm(name: str) -> type[LLMOnPolicyAlgorithm]:
    """Return the class that goes by a name; case does not matter."""
    import poad_sb3

    kind: type[LLMOnPolicyAlgorithm] = getattr(poad_sb3, algorithm_name(name))
    return kind


def require_device(device: object) -> None:
    """Refuse a device that this machine lacks; SB3 would silently take the CPU for a missing GPU."""
    import torch

    if device == "auto":
        return
    try:
        torch.zeros(1, device=torch.device(device)).cpu()  # type: ignore[call-overload]
    except (RuntimeError, AssertionError, TypeError, ValueError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        fail(f"Expected a device that torch can use here; got {device!r} ({why}). Fix: --set device=cpu.")


def require_llm(packages: Sequence[str] = ("torch", "peft", "stable_baselines3", "transformers")) -> None:
    """Exit with one line if the extra `llm` is not installed.

    Args:
        packages: Packages of the extra that the command imports.
    """
    try:
        for name in packages:
            importlib.import_module(name)
    except ImportError as error:
        fail(
            f"Expected the packages of the extra 'llm'; {error.name} is not installed. "
            f"Fix: {install_command('cli,llm')}."
        )


def moved_model(settings: Sequence[str] | None) -> dict[str, Any]:
    """Return the present place of the base model, from NAME=VALUE.

    Other settings are refused: they would make another policy of the same weights.
    """
    given = parse_settings("--set", settings or (), fail)
    moved = given.pop(MERGED, {})
    if given or not isinstance(moved, dict) or not moved.keys() <= set(MOVABLE):
        names = " or ".join(f"{MERGED}.{name}" for name in MOVABLE)
        fail(f"Expected {names} after --set; got {' '.join(settings or ())}. Fix: leave the rest out.")
    return moved


def environments(
    env_id: str,
    env_kwargs: dict[str, Any],
    n_envs: int,
    *,
    ray: str | None = None,
    n_actors: int | None = None,
) -> VecEnv:
    """Make the environments of an algorithm, in this process or in actors of Ray, or fail with one line."""
    from poad_sb3.distributed.ray_vec_env import make_ray_envs
    from poad_sb3.vec_env.make_envs import make_envs
    from poad_sb3.vec_env.text_observations import wrap_language_env

    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # for module:Id-v0; last, so that installed modules come first
    try:
        if ray is None:
            envs = make_envs(env_id, env_kwargs, n_envs)
        else:
            envs = make_ray_envs(env_id, env_kwargs, n_envs, n_actors, ray)
        wrap_language_env(envs)
    except Exception as error:  # a module or an environment may raise anything
        fail(f"{env_id} cannot be made: {error}")
    return envs
