"""The exceptions of measuring, one tree. Messages have the expected value, the actual one, and the fix."""

from __future__ import annotations


class BenchmarkError(Exception):
    """Root of every error raised on purpose by `lang_bench` and the studies."""


class ResultFileError(BenchmarkError):
    """A results file that cannot be read, written, or gone on with as asked."""


class FileBusyError(ResultFileError):
    """A results file that another process is writing."""


class FailedError(BenchmarkError):
    """Work that raised an error.

    Args:
        message: Description of the work and its failure.
        trace: Traceback of the original error; as text, so that it passes between processes.
    """

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message, trace)
        self.trace = trace

    def __str__(self) -> str:
        return str(self.args[0])


class AgentFailedError(FailedError):
    """An agent that raised an error, or did not answer as the protocol asks."""
