"""The command `lang-envs`: look at environments, play them, check them, watch an agent."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from lang_envs.errors import MissingExtraError, install_command

__all__ = ["load_app", "main", "run_app"]

_UNUSABLE = 2
"""Exit code; 1 would mean the verdict "reduced" of `lang-envs sandbox doctor`."""


def load_app(module: str = "lang_envs.cli.app", command: str = "lang-envs", extras: str = "cli") -> Callable[[], Any]:
    """Load a command line, whose packages may be missing.

    Args:
        module: Module that holds `app`.
        command: Name of the command, for the error.
        extras: Extras of this package that install the packages.

    Raises:
        MissingExtraError: If the packages are not installed.
    """
    try:
        app: Callable[[], Any] = importlib.import_module(module).app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("rich", "typer"):
            raise
        raise MissingExtraError(
            f"The {command} command needs {error.name}, which is not installed. Fix: {install_command(extras)}"
        ) from error
    return app


def run_app(*which: str) -> None:
    """Run the command line that `load_app` loads; without its packages, say so in one line."""
    try:
        app = load_app(*which)
    except MissingExtraError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(_UNUSABLE)
    app()


def main() -> None:
    """Run the command `lang-envs`."""
    run_app()
