"""`ResumableCSV`: the table of a run, `progress.csv`, continued after a checkpoint."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from stable_baselines3.common.logger import CSVOutputFormat

from lang_envs.files import write_text

STEPS = "time/total_timesteps"
"""Column of the environment steps."""


class ResumableCSV(CSVOutputFormat):
    """SB3's CSV writer that continues a file instead of emptying it.

    Args:
        path: Path of the file.
        up_to: Environment step of the checkpoint that the run resumes from; later rows are dropped.
    """

    def __init__(self, path: Path, up_to: int) -> None:
        header, *rows = whole_rows(path) or [[]]
        kept = [row for row in rows if _steps_of(header, row) <= up_to]
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([header, *kept] if kept else [])
        write_text(path, text.getvalue())
        self.file = path.open("r+", encoding="utf-8")
        self.file.seek(0, io.SEEK_END)
        self.keys = list(header) if kept else []
        self.separator, self.quotechar = ",", '"'


def whole_rows(path: Path) -> list[list[str]]:
    """Return header and rows of a CSV file; a last line that a killed process left unfinished is dropped."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8", errors="replace")
    rows = []
    with suppress(csv.Error):  # a damaged row, and what follows
        for row in csv.reader(io.StringIO(text[: text.rfind("\n") + 1])):
            rows += [row] if row else []
    return rows


def read_progress(path: Path) -> list[dict[str, str]]:
    """Return the rows of progress.csv; an unfinished last line is left out."""
    header, *rows = whole_rows(path) or [[]]
    return [dict(zip(header, row, strict=False)) for row in rows]


def logged(rows: Sequence[Mapping[str, str]], column: str) -> Iterator[tuple[float, float]]:
    """Yield the environment steps and the value of each row that has a finite one, at growing steps."""
    last = -1.0
    for row in rows:
        try:
            step, value = float(row[STEPS]), float(row[column])
        except (KeyError, TypeError, ValueError):
            continue
        if step > last and value - value == 0:  # finite
            last = step
            yield step, value


def _steps_of(header: Sequence[str], row: Sequence[str]) -> float:
    """Return the step of a row; infinity if it has none or is damaged."""
    try:
        return float(dict(zip(header, row, strict=True))[STEPS])
    except (KeyError, ValueError):
        return float("inf")
