"""`lang-envs data`: the tables of DataSciCoding on this machine, and how more of them come here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from lang_envs.cli.common import console, fail
from lang_envs.errors import LangEnvsError

if TYPE_CHECKING:
    from lang_envs.datascicoding.datasets import DatasetRow
    from lang_envs.datascicoding.datasets.fetching import Progress as Stage
    from lang_envs.datascicoding.datasets.fetching import Watch
    from lang_envs.datascicoding.datasets.manifest import Manifest
    from lang_envs.datascicoding.datasets.store import Receipt

__all__ = ["data_app"]

data_app = typer.Typer(
    help="The tables of DataSciCoding: which are here, and how to get the others.", invoke_without_command=True
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A table of `lang-envs data list`.")]


@data_app.callback()
def data(context: typer.Context) -> None:
    """List the tables if no command is given."""
    if context.invoked_subcommand is None:
        list_tables()


@data_app.command("list")
def list_tables() -> None:
    """List the tables: where they are from, their size, where they are, whether they are verified."""
    from lang_envs.datascicoding.datasets import DATASETS
    from lang_envs.datascicoding.datasets.store import data_folder

    columns = ("name", "source", "rows", "classes", "here", "verified", "licence")
    table = Table(*columns, box=None, title=Text(f"tables in {data_folder()}", overflow="fold"), title_justify="left")
    for name, row in DATASETS.items():
        source, _, _ = row.source.partition(";")
        here, verified, licence = _state(name, row)
        cells = (Text(name, style="cyan", no_wrap=True), Text(source, overflow="fold"), Text(_rows(row)))
        table.add_row(*cells, Text(str(row.classes)), here, verified, Text(licence))
    console().print(table)


def _rows(row: DatasetRow) -> str:
    n = f"{row.shape[0]:,}"
    return n if row.manifest is None else f"{n} of {row.manifest.shape[0]:,}"


def _state(name: str, row: DatasetRow) -> tuple[Text, Text, str]:
    """Whether a table is here, whether it is verified, and its licence."""
    from lang_envs.datascicoding.datasets.store import read_receipt

    if row.manifest is None:
        return Text("always", style="green"), Text("yes", style="green"), row.licence
    receipt = read_receipt(name)
    if receipt is None:
        return Text("no", style="yellow"), Text(""), row.licence
    return Text(f"{name}/", style="green"), _verified(receipt), _licence(row.manifest, receipt)


def _licence(wanted: Manifest, receipt: Receipt | None) -> str:
    return receipt.origin.licence if receipt is not None and receipt.origin.licence else wanted.licence


def _verified(receipt: Receipt) -> Text:
    if receipt.verified or any(checked.verified for checked in receipt.recipes.values()):
        return Text("yes", style="green")
    return Text(f"unverified ({receipt.sha256[:12]})", style="yellow")


@data_app.command()
def fetch(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Tables of `lang-envs data list`, or all.")],
    file: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="A file that you downloaded by hand.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Fetch what is here already.")] = False,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds without a byte until the service counts as dead.")
    ] = 30.0,
) -> None:
    """Fetch tables from OpenML or Kaggle; what was cut off goes on where it stopped.

    Exit codes: 3 the service does not know it, 4 not allowed, 5 the service failed, 6 it said nothing for too long,
    7 not reachable, 8 another file than expected, 9 it cannot be stored, 10 the connection broke off.
    """
    from lang_envs.datascicoding.datasets import fetching
    from lang_envs.datascicoding.datasets.manifest import MANIFEST_NAMES

    chosen = {name: _manifest(name) for name in (MANIFEST_NAMES if names == ["all"] else names)}
    if file is not None and len(chosen) != 1:
        fail(f"Expected one table for one file; got {len(chosen)}.")
    for name, wanted in chosen.items():
        if wanted is None:
            console().print(f"{name}: comes with the package, nothing to fetch", markup=False, highlight=False)
            continue
        with _reported():
            if file is not None:
                receipt = fetching.fetch_by_hand(wanted, file.expanduser())
            else:
                with _progress_bar(name) as watch:
                    receipt = fetching.fetch(wanted, force=force, timeout=timeout, watch=watch)
        _show_receipt(wanted, receipt)


@data_app.command()
def verify(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME...", help="All that are here by default.")] = None,
) -> None:
    """Make the arrays again from the files, and compare them with what is known; exit code 8 if anything differs."""
    from lang_envs.datascicoding.datasets import store
    from lang_envs.datascicoding.datasets.manifest import MANIFEST_NAMES

    here = [name for name in MANIFEST_NAMES if store.table_folder(name).exists()]
    if not here and not names:
        console().print(f"no tables in {store.data_folder()}", markup=False, highlight=False, soft_wrap=True)
    for name in names or here:
        wanted = _manifest(name)
        if wanted is None:
            console().print(
                f"{name}: made or brought by a package; its digest is tested", markup=False, highlight=False
            )
            continue
        with _reported():
            receipt = store.verify(wanted)
        _show_receipt(wanted, receipt)


@data_app.command()
def path(name: Name) -> None:
    """Print where the file of a table is; exit code 1 if it is not here."""
    from lang_envs.datascicoding.datasets.store import read_receipt, table_folder

    if _manifest(name) is None:
        fail(f"{name} has no file: it is generated, or comes with a package.")
    receipt = read_receipt(name)
    if receipt is None:
        fail(f"{name} is not in {table_folder(name)}. Fix: `lang-envs data fetch {name}`.")
    typer.echo(table_folder(name) / receipt.file)


def _manifest(name: str) -> Manifest | None:
    from lang_envs.datascicoding.datasets import DATASETS

    if name not in DATASETS:
        fail(f"Expected one of {', '.join(DATASETS)}; got {name!r}.")
    return DATASETS[name].manifest


@contextlib.contextmanager
def _reported() -> Iterator[None]:
    """Errors of data as one line and the exit code of their kind."""
    from lang_envs.datascicoding.datasets.errors import DataError

    try:
        yield
    except DataError as error:
        typer.echo(f"lang-envs: {error}", err=True)
        raise typer.Exit(error.exit_code) from error
    except LangEnvsError as error:
        fail(str(error))
    except KeyboardInterrupt:
        fail("stopped; the next fetch goes on from here.")


@contextlib.contextmanager
def _progress_bar(name: str) -> Iterator[Watch]:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    # on the thread of the caller: the process that fetches is watched from here, and nothing else happens meanwhile
    with Progress(*columns, console=console(), transient=True) as bar:
        task = bar.add_task(name, total=None)

        def watch(stage: Stage) -> None:
            told = name if stage.stage == "fetching" else f"{name}: {_stage(stage)}"
            if stage.stage == "again":
                bar.console.print(Text(f"{name}: {stage.detail}", style="yellow"))
            bar.update(task, description=told, completed=stage.done or None, total=stage.total or None)

        yield watch


def _stage(stage: Stage) -> str:
    return {"waiting": stage.detail, "again": "trying again", "preparing": "making arrays"}[stage.stage]


def _show_receipt(wanted: Manifest, receipt: Receipt) -> None:
    from lang_envs.datascicoding.datasets.store import table_folder

    state = "verified" if receipt.verified else "unverified: nobody could compute its SHA-256 before"
    facts = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    rows = [
        ("file", f"{table_folder(wanted.name) / receipt.file} ({receipt.size:,} bytes; {receipt.origin.by})"),
        ("SHA-256", f"{receipt.sha256} ({state})"),
    ]
    if receipt.origin.checked:
        rows.append(("checked", f"{receipt.origin.checked}, as the service states"))
    for name, checked in receipt.recipes.items():
        rows.append((f"{name} arrays", f"{checked.digest} ({'verified' if checked.verified else 'unverified'})"))
    rows.append(("licence", _licence(wanted, receipt)))
    for key, value in rows:
        facts.add_row(Text(key, style="bold", no_wrap=True), Text(value, overflow="fold"))
    console().print(Text(wanted.name, style="cyan"))
    console().print(facts)
