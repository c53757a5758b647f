"""Errors of studies."""

from __future__ import annotations

from lang_bench.runner.errors import BenchmarkError, FailedError


class StudyError(BenchmarkError, ValueError):
    """A study that cannot be done as asked."""


class NotTunedError(StudyError):
    """Final runs were requested before all methods had been tuned over the same settings on the same seeds."""


class JobFailedError(FailedError):
    """A job of a study that raised an error."""
