"""Errors of the sandbox itself; a failure inside it is an outcome, never an exception."""

import errno

from lang_envs.errors import LangEnvsError

__all__ = ["SandboxError", "SandboxUnavailableError", "SandboxWarning", "fix_of"]

_NO_SPACE = "free space, or set XDG_RUNTIME_DIR to a folder with some"
_NO_ACCESS = "set XDG_RUNTIME_DIR to a folder that you can write to"
_FIXES = {
    errno.EAGAIN: "raise the limit on processes (ulimit -u), or end some of this user's",
    errno.EMFILE: "raise the limit on open files (ulimit -n), or take fewer splits at a time",
    errno.ENFILE: "end programs that hold many files open (fs.file-max)",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.ENOMEM: "free memory, or raise its limit (ulimit -v)",
    errno.ENOSPC: _NO_SPACE,
    errno.EDQUOT: _NO_SPACE,
    errno.EROFS: _NO_ACCESS,
    errno.EACCES: _NO_ACCESS,
}


class SandboxError(LangEnvsError, RuntimeError):
    """The sandbox cannot be started or reached."""


class SandboxUnavailableError(SandboxError):
    """This machine cannot confine code as required."""


def fix_of(error: OSError) -> str:
    """Return the limit of the machine that an error is about, and how to lift it; empty if it is about none."""
    fix = _FIXES.get(error.errno or 0, "")
    return fix and f"Fix: {fix}."


class SandboxWarning(UserWarning):
    """Code runs with less confinement than there should be."""
