"""What can go wrong with the sandbox itself; what goes wrong inside it is an outcome, never an exception."""

from lang_envs.errors import LangEnvsError

__all__ = ["SandboxError", "SandboxUnavailableError", "SandboxWarning"]


class SandboxError(LangEnvsError, RuntimeError):
    """The sandbox cannot be started or reached."""


class SandboxUnavailableError(SandboxError):
    """This machine cannot confine code as required."""


class SandboxWarning(UserWarning):
    """Code runs with less confinement than there should be."""
