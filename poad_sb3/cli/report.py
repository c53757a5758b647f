"""`poad report`: learning curves and recorded episodes as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lang_envs.cli.common import echo
from poad_sb3.cli.common import require_llm


def report(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs.")],
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The file; report.html in the first folder by default.")
    ] = None,
    pictures: Annotated[int, typer.Option(min=0, help="Episodes that are played again for their pictures.")] = 20,
    shown: Annotated[
        int | None, typer.Option("--episodes-shown", min=0, help="Episodes whose steps are kept; all by default.")
    ] = None,
) -> None:
    """Write learning curves and recorded episodes of runs as one HTML file."""
    require_llm()
    from lang_envs.report import size_lines, write_report
    from poad_sb3.runs.reporting import report_of_runs

    path = html or folders[0] / "report.html"
    write_report(report_of_runs(folders), path, pictures=pictures, shown=shown)
    for line in size_lines(path):
        echo(line)
