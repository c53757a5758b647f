"""What can go wrong with a study."""

from __future__ import annotations

from benchmarks.runner.errors import BenchmarkError

__all__ = ["JobFailedError", "NotTunedError", "StudyError"]


class StudyError(BenchmarkError, ValueError):
    """A study that cannot be done as asked."""


class NotTunedError(StudyError):
    """Final runs were asked for before all methods had been tuned over the same settings on the same seeds."""


class JobFailedError(BenchmarkError):
    """A job that raised an error.

    Args:
        message: Which, and what came of it.
        trace: The error it came from, as Python shows it; text, so that it passes between processes.
    """

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message, trace)
        self.trace = trace

    def __str__(self) -> str:
        return str(self.args[0])
