"""OpenML: descriptions in XML, tables as ARFF and, in the object store, as parquet."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from .server import Answer, Request, StandIn, serve_bytes

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["OpenmlStandIn", "arff_of", "parquet_of"]

_API = "/api/v1/xml/data/"
_XML = {"Content-Type": "text/xml; charset=utf-8"}
_NAMESPACE = 'xmlns:oml="http://openml.org/openml"'


class OpenmlStandIn(StandIn):
    """The part of OpenML that a download of a table asks.

    Args:
        datasets: Tables by id. Categorical columns are nominal, columns of text are strings, others are numeric; the
            last column is the target.
        without_parquet: Ids with ARFF alone.
        wrong_md5: Ids whose description gives a wrong checksum (it is that of the ARFF).
    """

    def __init__(
        self,
        datasets: Mapping[int, pd.DataFrame],
        *,
        without_parquet: Collection[int] = (),
        wrong_md5: Collection[int] = (),
    ) -> None:
        super().__init__()
        self._datasets = dict(datasets)
        self._without_parquet = without_parquet
        self._wrong_md5 = wrong_md5
        self._arff = {number: arff_of(table, f"dataset_{number}") for number, table in datasets.items()}
        self._parquet = {
            number: parquet_of(table) for number, table in datasets.items() if number not in without_parquet
        }

    @property
    def hosts(self) -> frozenset[str]:
        return frozenset({f"127.0.0.1:{self.port}"})

    def environment(self, home: Path) -> dict[str, str]:
        """As in the base; the client's configuration is written below `home`."""
        variables = super().environment(home)
        config = Path(variables["XDG_CONFIG_HOME"]) / "openml" / "config"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(f"server = {self.proxy}/api/v1/xml\n")
        return {**variables, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}

    def answer(self, request: Request) -> Answer:
        if request.path.startswith(_API):
            return self._describe(request.path.removeprefix(_API))
        for number in self._datasets:
            if request.path == _arff_path(number):
                return serve_bytes(request, self._arff[number], "text/plain; charset=utf-8")
            if request.path == _parquet_path(number) and number in self._parquet:
                return serve_bytes(request, self._parquet[number], "application/octet-stream")
        return Answer(404, b"<html><h1>Not found</h1></html>", {"Content-Type": "text/html"})

    def _describe(self, number: str) -> Answer:
        if not number.isdecimal() or int(number) not in self._datasets:
            return _error(111, "Unknown dataset")
        return Answer(200, self._description(int(number)).encode(), _XML)

    def _description(self, number: int) -> str:
        checked = b"another file" if number in self._wrong_md5 else self._arff[number]
        values = {
            "id": number,
            "name": f"dataset_{number}",
            "version": 1,
            "description": "A table made by a test.",
            "format": "ARFF",
            "upload_date": "2014-04-06T23:19:24",
            "licence": "Public",
            "url": f"{self.proxy}{_arff_path(number)}",
            "parquet_url": f"{self.proxy}{_parquet_path(number)}",
            "file_id": 10_000 + number,
            "default_target_attribute": self._datasets[number].columns[-1],
            "visibility": "public",
            "status": "active",
            "md5_checksum": hashlib.md5(checked, usedforsecurity=False).hexdigest(),
        }
        if number in self._without_parquet:
            del values["parquet_url"]
        lines = "\n".join(f"  <oml:{name}>{escape(str(value))}</oml:{name}>" for name, value in values.items())
        return f"<oml:data_set_description {_NAMESPACE}>\n{lines}\n</oml:data_set_description>\n"


def arff_of(table: pd.DataFrame, name: str) -> bytes:
    """The table in the attribute-relation file format, UTF-8."""
    lines = [f"@RELATION {_quoted(name)}", ""]
    for column in table.columns:
        levels = _levels(table[column])
        text = "STRING" if _is_text(table[column]) else "NUMERIC"
        kind = text if levels is None else "{" + ",".join(map(_quoted, levels)) + "}"
        lines.append(f"@ATTRIBUTE {_quoted(str(column))} {kind}")
    lines += ["", "@DATA"]
    plain = [_levels(table[column]) is None and not _is_text(table[column]) for column in table.columns]
    for row, missing in zip(table.itertuples(index=False), table.isna().to_numpy(), strict=True):
        cells = zip(row, missing, plain, strict=True)
        lines.append(",".join("?" if gone else str(cell) if bare else _quoted(str(cell)) for cell, gone, bare in cells))
    return ("\n".join(lines) + "\n").encode()


def parquet_of(table: pd.DataFrame) -> bytes:
    """The table as a parquet file."""
    buffer = io.BytesIO()
    table.to_parquet(buffer, index=False)
    return buffer.getvalue()


def _error(code: int, message: str) -> Answer:
    body = (
        f"<oml:error {_NAMESPACE}>\n  <oml:code>{code}</oml:code>\n  <oml:message>{message}</oml:message>\n</oml:error>"
    )
    return Answer(412, body.encode(), _XML)


def _arff_path(number: int) -> str:
    return f"/data/v1/download/{10_000 + number}/dataset_{number}.arff"


def _parquet_path(number: int) -> str:
    return f"/datasets/{number // 10_000:04d}/{number:04d}/dataset_{number}.pq"


def _levels(column: pd.Series) -> list[str] | None:
    """The values of a nominal column."""
    return [str(level) for level in column.cat.categories] if column.dtype.name == "category" else None


def _is_text(column: pd.Series) -> bool:
    import pandas as pd

    return column.dtype.name != "category" and not pd.api.types.is_numeric_dtype(column)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
