"""The exceptions of `lang_envs`, one tree.

Messages follow one shape: expected value, actual value, fix.
"""

from pathlib import Path

__all__ = [
    "ActionError",
    "EncodingError",
    "InfoError",
    "LangEnvsError",
    "MissingExtraError",
    "RenderModeError",
    "RewardError",
    "StateError",
    "TokenizerError",
    "install_command",
]

_CONSTRAINTS_FILE = Path(__file__).parent.parent / "constraints.txt"
"""File that marks a checkout; beside an installed wheel it does not exist."""


class LangEnvsError(Exception):
    """Root of every error raised on purpose by this package."""


class TokenizerError(LangEnvsError, ValueError):
    """A tokenizer that is unknown, unusable or cannot be loaded."""


class EncodingError(LangEnvsError, ValueError):
    """A text that a `TokenSequence` cannot hold without losing part of it."""


class ActionError(LangEnvsError, ValueError):
    """An action of the wrong type, shape or range (a wrong *text* is never an error)."""


class InfoError(LangEnvsError, ValueError):
    """An `info` of a reset or step without the fields that the contract of environments promises."""


class RewardError(LangEnvsError, TypeError):
    """A reward that is no single number, or not finite where it is counted."""


class RenderModeError(LangEnvsError, ValueError, TypeError):
    """An unknown render mode; also a TypeError, by which SB3's `make_vec_env` notices that there are no images."""


class StateError(LangEnvsError, ValueError):
    """A state that is damaged, or belongs to another environment."""


class MissingExtraError(LangEnvsError, ImportError):
    """An optional dependency is absent; the message names the extra that brings it."""


def missing_extra(extras: str, needed: str) -> MissingExtraError:
    """Return the error where a package is absent.

    Args:
        extras: Names of the extras that bring it, with commas between.
        needed: The package and what it is for, in words.
    """
    return MissingExtraError(f"Expected {needed}; it is not installed. Fix: {install_command(extras)}.")


def install_command(extras: str) -> str:
    """Return the command that adds extras to this installation, a checkout or a wheel.

    Args:
        extras: Names of the extras, with commas between.
    """
    if _CONSTRAINTS_FILE.is_file():
        return f'pip install -c constraints.txt -e ".[{extras}]"'
    return f'pip install "lang-envs[{extras}]"'  # pip takes the version that is installed, and asks no index for it
