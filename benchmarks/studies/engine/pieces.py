"""Pieces: results of jobs, a small file each. A job whose piece exists is not done again, by any study."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.runner.errors import StudyError
from benchmarks.runner.files import write_json
from benchmarks.runner.machine import RESULTS
from benchmarks.studies.engine.jobs import Job
from lang_envs.files import write_bytes

STUDIES = RESULTS / "studies"
"""Folder of the reports."""

COST = "job_seconds"
"""Field of `measured`: processor time of a whole job, evaluations and cloning too, but not that of sandboxes."""

Piece = Mapping[str, Any]
"""Result of a job: see `training.run_training` and `coding.run_coding`."""


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
        self._known: dict[str, dict[str, Any]] = {}

    def path(self, job: Job) -> Path:
        """Return the path of the piece of a job, whether or not it exists."""
        return self.folder / f"{job.name}.json"

    def find(self, job: Job) -> Piece | None:
        """Return the result of a job; None if it has yet to be done."""
        name = job.name
        if name not in self._known:
            try:
                read = json.loads(self.path(job).read_bytes())
            except (FileNotFoundError, ValueError, RecursionError):
                return None
            # A file that is torn, or says other settings than its name, was not written by us. It is written again.
            if not isinstance(read, dict) or read.get("settings") != job.settings:
                return None
            if not all(isinstance(read.get(part), dict) for part in ("result", "measured")):
                return None
            self._known[name] = read
        result: Piece = self._known[name]["result"]
        return result

    def cost(self, job: Job) -> float | None:
        """Return the seconds that a job took: of code its wall time, since sandboxes work for it; None if unknown."""
        result = self.find(job)
        if result is None:
            return None
        whole = self._known[job.name]["measured"].get(COST)
        found = result.get("seconds", whole if whole is not None else result.get("cpu_seconds"))
        return None if found is None else float(found)

    def machines(self) -> list[dict[str, Any]]:
        """Return hardware and versions of all pieces that were found, each machine once."""
        apart = ("command", "commit", COST)
        machines = [{k: v for k, v in one["measured"].items() if k not in apart} for one in self._known.values()]
        return [one for number, one in enumerate(machines) if one not in machines[:number]]

    def commits(self) -> list[str]:
        """Return the commits that the pieces were measured at; old pieces have no record of it."""
        return sorted({one["measured"]["commit"] for one in self._known.values() if one["measured"].get("commit")})

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
        return write_json(self.path(job), content)
