"""Reports: recorded episodes, scores and learning curves as one HTML file."""

from lang_envs.report.errors import ReportError
from lang_envs.report.results import Results, check, read_results

__all__ = ["ReportError", "Results", "check", "read_results"]
