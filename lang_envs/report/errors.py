"""The error of reports."""

from lang_envs.errors import LangEnvsError

__all__ = ["ReportError"]


class ReportError(LangEnvsError, ValueError):
    """A results file that cannot be read, or a page that cannot be written."""
