"""The command `lang-envs`: look at environments, play them, check them, watch an agent."""

from __future__ import annotations

import sys
from collections.abc import Callable

from lang_envs.errors import MissingExtraError

__all__ = ["load_app", "main"]

_UNUSABLE = 2
"""Exit code; 1 would be the "reduced" of `lang-envs sandbox doctor`."""


def load_app() -> Callable[[], None]:
    """The command line, which needs packages that environments do not.

    Raises:
        MissingExtraError: If they are not installed.
    """
    try:
        from lang_envs.cli.app import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("rich", "typer"):
            raise
        raise MissingExtraError(
            f"The lang-envs command needs {error.name}, which is not installed. "
            'Fix: pip install -c constraints.txt -e ".[cli]"'
        ) from error
    return app


def main() -> None:
    """Entry point of `lang-envs`."""
    try:
        app = load_app()
    except MissingExtraError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(_UNUSABLE)
    app()
