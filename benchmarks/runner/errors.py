"""The exceptions of the runner, one tree. Messages say what was expected, what came, and the fix."""

from __future__ import annotations

__all__ = ["AgentFailedError", "BenchmarkError", "FileBusyError", "ResultFileError"]


class BenchmarkError(Exception):
    """Root of every error raised on purpose by the runner."""


class ResultFileError(BenchmarkError):
    """A results file that cannot be read, written, or gone on with as asked."""


class FileBusyError(ResultFileError):
    """A results file that another process is writing."""


class AgentFailedError(BenchmarkError):
    """An agent that raised an error, or did not answer as the protocol asks.

    Args:
        message: Which episode it was, and what came of it.
        trace: The error it came from, as Python shows it; text, so that it passes between processes.
    """

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message, trace)
        self.trace = trace

    def __str__(self) -> str:
        return str(self.args[0])
