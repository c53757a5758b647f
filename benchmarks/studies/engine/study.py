"""A study: its jobs, and the report of their results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.runner.errors import StudyError
from benchmarks.studies.engine.jobs import Job
from benchmarks.studies.engine.pieces import Pieces
from lang_envs.report import Table

TUNING_SEEDS = (101, 102)
"""Seeds for choosing rates; they are not reported."""
SEEDS_FOR_A_VERDICT = 8
FINAL_SEEDS = tuple(range(300, 310))
"""Of the reported runs; `lambda-token`, which sets a default of the others, has seeds of its own."""
FEWEST_SEEDS = FINAL_SEEDS[:SEEDS_FOR_A_VERDICT]
"""As many as a verdict needs, for the studies whose runs are long."""


class Options(NamedTuple):
    """Choices of a user.

    Attributes:
        seeds: Of the reported runs.
        tasks: Names of the tasks; all that the study has if there are none.
        tuning_only: Whether only the learning rates are tuned.
        quick: Whether a small version is run, in a few minutes; for studies that have one.
    """

    seeds: Sequence[int] = FINAL_SEEDS
    tasks: Sequence[str] = ()
    tuning_only: bool = False
    quick: bool = False

    def checked_seeds(self) -> Sequence[int]:
        """Return the seeds themselves.

        Raises:
            StudyError: If they are none, repeated or negative, or rates are chosen on one of them.
        """
        seeds = self.seeds
        if set(seeds) & set(TUNING_SEEDS) or not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0:
            raise StudyError(
                f"Expected distinct seeds, 0 or more, none of those that rates are chosen on {list(TUNING_SEEDS)}; got "
                f"{list(seeds) or 'none'}. Fix: --seeds {','.join(map(str, FINAL_SEEDS))}."
            )
        return seeds

    def chosen_tasks(self, known: Iterable[str], ids: Mapping[str, str] | None = None) -> list[str]:
        """Names of tasks in the order of the study; all that it has if none is named.

        Args:
            known: Names that the study has.
            ids: Other names of them.

        Raises:
            StudyError: For a name that the study does not have.
        """
        names = {(ids or {}).get(name, name): name for name in self.tasks}
        known = list(known)
        wrong = [given for name, given in names.items() if name not in known]
        if wrong:
            raise StudyError(
                f"Expected tasks among {', '.join(known)}; got {', '.join(wrong)}. Fix: name some of these."
            )
        return [name for name in known if not names or name in names]


class Report(NamedTuple):
    """The results of a study.

    Attributes:
        content: For the JSON file.
        pictures: Figures or images, by the suffix of their names after that of the study.
        lines: For the terminal, the most important first.
    """

    content: Mapping[str, Any]
    pictures: Mapping[str, Any]
    lines: Sequence[str]


class Study(NamedTuple):
    """One study.

    Attributes:
        name: On the command line, and of its files.
        about: The question, in one line.
        jobs: Jobs that the pieces ask for, the most urgent first.
        report: Findings of the pieces; of a part of them too, with a list of the missing ones.
        tables: Tables of the content of its JSON file, for the HTML report and the site.
        has_quick: Whether it has a small version, `Options.quick`.
        seeds: Seeds of the reported runs where none are named.
    """

    name: str
    about: str
    jobs: Callable[[Options, Pieces], Iterable[Job]]
    report: Callable[[Options, Pieces], Report]
    tables: Callable[[Mapping[str, Any]], Iterable[Table]]
    has_quick: bool = False
    seeds: Sequence[int] = FINAL_SEEDS
