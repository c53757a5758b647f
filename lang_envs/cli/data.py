"""`lang-envs data`: the tables of DataSciCoding on this machine, and how more of them come here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from lang_envs.cli.common import console, echo, fail
from lang_envs.datasets.manifest import Service
from lang_envs.errors import LangEnvsError
from lang_envs.text import nearest, printable

if TYPE_CHECKING:
    from lang_envs.datasets import DatasetRow
    from lang_envs.datasets.fetching import Progress as Stage
    from lang_envs.datasets.fetching import Watch
    from lang_envs.datasets.manifest import Manifest
    from lang_envs.datasets.store import Receipt

_DIGITS = 6  # of a SHA-256 computed for the first time
_SHORT = 10  # characters of a licence that stands in its column
_STYLES = {"yes": "green", "no": "yellow", "damaged": "bold red"}

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
    """List the tables: where they are from, their size, whether they are here and verified, their licence."""
    codes: list[int] = []
    with _reported(codes):
        _show_list()
    _leave(codes)


def _show_list() -> None:
    """Print the tables, first those that have to be fetched.

    Raises:
        StorageError: If the folder of tables cannot exist or must not be read.
    """
    from lang_envs.datasets import DATASETS
    from lang_envs.datasets.store import data_folder

    out = console()
    out.print(Text(f"tables in {data_folder()}, a folder each", style="italic"), soft_wrap=True)
    wanted = {name: row.manifest for name, row in DATASETS.items() if row.manifest is not None}
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for head in ("name", "source", "rows", "classes", "here", "verified", "licence"):
        table.add_column(head, justify="right" if head in ("rows", "classes") else "left", no_wrap=True)
    for name in [*wanted, *(name for name in DATASETS if name not in wanted)]:
        table.add_row(*_cells(name, DATASETS[name]))
    out.print(table)
    out.print()
    for manifest in wanted.values():
        _show_note(manifest)
    by_way: dict[str, list[str]] = {}
    for name, row in DATASETS.items():
        by_way.setdefault(row.known_labels, []).append(name)
    ways = "; ".join(f"{way}: {', '.join(names)}" for way, names in by_way.items())
    note = f"labels that a program can hold without learning, {ways}. "
    note += "DataSciCoding-generated-v0 has a new table in every episode."
    out.print()
    out.print(Text.assemble(("memorizable", "cyan"), ": ", note), soft_wrap=not out.is_terminal)


def _cells(name: str, row: DatasetRow) -> list[Text]:
    """Return the row of a table in the list."""
    from lang_envs.datasets import store

    source = "scikit-learn" if row.source.startswith("scikit-learn") else "generated"
    state = verified = "yes"
    licence = row.licence.partition(",")[0].removesuffix("-Clause")
    if row.manifest is not None:
        source = row.manifest.service.label + (f" {row.manifest.id}" if row.manifest.service is Service.OPENML else "")
        receipt = store.read_receipt(name)
        licence = "" if receipt is None else printable(receipt.origin.licence)
        licence = licence if 0 < len(licence) <= _SHORT else "see below"
        state = _presence(row.manifest)
        verified = ""
        if state == "yes" and receipt is not None:
            is_verified = receipt.verified or any(checked.verified for checked in receipt.recipes.values())
            verified = "yes" if is_verified else f"recorded {receipt.sha256[:_DIGITS]}"
    styles = ["cyan", "", "", "", _STYLES[state], "green" if verified == "yes" else "yellow", ""]
    cells = [name, source, f"{row.shape[0]:,}", str(row.classes), state, verified, licence]
    return [Text(cell, style=style) for cell, style in zip(cells, styles, strict=True)]


def _presence(wanted: Manifest) -> str:
    from lang_envs.datasets import store

    try:
        if not (store.table_folder(wanted.name) / store.ARRAYS_FILE).exists():
            return "no"
        return "yes" if store.is_whole(wanted) else "damaged"
    except OSError:  # a table that must not be read is no better
        return "damaged"


def _show_note(wanted: Manifest) -> None:
    from lang_envs.datasets.store import read_receipt

    rows = f"{wanted.arrays[0]:,} of {wanted.shape[0]:,} rows"
    text = f"{rows}. Licence: {_licence_of(wanted, read_receipt(wanted.name))}."
    note, out = Text.assemble((wanted.name, "cyan"), ": ", text), console()
    if out.is_terminal:  # broken between words, and an address never
        out.print(note)
        out.print(Text(f"  {wanted.page}"), soft_wrap=True)
    else:
        out.print(note, Text(wanted.page), soft_wrap=True)


def _licence_of(wanted: Manifest, receipt: Receipt | None) -> str:
    """Return the licence of a table: as its service states it, or else from the manifest."""
    if receipt is None or not receipt.origin.licence:
        return wanted.licence
    return f"{printable(receipt.origin.licence)}, as {wanted.service.label} states"


# ---------------------------------------------------------------------- fetch, verify, path


@data_app.command()
def fetch(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Tables of `lang-envs data list`, or all.")],
    file: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="A file that you downloaded by hand.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Fetch what is here already.")] = False,
    timeout: Annotated[
        float, typer.Option(min=0.1, max=86400, help="Seconds without a byte until the service counts as dead.")
    ] = 30.0,
) -> None:
    """Fetch tables from OpenML or Kaggle.

    Of several tables, one that fails does not keep the others from being fetched.

    Exit codes, of the first that failed: 3 the service does not know it, 4 not allowed, 5 the service failed,
    6 it timed out, 7 not reachable, 8 another file than expected, 9 it cannot be stored,
    10 the connection broke off.
    """
    from lang_envs.datasets.manifest import MANIFEST_NAMES

    chosen = _manifests(names, MANIFEST_NAMES)
    if file is not None:
        if len(chosen) != 1:
            fail(f"Expected one table for one file; got {len(chosen)}. Fix: a command of its own for each table.")
        with contextlib.suppress(RuntimeError):  # `~name` without such a user may be the name of a folder
            file = file.expanduser()
    codes: list[int] = []
    for name, wanted in chosen.items():
        if wanted is None:
            _say(f"{name}: comes with the package, nothing to fetch")
            continue
        with _reported(codes):
            _fetch(wanted, file, force=force, timeout=timeout)
    _leave(codes)


def _fetch(wanted: Manifest, file: Path | None, *, force: bool, timeout: float) -> None:
    from lang_envs.datasets import fetching, store

    if file is not None:
        _show_receipt(wanted, fetching.fetch_by_hand(wanted, file))
        return
    before = store.read_receipt(wanted.name)
    with _progress_bar(wanted.name) as watch:
        receipt = fetching.fetch(wanted, force=force, timeout=timeout, watch=watch)
    same = not force and receipt == before
    _show_receipt(wanted, receipt, ": already here, nothing fetched" if same else "")


@data_app.command()
def verify(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME...", help="All that are here by default.")] = None,
) -> None:
    """Make the arrays again from the files, and verify both digests; exit code 8 if any differs."""
    from lang_envs.datasets import store
    from lang_envs.datasets.manifest import MANIFEST_NAMES

    codes: list[int] = []
    present: list[str] = []
    with _reported(codes), store.storage_errors(store.data_folder()):
        present = [name for name in MANIFEST_NAMES if store.table_folder(name).exists()]
        if not present and not names:
            _say(f"no tables in {store.data_folder()}")
    for name, wanted in _manifests(names or ["all"], present).items():
        if wanted is None:
            _say(f"{name}: made or brought by a package; its digest is tested")
            continue
        with _reported(codes):
            _show_receipt(wanted, store.verify(wanted))
    _leave(codes)


@data_app.command()
def path(name: Name) -> None:
    """Print where the file of a table is; exit code 1 if it is not here."""
    from lang_envs.datasets.store import ARRAYS_FILE, read_receipt, table_folder

    if _manifests([name])[name] is None:
        fail(f"{name} has no file: it is generated, or comes with a package.")
    codes: list[int] = []
    with _reported(codes):
        folder, receipt = table_folder(name), read_receipt(name)
        if receipt is not None and (folder / receipt.file).is_file():
            echo(folder / receipt.file)
            return
        if receipt is not None:
            problem = f"Expected {receipt.file!r} in {folder}; only the arrays that were made of it are there."
        elif (folder / ARRAYS_FILE).exists():
            problem = f"Expected the {name} table in {folder}; what is there is damaged."
        else:
            fail(f"{name} is not in {folder}. {_fix(name)}")
        fail(f"{problem} {_fix(name, ' --force')}")
    _leave(codes)


def _fix(name: str, option: str = "") -> str:
    command = f"lang-envs data fetch {name}"
    return f"Fix: `{command}{option}`, or with a file that you have, `{command} --from FILE`."


def _manifests(names: Sequence[str], everything: Sequence[str] = ()) -> dict[str, Manifest | None]:
    """Return the manifests of tables by their names, each once; None for tables that are always here.

    `"all"` stands for `everything`.
    """
    from lang_envs.datasets import DATASETS

    chosen: dict[str, Manifest | None] = {}
    for name in names:
        if name not in DATASETS and name != "all":
            expected = f"Expected one of {', '.join(DATASETS)}."
            fail(f"There is no table {name!r}. {nearest(name, DATASETS, expected, 1)}")
        chosen |= {table: DATASETS[table].manifest for table in (everything if name == "all" else (name,))}
    return chosen


# ---------------------------------------------------------------------- messages


def _say(line: str, style: str = "") -> None:
    """Print one line without wrapping it."""
    console().print(Text(line, style=style), soft_wrap=True)


@contextlib.contextmanager
def _reported(codes: list[int]) -> Iterator[None]:
    """Tell an error in one line, and append the exit code of its kind."""
    from lang_envs.datasets.errors import DataError

    try:
        yield
    except LangEnvsError as error:
        echo(f"lang-envs: {error}", err=True)
        codes.append(error.exit_code if isinstance(error, DataError) else 1)
    except KeyboardInterrupt:
        fail("stopped; nothing was kept.")


def _leave(codes: Sequence[int]) -> None:
    if codes:
        raise typer.Exit(codes[0])


@contextlib.contextmanager
def _progress_bar(name: str) -> Iterator[Watch]:
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    out = console()
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as bar:
        task = bar.add_task(name, total=None)

        def watch(stage: Stage) -> None:
            stages = {"again": "trying again", "preparing": "making arrays"}
            description = name if stage.stage == "fetching" else f"{name}: {stages[stage.stage]}"
            if stage.stage == "again":
                bar.console.print(Text(f"{name}: {stage.detail}", style="yellow"))
            bar.update(task, description=description, completed=stage.done or None, total=stage.total or None)

        yield watch


def _show_receipt(wanted: Manifest, receipt: Receipt, news: str = "") -> None:
    from lang_envs.datasets.store import table_folder

    state = "verified" if receipt.verified else "unverified: nobody could compute its SHA-256 before"
    path = table_folder(wanted.name) / receipt.file
    facts = {"file": f"{path} ({receipt.size:,} bytes; {receipt.origin.by})", "SHA-256": f"{receipt.sha256} ({state})"}
    if receipt.origin.checked:
        facts["checked"] = f"{printable(receipt.origin.checked)}, as the service states"
    for name, checked in receipt.recipes.items():
        facts[f"{name} arrays"] = f"{checked.digest} ({'verified' if checked.verified else 'unverified'})"
    facts["licence"] = _licence_of(wanted, receipt)
    if receipt.remark:
        facts["remark"] = printable(receipt.remark)
    width = max(map(len, facts))
    lines = [Text.assemble("  ", (key.ljust(width), "bold"), "  ", value) for key, value in facts.items()]
    # never broken, so that a path or a digest can be copied
    console().print(Text("\n").join([Text.assemble((wanted.name, "cyan"), news), *lines]), soft_wrap=True)
