"""`poad report`: learning curves and recorded episodes as one HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from lang_envs.errors import LangEnvsError
from lang_envs.report import size_lines, write_report
from poad_sb3.cli.common import fail
from poad_sb3.errors import PoadError
from poad_sb3.runs.reporting import report_of_runs

FILE = "report.html"
"""Name of the report in the folder of a run."""


def write_run_report(
    console: Console, folders: Sequence[Path], html: Path | None, *, pictures: int = 20, shown: int | None = None
) -> None:
    """Write the report of some runs, and print its path; fail with one line.

    Args:
        console: Console to print to.
        folders: Folders of the runs.
        html: Path of the file; `report.html` in the first folder by default.
        pictures: Number of episodes that are played again for their pictures.
        shown: Maximum number of episodes whose steps are kept; None for all.
    """
    path = html or folders[0] / FILE
    try:
        write_report(report_of_runs(folders), path, pictures=pictures, shown=shown)
    except (PoadError, LangEnvsError, OSError) as error:
        fail(str(error))
    for line in size_lines(path):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
