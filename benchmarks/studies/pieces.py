"""Pieces: results of jobs, a small file each. A job that has its piece is not done again, by whichever study."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.environment import RESULTS
from benchmarks.runner.files import write_bytes
from benchmarks.studies.errors import StudyError
from benchmarks.studies.jobs import Work

__all__ = ["PIECES", "STUDIES", "Piece", "Pieces"]

STUDIES = RESULTS / "studies"
"""Where reports are written."""
PIECES = STUDIES / "pieces"

Piece = Mapping[str, Any]
"""What a job found: `returns` at `steps`, and so on; see `running.run_job`."""


class Pieces:
    """A folder of pieces.

    Args:
        folder: Made at the first piece.
    """

    def __init__(self, folder: Path = PIECES) -> None:
        self.folder = folder
        self._known: dict[str, dict[str, Any]] = {}

    def path(self, job: Work) -> Path:
        """Where the piece of a job is, or will be."""
        return self.folder / f"{job.name}.json"

    def find(self, job: Work) -> Piece | None:
        """What the job found; None if it has yet to be done."""
        file = self._file(job)
        return None if file is None else file["result"]

    def machines(self) -> list[dict[str, Any]]:
        """Hardware and versions of all pieces that were found, each once: those of several machines say so."""
        apart = ("command", "commit")
        told = [{k: v for k, v in one["measured"].items() if k not in apart} for one in self._known.values()]
        return [one for number, one in enumerate(told) if one not in told[:number]]

    def commits(self) -> list[str]:
        """Commits that the pieces were measured at; pieces of before commits were recorded have none."""
        return sorted({one["measured"]["commit"] for one in self._known.values() if one["measured"].get("commit")})

    def _file(self, job: Work) -> dict[str, Any] | None:
        name = job.name
        if name not in self._known:
            read = _read(self.path(job))
            # A file that is torn, or says other settings than its name, was not written by us. It is written again.
            if read is None or read.get("settings") != job.settings or not {"result", "measured"} <= read.keys():
                return None
            self._known[name] = read
        return self._known[name]

    def require_room(self) -> None:
        """Raise StudyError if no piece can be written: better now than after the training."""
        try:
            write_bytes(self.folder / ".room", b"").unlink(missing_ok=True)
        except OSError as error:
            raise StudyError(
                f"Expected a folder that pieces can be written to; got {self.folder} ({error.strerror}). "
                "Fix: name another with --out."
            ) from error

    def put(self, job: Work, result: Piece, measured: Mapping[str, Any]) -> Path:
        """Write a piece; it is there whole or not at all."""
        content = {"settings": job.settings, "result": dict(result), "measured": dict(measured)}
        text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
        return write_bytes(self.path(job), f"{text}\n".encode())


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) else None
