"""Pieces: results of jobs. A job whose piece exists is not done again, by any study.

A worker writes each piece to a file of its own; `pack` moves those of a study into one, with a line for each.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.errors import StudyError
from benchmarks.files import RESULTS
from benchmarks.studies.engine.jobs import Job
from lang_envs.files import write_bytes, write_json, write_text

STUDIES = RESULTS / "studies"
"""Folder of the reports."""

COST = "job_seconds"
"""Field of `measured`: processor time of a whole job, evaluations and cloning too, but not that of sandboxes."""

Piece = Mapping[str, Any]
"""Result of a job: see `training.run_training` and `coding.run_coding`."""


Key = TypeVar("Key")


def identifier(*parts: str) -> str:
    """Join the parts of an id of results, without spaces."""
    return "/".join(part.replace(", ", ",").replace(" ", "-") for part in parts)


class Pieces:
    """A folder of pieces.

    Args:
        folder: Path of the folder; created with the first piece.
    """

    def __init__(self, folder: Path = STUDIES / "pieces") -> None:
        self.folder = folder
        self._contents: dict[str, dict[str, Any]] = {}

    def path(self, name: str) -> Path:
        """Return the path of a piece that is not packed, whether or not it exists."""
        return self.folder / f"{name}.json"

    @cached_property
    def _packed(self) -> dict[str, dict[str, Any]]:
        return {name: piece for path in sorted(self.folder.glob("*.jsonl")) for name, piece in _lines(path).items()}

    @property
    def names(self) -> list[str]:
        """Names of all pieces."""
        return sorted({*self._packed, *(path.stem for path in self.folder.glob("*.json"))})

    def read(self, name: str) -> dict[str, Any] | None:
        """Return `settings`, `result` and `measured` of a piece; None if there is none, or its file is torn."""
        try:
            content = json.loads(self.path(name).read_bytes())
        except (FileNotFoundError, ValueError, RecursionError):
            content = self._packed.get(name)
        parts = ("settings", "result", "measured")
        is_whole = isinstance(content, dict) and all(isinstance(content.get(part), dict) for part in parts)
        return content if is_whole else None

    def find(self, job: Job) -> Piece | None:
        """Return the result of a job; None if it has yet to be done."""
        name = job.name
        if name not in self._contents:
            content = self.read(name)
            # A file whose settings differ from its name is foreign, and is written again.
            if content is None or content["settings"] != job.settings:
                return None
            self._contents[name] = content
        result: Piece = self._contents[name]["result"]
        return result

    def select(self, jobs: Mapping[Key, Job]) -> dict[Key, Piece]:
        """Return the results of the jobs that are done, by the same keys."""
        return {key: piece for key, job in jobs.items() if (piece := self.find(job)) is not None}

    def pack(self, study: str, names: Iterable[str]) -> Path:
        """Move the files of some pieces into `STUDY.jsonl`, and return its path; without pieces it is not written."""
        packed_file = self.folder / f"{study}.jsonl"
        lines = _lines(packed_file) if packed_file.exists() else {}
        files = [name for name in names if self.path(name).exists()]
        lines |= {name: piece for name in files if (piece := self.read(name)) is not None}
        text = "".join(json.dumps({"name": name, **lines[name]}, ensure_ascii=False) + "\n" for name in sorted(lines))
        if lines:
            write_text(packed_file, text)
        for name in files:
            self.path(name).unlink()
        vars(self).pop("_packed", None)
        return packed_file

    def cost(self, job: Job) -> float | None:
        """Return the seconds that a job took: of code its wall time, since sandboxes work for it; None if unknown."""
        result = self.find(job)
        if result is None:
            return None
        whole = self._contents[job.name]["measured"].get(COST)
        seconds = result.get("seconds", whole if whole is not None else result.get("cpu_seconds"))
        return None if seconds is None else float(seconds)

    def machines(self) -> list[dict[str, Any]]:
        """Return hardware and versions of all pieces that were found, each machine once."""
        excluded = ("command", "commit", COST)
        machines = [
            {k: v for k, v in piece["measured"].items() if k not in excluded} for piece in self._contents.values()
        ]
        return [machine for number, machine in enumerate(machines) if machine not in machines[:number]]

    def commits(self) -> list[str]:
        """Return the commits that the pieces were measured at; old pieces have no record of it."""
        return sorted(
            {piece["measured"]["commit"] for piece in self._contents.values() if piece["measured"].get("commit")}
        )

    def require_room(self) -> None:
        """Raise StudyError if no piece can be written: better now than after the training."""
        try:
            write_bytes(self.folder / ".room", b"").unlink(missing_ok=True)
        except OSError as error:
            raise StudyError(
                f"Expected a folder that pieces can be written to; got {self.folder} ({error.strerror}). "
                "Fix: name another with --out."
            ) from error

    def put(self, job: Job, result: Piece, measured: Mapping[str, Any]) -> Path:
        """Write a piece; it is there whole or not at all."""
        content = {"settings": job.settings, "result": dict(result), "measured": dict(measured)}
        return write_json(self.path(job.name), content)


def _lines(path: Path) -> dict[str, dict[str, Any]]:
    """Return the pieces of a packed file by name."""
    pieces = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {piece.pop("name"): piece for piece in pieces}
