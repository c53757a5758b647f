"""The exceptions of `lang_envs`, one tree.

Messages follow one shape: what was expected, what came, how to fix it.
"""

__all__ = ["ActionError", "EncodingError", "LangEnvsError", "MissingExtraError", "TokenizerError"]


class LangEnvsError(Exception):
    """Root of every error raised on purpose by this package."""


class TokenizerError(LangEnvsError, ValueError):
    """A tokenizer that is unknown, unusable or cannot be loaded."""


class EncodingError(LangEnvsError, ValueError):
    """A text that a `TokenSequence` cannot hold without losing part of it."""


class ActionError(LangEnvsError, ValueError):
    """An action of the wrong type, shape or range (a wrong *text* is never an error)."""


class MissingExtraError(LangEnvsError, ImportError):
    """An optional dependency is absent; the message names the extra that brings it."""
