"""`LineFile`: append-only JSON lines, by one process at a time, with whole lines even after a kill."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lang_bench.runner.errors import FileBusyError, ResultFileError
from lang_envs.files import lock
from poad_sb3.common.episode_lines import encode as encode_line

Record = Mapping[str, Any]


class Line(NamedTuple):
    """A whole line of a file.

    Attributes:
        record: Content of the line.
        end: Offset of the next line, in bytes.
    """

    record: dict[str, Any]
    end: int


def encode(record: Record) -> bytes:
    """Encode a record as one line.

    Raises:
        ResultFileError: If a number is not finite, or a value is not JSON.
    """
    try:
        return encode_line(record)
    except (TypeError, ValueError) as error:
        raise ResultFileError(
            f"Expected texts, finite numbers, lists and mappings in a results line; {error}. "
            "Fix: return such values from the agent."
        ) from error


def file_name(text: str) -> str:
    """Return a text as the name of a file."""
    return re.sub(r"[^\w.+-]+", "-", text).strip("-.") or "agent"


def read_lines(path: Path) -> Iterator[Line]:
    """Yield the whole lines of a file; an incomplete last line, left by a killed process, is skipped.

    Raises:
        ResultFileError: If the file cannot be read, or a complete line is not a JSON object.
    """
    try:
        with path.open("rb") as file:
            yield from _lines_of(path, file)
    except OSError as error:
        raise ResultFileError(f"Expected a results file that can be read; got {path} ({error.strerror}).") from error


def _lines_of(path: Path, lines: Iterator[bytes]) -> Iterator[Line]:
    end = 0
    for number, text in enumerate(lines, start=1):
        if not text.endswith(b"\n"):
            return
        end += len(text)
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            raise ResultFileError(
                f"Expected a JSON object in every line; line {number} of {path} is {text[:60]!r}. "
                "Fix: restore the file, or begin another with --out."
            )
        yield Line(record, end)


class LineFile:
    """A file of JSON lines, open for appending by this process alone. Use it in a `with` statement.

    Args:
        path: Path of the file; created, with its folder, if missing.

    Raises:
        FileBusyError: If another process has it open.
        ResultFileError: If the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        while True:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            except OSError as error:
                raise ResultFileError(
                    f"Expected a file that can be written; got {path} ({error.strerror}). Fix: name another with --out."
                ) from error
            try:
                _lock(self._file, path)
                if path.exists() and os.path.samestat(os.fstat(self._file), path.stat()):
                    return
            except BaseException:
                os.close(self._file)
                raise
            os.close(self._file)  # another process has removed this empty file since it was opened

    def __enter__(self) -> LineFile:
        return self

    def __exit__(self, *_: object) -> None:
        if not os.fstat(self._file).st_size:  # no line was written: remove the empty file
            with contextlib.suppress(OSError):  # Windows removes no open file
                self.path.unlink()
        os.close(self._file)  # and with it the lock

    def lines(self) -> Iterator[Line]:
        """Return the whole lines."""
        return read_lines(self.path)

    def cut(self, end: int) -> None:
        """Truncate the file after a byte."""
        os.ftruncate(self._file, end)
        os.fsync(self._file)

    def append(self, records: Sequence[Record]) -> None:
        """Add lines by one write, and wait until they are on the disk; on an error none of them is in the file.

        Raises:
            ResultFileError: If the lines cannot be written.
        """
        if not records:
            return
        data = b"".join(map(encode, records))
        before = os.fstat(self._file).st_size
        try:
            left = memoryview(data)
            while left:  # a disk that fills up takes a part first, and refuses the next
                left = left[os.write(self._file, left) :]
            os.fsync(self._file)
        except OSError as error:
            self.cut(before)
            raise ResultFileError(
                f"Expected room for {len(data)} bytes more in {self.path}; got: {error.strerror}. What was written "
                "before is whole. Fix: make room, and give the same command again."
            ) from error


def _lock(file: int, path: Path) -> None:
    try:
        lock(file)
    except ModuleNotFoundError as error:
        raise ResultFileError("Expected Linux or macOS, whose file locks this uses. Fix: WSL2.") from error
    except BlockingIOError as error:
        raise FileBusyError(
            f"Expected to be alone with {path}; another process is writing it. "
            "Fix: wait until it is done, stop it, or name another file with --out."
        ) from error
