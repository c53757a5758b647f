"""What a study is: what there is to do, and what is made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.studies.arms import FINAL_SEEDS
from benchmarks.studies.jobs import Work
from benchmarks.studies.pieces import Pieces

__all__ = ["Options", "Report", "Study"]


class Options(NamedTuple):
    """What may be chosen of a study.

    Attributes:
        seeds: Of the reported runs.
        tasks: Names of the tasks; all that the study has if there are none.
        tuning_only: Whether only the learning rates are tuned.
    """

    seeds: Sequence[int] = FINAL_SEEDS
    tasks: Sequence[str] = ()
    tuning_only: bool = False


class Report(NamedTuple):
    """What a study found.

    Attributes:
        content: For the JSON file.
        pictures: Makers of pictures, by what their names add to that of the study.
        lines: For the terminal, what matters first.
    """

    content: Mapping[str, Any]
    pictures: Mapping[str, Callable[[Path], Path]]
    lines: Sequence[str]


class Study(NamedTuple):
    """One study.

    Attributes:
        name: On the command line, and of its files.
        told: What it asks, in one line.
        jobs: What there is to do as far as the pieces tell, the most urgent first.
        report: What the pieces say; it works on a part of them, and says what is missing.
    """

    name: str
    told: str
    jobs: Callable[[Options, Pieces], Iterable[Work]]
    report: Callable[[Options, Pieces], Report]
