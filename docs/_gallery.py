"""The gallery: reports of the demo and of the studies, built from the committed results."""

from __future__ import annotations

from functools import cache

from _tables import ROOT, result, table

from benchmarks.studies.demo import report_of_demo
from benchmarks.studies.engine.html_report import report_of_study
from benchmarks.studies.registry import ALL
from lang_envs.report import Report, build_page

_RESULTS = ROOT / "data" / "results"
DEMO = _RESULTS / "demo"


@cache
def reports() -> dict[str, Report]:
    """Return the reports by name."""
    found = {"demo": report_of_demo(DEMO)}
    for study in ALL:
        found[study.name] = report_of_study(study, result(f"studies/{study.name}"))
    return found


def files() -> dict[str, bytes]:
    """Return the pages by their place in the site."""
    return {f"assets/reports/{name}.html": build_page(report) for name, report in reports().items()}


def gallery() -> str:
    """Show a link to each report with its content."""
    rows = []
    for name, report in reports().items():
        parts = [
            f"{len(part)} {title}" for part, title in ((report.curves, "curves"), (report.episodes, "episodes")) if part
        ]
        rows.append((f"[{name}](assets/reports/{name}.html)", report.title, ", ".join(parts) or "tables and settings"))
    return table(("report", "about", "content"), rows)
