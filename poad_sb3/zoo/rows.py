"""Rows of the zoo: what was trained, how, and what it scores. No torch."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from math import sqrt
from pathlib import Path
from typing import Any, cast

from lang_envs.cache import cache_folder
from lang_envs.files import locked, write_text
from lang_envs.report.schemas import WrongValueError, compile_schema
from poad_sb3.errors import CheckpointError

SHIPPED = Path(__file__).parent / "agents"
"""Folder of the agents that are part of the package."""
ROWS = "rows.json"
ADAPTER = ".safetensors"
"""Ending of the files of adapters."""
CURVE = ".png"
"""Ending of the pictures of learning curves."""

Interval = tuple[float, float, float]
"""A mean, and the lower and upper end of its 95 % interval."""

_TEXT, _MAYBE_TEXT, _MAPPING = {"type": "string"}, {"type": ["string", "null"]}, {"type": "object"}
_COUNT, _INTERVAL = {"type": "integer", "minimum": 0}, {"type": "array", "items": {"type": "number"}, "minItems": 3}
_SCORE = {
    **_MAPPING,
    "required": ["episodes", "seed", "return", "discounted_return", "success"],
    "properties": {
        "episodes": {"type": "integer", "minimum": 1},
        "seed": _COUNT,
        "return": _INTERVAL,
        "discounted_return": _INTERVAL,
        "success": {**_INTERVAL, "type": ["array", "null"]},
    },
}
_check_row = compile_schema(
    {
        **_MAPPING,
        "required": ["env_id", "steps"],
        "properties": {
            **dict.fromkeys(("env_id", "model", "method"), _TEXT),
            **dict.fromkeys(("preset", "commit", "version", "sha256"), _MAYBE_TEXT),
            **dict.fromkeys(("env_kwargs", "settings"), _MAPPING),
            **dict.fromkeys(("seed", "steps"), _COUNT),
            "scores": {**_MAPPING, "additionalProperties": _SCORE},
            "core_hours": {"type": ["number", "null"]},
            "size": {"type": ["integer", "null"]},
        },
    }
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A training, and once it is done what came of it.

    Attributes:
        env_id: Id of the environment.
        env_kwargs: Arguments of `gym.make`.
        model: Base model, as in `policy_kwargs`.
        method: Name of the algorithm.
        preset: Name of the preset; None for the defaults of the algorithm.
        settings: Constructor arguments laid over the preset.
        seed: Seed of the training.
        steps: Number of environment steps.
        scores: Scores by player: `greedy` and `sampled` are the agent, `random` and `oracle` others; each with its
            `episodes` and `seed`, and `return`, `discounted_return` and `success` as an `Interval`.
        core_hours: Processor time of the training; None if it was resumed.
        commit: Commit that it was trained at; None if it was resumed.
        version: Version of the package that trained it.
        sha256: Digest of the adapter's file.
        size: Size of that file in bytes.
    """

    env_id: str
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    model: str = "pocket"
    method: str = "POAD"
    preset: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    steps: int
    scores: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    core_hours: float | None = None
    commit: str | None = None
    version: str | None = None
    sha256: str | None = None
    size: int | None = None

    @property
    def name(self) -> str:
        """Name of the row, `ID/MODEL/METHOD`."""
        return f"{self.env_id}/{self.model}/{self.method}"

    @property
    def stem(self) -> str:
        """The name for files and folders."""
        return re.sub(r"[/\\:]", "_", self.name)

    def adapter(self, folder: Path) -> Path:
        """Return the path of the adapter in a folder of agents."""
        return folder / f"{self.stem}{ADAPTER}"

    def is_trained(self, folder: Path) -> bool:
        """Return whether a folder of agents has the adapter."""
        return self.sha256 is not None and self.adapter(folder).exists()


def trained_folder() -> Path:
    """Return the folder of the agents that `poad zoo train` has trained on this machine."""
    return cache_folder() / "zoo"


def row_of(values: object) -> Row:
    """Return the row of a mapping.

    Raises:
        WrongValueError: If it is none, or a field is missing or of another type.
        TypeError: If a field is unknown.
    """
    _check_row(values)
    return Row(**cast(dict[str, Any], values))


def read_rows(folder: Path) -> list[Row]:
    """Return the rows of a folder of agents; none if it has none.

    Raises:
        CheckpointError: If they cannot be read, or two have one name.
    """
    path = folder / ROWS
    if not path.exists():
        return []
    try:
        rows = [row_of(values) for values in json.loads(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError, WrongValueError) as error:
        raise CheckpointError(f"Expected rows of the zoo in {path}; they cannot be read ({error}).") from error
    name, number = Counter(row.name for row in rows).most_common(1)[0] if rows else ("", 0)
    if number > 1:
        raise CheckpointError(
            f"Expected one row of a name in {path}; {number} are {name}, which names no arguments of the environment. "
            "Fix: another folder for each."
        )
    return rows


def write_row(folder: Path, row: Row) -> None:
    """Put a row in the place of the one of its name, or behind the others; the file is replaced in one step.

    Raises:
        CheckpointError: If that of its name has other arguments of the environment.
    """
    with locked(folder):
        rows = {before.name: before for before in read_rows(folder)}
        if (before := rows.get(row.name, row)).env_kwargs != row.env_kwargs:
            raise CheckpointError(
                f"Expected {row.name} with the arguments of its row in {folder}, {before.env_kwargs}; got "
                f"{row.env_kwargs}. Fix: another folder."
            )
        rows[row.name] = row
        write_text(folder / ROWS, dump([asdict(row) for row in rows.values()]))


def dump(values: object) -> str:
    """Return JSON as the zoo writes it: lists of numbers on one line."""
    text = json.dumps(values, indent=1, ensure_ascii=False)
    return re.sub(r"\[[-+.\deE,\s]+\]", lambda match: " ".join(match[0].split()), text) + "\n"


def find_row(name: str, rows: Iterable[Row]) -> Row:
    """Return the row of a name: `ID/MODEL/METHOD`, or a part from the left that only one row begins with.

    Raises:
        CheckpointError: If there is no such row, or more than one.
    """
    rows = list(rows)
    matching = [row for row in rows if f"{row.name}/".startswith(f"{name}/")]
    if len(matching) == 1:
        return matching[0]
    problem = f"Expected one agent; several are {name}." if matching else f"There is no agent {name} in the zoo."
    names = ", ".join(row.name for row in matching or rows)
    raise CheckpointError(f"{problem} Fix: {f'one of these: {names}' if names else 'another folder or method'}.")


def agents(folder: Path | None = None) -> dict[str, tuple[Row, Path]]:
    """Return the row that counts of each name, and its folder.

    An agent that was trained here replaces the shipped one of its name: who trains one means that one from then on.

    Args:
        folder: Folder of agents; by default those that were trained here, and then the shipped ones.
    """
    folders = [trained_folder(), SHIPPED] if folder is None else [folder]
    rows = [(row, parent) for parent in folders for row in read_rows(parent)]
    rows.sort(key=lambda entry: not entry[0].is_trained(entry[1]))
    counting: dict[str, tuple[Row, Path]] = {}
    for row, parent in rows:
        counting.setdefault(row.name, (row, parent))
    return counting


def find_agent(name: str, folder: Path | None = None, method: str | None = None) -> tuple[Row, Path]:
    """Return a trained row and the path of its adapter.

    Args:
        name: Name as in `find_row`.
        folder: As of `agents`.
        method: Method that the row must have.

    Raises:
        CheckpointError: If there is no such row, or it was not trained yet.
    """
    entries = {row.name: (row, parent) for row, parent in agents(folder).values() if method in (None, row.method)}
    row, parent = entries[find_row(name, (row for row, _ in entries.values())).name]
    if not row.is_trained(parent):
        where = "" if folder is None else f" --folder {folder}"
        raise CheckpointError(
            f"Expected an adapter of {row.name} in {parent}; there is none. Fix: poad zoo train {row.name}{where}."
        )
    return row, row.adapter(parent)


def agrees(one: Interval, other: Interval, n_one: int = 1, n_other: int = 1) -> bool:
    """Return whether two means may be of one quantity: the 95 % interval of their difference has 0 in it.

    The errors of both samples add up in squares, each on the side of the other mean (Newcombe 1998, method 10). As the
    samples are of one distribution if the means are, their variances are pooled: of few episodes all may be won, and
    their own interval has no width.

    Args:
        one: A mean with its interval.
        other: Another.
        n_one: Episodes of the one.
        n_other: Episodes of the other.
    """
    ((smaller, *_), n_smaller), ((larger, *_), n_larger) = sorted(((tuple(one), n_one), (tuple(other), n_other)))
    below, above = (
        sum((n * (interval[end] - interval[0])) ** 2 for interval, n in ((one, n_one), (other, n_other)))
        / (n_one + n_other)
        for end in (1, 2)
    )
    return larger - smaller <= sqrt(above / n_smaller + below / n_larger) + 1e-9
