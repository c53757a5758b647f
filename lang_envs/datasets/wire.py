"""The connection of a fetch: deadlines, a count of bytes, the last status, room on the disk.

Neither client lets its caller set a deadline or follow the bytes; this takes part in their requests instead. It is for
the process of `clients` alone.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lang_envs.datasets.errors import ChecksumError, StorageError

__all__ = ["CHUNK", "CONNECT_SECONDS", "MAX_BYTES", "Tell", "Wire"]

CONNECT_SECONDS = 10.0
CHUNK = 1 << 10
"""Bytes; small: what has come of a chunk when the connection breaks is lost."""
_TELL_SECONDS = 0.1
MAX_BYTES = 1 << 30
"""Of a file: what claims to be larger is no table of ours."""
_UNSATISFIABLE = 416  # of a range: the client then asks for everything

Tell = Callable[[str, Any], None]


class Wire:
    """What the requests of the clients have in common: a deadline for each, a count of bytes, the last status.

    Args:
        timeout: Seconds without a byte.
        tell: Takes events.
        folder: Whose disk has to have room for what is announced.
        strict: Whether an error status ends a GET. The Kaggle client writes the body of one into the file otherwise,
            and goes on behind it the next time.
    """

    def __init__(self, timeout: float, tell: Tell, folder: Path, *, strict: bool) -> None:
        self.timeout, self._tell, self._folder, self._strict = timeout, tell, folder, strict
        self.status: int | None = None
        self.done, self.total = 0, 0
        self._told = 0.0

    def attach(self) -> None:
        """Take part in every request of this process: neither client lets its caller set a timeout."""
        import requests

        send = requests.adapters.HTTPAdapter.send

        def watched(adapter: Any, request: Any, **options: Any) -> Any:
            options["timeout"] = (CONNECT_SECONDS, self.timeout)
            response = send(adapter, request, **options)
            self.status = response.status_code
            if self._strict and request.method == "GET" and self.status != _UNSATISFIABLE:
                response.raise_for_status()
            self._watch(response.raw, response.headers)
            return response

        requests.adapters.HTTPAdapter.send = watched

    def _watch(self, raw: Any, headers: Any) -> None:
        stream = raw.stream
        length = headers.get("Content-Length", "")
        self.begin(_start(headers.get("Content-Range", "")), int(length) if length.isdigit() else 0)

        def counted(amt: int | None = None, decode_content: bool | None = None) -> Iterator[bytes]:
            for chunk in stream(CHUNK if amt is None else min(amt, CHUNK), decode_content=decode_content):
                self.count(len(chunk))
                yield chunk

        raw.stream = counted

    def begin(self, start: int, length: int) -> None:
        """A body comes, of so many bytes after those that are there.

        Raises:
            StorageError: If there is no room for it.
        """
        if start + length > MAX_BYTES:
            raise _too_large(start + length)
        if length > shutil.disk_usage(self._folder).free:
            raise StorageError(
                f"Expected room for {length} bytes in {self._folder}; the disk is full. Fix: make room, or choose "
                f"another folder: `LANG_ENVS_DATA=...`."
            )
        self.done, self.total = start, start + length

    def count(self, n_bytes: int) -> None:
        """So many bytes have come."""
        self.done += n_bytes
        if self.done > MAX_BYTES:
            raise _too_large(self.done)
        if self.done >= self.total or time.monotonic() - self._told > _TELL_SECONDS:
            self._told = time.monotonic()
            self._tell("progress", [self.done, self.total])


def _too_large(n_bytes: int) -> ChecksumError:
    return ChecksumError(
        f"Expected a table of less than 1 GiB; got {n_bytes} bytes and no end. Fix: look at the page of the table."
    )


def _start(content_range: str) -> int:
    """Position of the first byte of a partial body; 0 for a whole one."""
    unit, _, numbers = content_range.partition(" ")
    first = numbers.partition("-")[0]
    return int(first) if unit == "bytes" and first.isdigit() else 0
