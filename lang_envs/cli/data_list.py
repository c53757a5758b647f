"""The list of `lang-envs data`: a line for every table, and notes on those that have to be fetched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from lang_envs.cli.common import console
from lang_envs.datasets.manifest import Service
from lang_envs.text import printable

if TYPE_CHECKING:
    from lang_envs.datasets import DatasetRow
    from lang_envs.datasets.manifest import Manifest
    from lang_envs.datasets.store import Receipt

_DIGITS = 6  # of a SHA-256 that nobody could compute before
_SHORT = 10  # characters of a licence that stands in its column
_STYLES = {"yes": "green", "no": "yellow", "damaged": "bold red"}


def show_list() -> None:
    """Print the tables, those first that have to be fetched.

    Raises:
        StorageError: If there can be no folder of tables, or it must not be read.
    """
    from lang_envs.datasets import DATASETS
    from lang_envs.datasets.store import data_folder

    here = console()
    here.print(Text(f"tables in {data_folder()}, a folder each", style="italic"), soft_wrap=True)
    wanted = {name: row.manifest for name, row in DATASETS.items() if row.manifest is not None}
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for head in ("name", "source", "rows", "classes", "here", "verified", "licence"):
        table.add_column(head, justify="right" if head in ("rows", "classes") else "left", no_wrap=True)
    for name in [*wanted, *(name for name in DATASETS if name not in wanted)]:
        table.add_row(*_cells(name, DATASETS[name]))
    here.print(table)
    here.print()
    for manifest in wanted.values():
        _show_note(manifest)
    by_way: dict[str, list[str]] = {}
    for name, row in DATASETS.items():
        by_way.setdefault(row.known_labels, []).append(name)
    ways = "; ".join(f"{way}: {', '.join(names)}" for way, names in by_way.items())
    told = f"labels that a program can hold without learning, {ways}. "
    told += "DataSciCoding-generated-v0 has a new table in every episode."
    here.print()
    here.print(Text.assemble(("memorizable", "cyan"), ": ", told), soft_wrap=not here.is_terminal)


def _cells(name: str, row: DatasetRow) -> list[Text]:
    """The row of a table in the list."""
    from lang_envs.datasets import store

    source = "scikit-learn" if row.source.startswith("scikit-learn") else "generated"
    here = verified = "yes"
    licence = row.licence.partition(",")[0].removesuffix("-Clause")
    if row.manifest is not None:
        source = row.manifest.service.label + (f" {row.manifest.id}" if row.manifest.service is Service.OPENML else "")
        receipt = store.read_receipt(name)
        licence = "" if receipt is None else printable(receipt.origin.licence)
        licence = licence if 0 < len(licence) <= _SHORT else "see below"
        here = _here(row.manifest)
        verified = ""
        if here == "yes" and receipt is not None:
            known = receipt.verified or any(checked.verified for checked in receipt.recipes.values())
            verified = "yes" if known else f"recorded {receipt.sha256[:_DIGITS]}"
    styles = ["cyan", "", "", "", _STYLES[here], "green" if verified == "yes" else "yellow", ""]
    cells = [name, source, f"{row.shape[0]:,}", str(row.classes), here, verified, licence]
    return [Text(cell, style=style) for cell, style in zip(cells, styles, strict=True)]


def _here(wanted: Manifest) -> str:
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
    told = f"{rows}. Licence: {licence_of(wanted, read_receipt(wanted.name))}."
    note, here = Text.assemble((wanted.name, "cyan"), ": ", told), console()
    if here.is_terminal:  # broken between words, and an address never
        here.print(note)
        here.print(Text(f"  {wanted.page}"), soft_wrap=True)
    else:
        here.print(note, Text(wanted.page), soft_wrap=True)


def licence_of(wanted: Manifest, receipt: Receipt | None) -> str:
    """The licence of a table: as its service states it, or else from the manifest."""
    if receipt is None or not receipt.origin.licence:
        return wanted.licence
    return f"{printable(receipt.origin.licence)}, as {wanted.service.label} states"
