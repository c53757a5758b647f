"""The command `poad`: train, evaluate, and look at presets."""

from __future__ import annotations

import sys
from collections.abc import Callable

from lang_envs.errors import MissingExtraError

__all__ = ["load_app", "main"]

_UNUSABLE = 2


def load_app() -> Callable[[], None]:
    """The command line, which needs packages that algorithms do not.

    Raises:
        MissingExtraError: If they are not installed.
    """
    try:
        from poad_sb3.cli.app import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("rich", "typer"):
            raise
        raise MissingExtraError(
            f"The poad command needs {error.name}, which is not installed. "
            'Fix: pip install -c constraints.txt -e ".[cli,llm]"'
        ) from error
    return app


def main() -> None:
    """Entry point of `poad`."""
    try:
        app = load_app()
    except MissingExtraError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(_UNUSABLE)
    app()
