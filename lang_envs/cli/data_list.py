"""The list of `lang-envs data`: a line for every table, and what there is to say of those that have to be fetched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich.text import Text

from lang_envs.cli.common import console

if TYPE_CHECKING:
    from lang_envs.datasets import DatasetRow
    from lang_envs.datasets.manifest import Manifest
    from lang_envs.datasets.store import Receipt

__all__ = ["licence_of", "show_list"]

_WIDTH = 80  # that the list fits in
_DIGITS = 6  # of a SHA-256 that nobody could compute before
_SHORT = 10  # characters of a licence that stands in its column
_STYLES = {"yes": "green", "no": "yellow", "damaged": "bold red"}


class _Row(NamedTuple):
    """A table as the list shows it."""

    name: str
    source: str
    rows: str
    classes: str
    here: str
    verified: str
    licence: str


def show_list() -> None:
    """Print the tables, those first that have to be fetched.

    Raises:
        StorageError: If there can be no folder of tables, or it must not be read.
    """
    from lang_envs.datasets import DATASETS
    from lang_envs.datasets.store import data_folder

    console().print(Text(f"tables in {data_folder()}, a folder each", style="italic"), soft_wrap=True)
    wanted = {name: row.manifest for name, row in DATASETS.items() if row.manifest is not None}
    names = [*wanted, *(name for name in DATASETS if name not in wanted)]
    _show_rows([_row(name, DATASETS[name]) for name in names])
    console().print()
    for manifest in wanted.values():
        _show_note(manifest)
    _show_known_labels()


def _show_rows(rows: Sequence[_Row]) -> None:
    """Aligned, and never broken: what is wider than a terminal is the terminal's to break."""
    table = [_Row._make(_Row._fields), *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    gap = "  " if sum(widths) + 2 * (len(widths) - 1) <= _WIDTH else " "
    for row in table:
        padded = _Row._make(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        numbers = {key: getattr(row, key).rjust(len(getattr(padded, key))) for key in ("rows", "classes")}
        cells = [Text(cell) for cell in padded._replace(**numbers)]
        if row is table[0]:
            styles = ["bold"] * len(cells)
        else:
            verified = "green" if row.verified == "yes" else "yellow"
            styles = ["cyan", "", "", "", _STYLES[row.here], verified, ""]
        for cell, style in zip(cells, styles, strict=True):
            cell.stylize(style)
        line = Text(gap).join(cells)
        line.rstrip()
        console().print(line, soft_wrap=True)


def _row(name: str, row: DatasetRow) -> _Row:
    from lang_envs.datasets import store
    from lang_envs.datasets.plain import printable

    n, classes = f"{row.shape[0]:,}", str(row.classes)
    if row.manifest is None:
        source = "scikit-learn" if row.source.startswith("scikit-learn") else "generated"
        licence, _, _ = row.licence.partition(",")
        return _Row(name, source, n, classes, "yes", "yes", licence.removesuffix("-Clause"))
    source = row.manifest.service.label
    if source == "OpenML":
        source += f" {row.manifest.id}"
    receipt = store.read_receipt(name)
    licence = "" if receipt is None else printable(receipt.origin.licence)
    licence = licence if 0 < len(licence) <= _SHORT else "see below"
    here = _here(row.manifest)
    return _Row(name, source, n, classes, here, _verified(receipt) if here == "yes" else "", licence)


def _here(wanted: Manifest) -> str:
    from lang_envs.datasets import store

    try:
        if not (store.table_folder(wanted.name) / store.ARRAYS_FILE).exists():
            return "no"
        return "yes" if store.is_whole(wanted) else "damaged"
    except OSError:  # what must not be read is no better
        return "damaged"


def _verified(receipt: Receipt | None) -> str:
    if receipt is None:
        return ""
    if receipt.verified or any(checked.verified for checked in receipt.recipes.values()):
        return "yes"
    return f"recorded {receipt.sha256[:_DIGITS]}"


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


def _show_known_labels() -> None:
    """Say how the labels of every table can be known without learning."""
    from lang_envs.datasets import DATASETS

    by_way: dict[str, list[str]] = {}
    for name, row in DATASETS.items():
        by_way.setdefault(row.known_labels, []).append(name)
    ways = "; ".join(f"{way}: {', '.join(names)}" for way, names in by_way.items())
    told = f"labels that a program can hold without learning, {ways}. "
    told += "DataSciCoding-generated-v0 has a new table in every episode."
    here = console()
    here.print()
    here.print(Text.assemble(("memorizable", "cyan"), ": ", told), soft_wrap=not here.is_terminal)


def licence_of(wanted: Manifest, receipt: Receipt | None) -> str:
    """What is known of the licence of a table: from its service if that was told, else from its manifest."""
    from lang_envs.datasets.plain import printable

    if receipt is None or not receipt.origin.licence:
        return wanted.licence
    return f"{printable(receipt.origin.licence)}, as {wanted.service.label} states"
