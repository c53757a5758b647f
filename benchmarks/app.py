"""The commands of `python -m benchmarks`: those of `lang-bench`, studies and measurements."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from benchmarks.measurements import MEASUREMENTS
from benchmarks.studies.app import run_study, study_names
from benchmarks.studies.reproduce import reproduce
from lang_bench.app import export, fail, one_line_errors, report, run, submit
from lang_envs.cli.common import console

app = typer.Typer(
    name="python -m benchmarks",
    help="Measure agents on tasks, run studies, and report what was measured.",
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def overview(context: typer.Context) -> None:
    """Measure agents on tasks, run studies, and report what was measured."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        _list("The paper's experiments, each by python -m benchmarks study NAME", study_names())
        _list_measurements()


def _list_measurements() -> None:
    rows = {name: help for name, (_, help) in MEASUREMENTS.items()}
    _list("Measurements of this library, each by python -m benchmarks measure NAME (--help for its options)", rows)


def _list(title: str, names: dict[str, str]) -> None:
    table = Table("name", "what it measures", box=None, title=title, title_justify="left")
    for name, about in names.items():
        table.add_row(Text(name, style="cyan"), Text(about))
    console().print(table)


for command in (run, report, export, submit):
    app.command()(command)
app.command("study")(one_line_errors("benchmarks")(run_study))
app.command("reproduce")(one_line_errors("benchmarks")(reproduce))


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)
@one_line_errors("benchmarks")
def measure(context: typer.Context, name: Annotated[str, typer.Argument(metavar="NAME [OPTIONS]")] = "") -> None:
    """Measure speed, memory, reference scores and others; without a name, list them."""
    if not name or name == "--help":
        _list_measurements()
        return
    if name not in MEASUREMENTS:
        fail(f"Expected a measurement; got {name!r}. Fix: one of {', '.join(MEASUREMENTS)}.")
    module = import_module(f"benchmarks.{MEASUREMENTS[name][0]}")
    command = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    command.command()(getattr(module, name.replace("-", "_")))
    command(context.args, prog_name=f"python -m benchmarks measure {name}")
