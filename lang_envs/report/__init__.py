"""Reports: recorded episodes, scores and learning curves as one HTML file."""

from lang_envs.report.building import read_run
from lang_envs.report.data import LearningCurve, Metric, Report, Run, Score, Table
from lang_envs.report.errors import ReportError
from lang_envs.report.page import build_page, size_lines, write_report
from lang_envs.report.results import Results, check, read_results

__all__ = [
    "LearningCurve",
    "Metric",
    "Report",
    "ReportError",
    "Results",
    "Run",
    "Score",
    "Table",
    "build_page",
    "check",
    "read_results",
    "read_run",
    "size_lines",
    "write_report",
]
