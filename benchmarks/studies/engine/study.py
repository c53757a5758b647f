"""A study: its jobs, and the report of their results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.errors import StudyError
from benchmarks.studies.engine.jobs import Job
from benchmarks.studies.engine.pieces import Pieces
from lang_envs.report import Table

TUNING_SEEDS = (101, 102)
"""Seeds for choosing rates; they are not reported."""
SEEDS_FOR_A_VERDICT = 8
FINAL_SEEDS = tuple(range(300, 310))
"""Seeds of the reported runs; `lambda-token` sets a default of the other studies, and has seeds of its own."""
FEWEST_SEEDS = FINAL_SEEDS[:SEEDS_FOR_A_VERDICT]
"""As many seeds as a verdict needs, for the studies whose runs are long."""


class Options(NamedTuple):
    """Choices of a user.

    Attributes:
        seeds: Seeds of the reported runs.
        tasks: Names of the tasks; all tasks of the study if empty.
    """

    seeds: Sequence[int] = FINAL_SEEDS
    tasks: Sequence[str] = ()

    def checked_seeds(self) -> Sequence[int]:
        """Return the seeds themselves.

        Raises:
            StudyError: If there are no seeds, they are repeated or negative, or rates are chosen on one of them.
        """
        seeds = self.seeds
        if set(seeds) & set(TUNING_SEEDS) or not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0:
            raise StudyError(
                f"Expected distinct seeds, 0 or more, none of those that rates are chosen on {list(TUNING_SEEDS)}; got "
                f"{list(seeds) or 'none'}. Fix: --seeds {','.join(map(str, FINAL_SEEDS))}."
            )
        return seeds

    def chosen_tasks(self, tasks: Iterable[str]) -> list[str]:
        """Return the chosen of a study's tasks in their order; all of them if the user names none.

        Raises:
            StudyError: For a name that the study does not have.
        """
        tasks = list(tasks)
        if wrong := [name for name in self.tasks if name not in tasks]:
            raise StudyError(
                f"Expected tasks among {', '.join(tasks)}; got {', '.join(wrong)}. Fix: name some of these."
            )
        return [name for name in tasks if not self.tasks or name in self.tasks]


class Report(NamedTuple):
    """The results of a study.

    Attributes:
        content: Content of the JSON file.
        pictures: Figures or images, by the suffix of their file names after that of the study.
    """

    content: Mapping[str, Any]
    pictures: Mapping[str, Any]


class Study(NamedTuple):
    """One study.

    Attributes:
        name: Name on the command line, and of the files.
        about: Question that the study answers, in one line.
        jobs: Function that returns the jobs, given the pieces found so far, the most urgent first.
        report: Function that reports the pieces found so far, with a list of the missing ones.
        tables: Function that makes tables of the content of the JSON file, for the terminal and the site.
        seeds: Seeds of the reported runs if the user names none.
    """

    name: str
    about: str
    jobs: Callable[[Options, Pieces], Iterable[Job]]
    report: Callable[[Options, Pieces], Report]
    tables: Callable[[Mapping[str, Any]], Iterable[Table]]
    seeds: Sequence[int] = FINAL_SEEDS
