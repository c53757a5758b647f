"""`python -m benchmarks study`: run a study over cores, go on with it, and report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from benchmarks.environment import describe_machine
from benchmarks.runner.files import write_bytes
from benchmarks.studies.arms import FINAL_SEEDS
from benchmarks.studies.errors import JobFailedError, StudyError
from benchmarks.studies.jobs import Work
from benchmarks.studies.pieces import STUDIES, Pieces
from benchmarks.studies.study import Options, Study
from lang_envs.cli.common import console

__all__ = ["Action", "find_study", "run_study", "study_names", "write_report"]


class Action(StrEnum):
    """What to do with a study."""

    RUN = "run"
    TUNE = "tune"
    REPORT = "report"


def study_names() -> dict[str, str]:
    """Studies by name, and what each asks."""
    from benchmarks.studies.registry import ALL

    return {one.name: one.told for one in ALL}


def find_study(name: str) -> Study:
    """A study by name.

    Raises:
        StudyError: If there is none.
    """
    from benchmarks.studies.registry import ALL

    for one in ALL:
        if one.name == name:
            return one
    raise StudyError(f"Expected a study; got {name!r}. Fix: one of {', '.join(one.name for one in ALL)}.")


def run_study(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which; `python -m benchmarks` lists them.")],
    action: Annotated[
        Action, typer.Argument(help="run: what is not there yet, then the report; tune: rates only; report.")
    ] = Action.RUN,
    workers: Annotated[int, typer.Option(min=1, help="Runs at a time, one thread each.")] = 1,
    seeds: Annotated[str, typer.Option(metavar="N,N", help="Seeds of the reported runs.")] = "0,1,2",
    tasks: Annotated[
        str, typer.Option(metavar="NAME,NAME", help="Tasks that are run, all by default; the report is of all.")
    ] = "",
    budget: Annotated[
        float | None, typer.Option(min=0, metavar="MINUTES", help="Begin no other run after this time.")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where reports are, and pieces below.")] = STUDIES,
) -> None:
    """Run a study and report; the same command goes on where it was stopped, and studies share what they have done."""
    chosen = find_study(name)
    options = Options(_numbers(seeds), [one for one in tasks.split(",") if one], tuning_only=action is Action.TUNE)
    pieces = Pieces(out / "pieces")
    list(chosen.jobs(options, pieces))  # what is wrong with the options is said before anything is done
    if action is Action.REPORT and not any(pieces.folder.glob("*.json")):
        raise StudyError(f"Expected pieces in {pieces.folder}; got none. Fix: copy {STUDIES / 'pieces'} there.")
    failed: JobFailedError | None = None
    if action is not Action.REPORT:
        try:
            _work(chosen, options, pieces, workers, budget)
        except JobFailedError as error:
            failed = error
    if action is not Action.TUNE:
        for line in write_report(chosen, options.seeds, pieces, out):
            console().print(line, markup=False, highlight=False, soft_wrap=True)
    if failed is not None:
        raise failed


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(one) for one in text.split(",") if one)
    except ValueError as error:
        raise StudyError(f"Expected seeds as whole numbers with commas; got {text!r}. Fix: --seeds 0,1,2.") from error


def _work(chosen: Study, options: Options, pieces: Pieces, workers: int, budget: float | None) -> None:
    from benchmarks.studies.pool import work

    def listed() -> list[Work]:
        return list(chosen.jobs(options, pieces))

    with Progress(
        SpinnerColumn(), TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn(), console=console()
    ) as progress:
        task = progress.add_task(chosen.name, total=None)

        def watch(job: Work, failure: JobFailedError | None) -> None:
            if failure is not None:
                progress.console.print(f"{failure.trace}\n{failure}", markup=False, highlight=False)
                return
            known = listed()
            found = sum(pieces.find(one) is not None for one in known)
            progress.update(task, completed=found, total=len(known))
            piece = pieces.find(job)
            progress.console.print(f"{job}: {'?' if piece is None else job.outcome(piece)}", highlight=False)

        seconds = None if budget is None else 60 * budget
        done = work(listed, pieces, measured_with(), n_workers=workers, seconds=seconds, watch=watch)
    more = "" if done.in_time else " Time is up; the same command goes on."
    console().print(f"{chosen.name}: {done.n_done} runs done.{more}", highlight=False)


def measured_with() -> dict[str, object]:
    """Return what pieces are measured with; each run has one thread, whatever torch would take here."""
    import torch  # for its vector units

    torch.set_num_threads(1)
    return describe_machine()


def write_report(chosen: Study, seeds: Sequence[int], pieces: Pieces, folder: Path) -> list[str]:
    """Write NAME.json and the pictures, of all tasks and at least the usual seeds: a part would pass for the whole.

    Args:
        chosen: The study.
        seeds: That were asked for.
        pieces: What there is.
        folder: Where the files go.

    Returns:
        What to say, the files at the end.
    """
    report = chosen.report(Options(tuple(sorted({*FINAL_SEEDS, *seeds}))), pieces)
    about = {"study": chosen.name, "told": chosen.told, "command": f"python -m benchmarks study {chosen.name}"}
    content = {**about, "measured_with": pieces.machines(), "commits": pieces.commits(), **report.content}
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    written = [write_bytes(folder / f"{chosen.name}.json", f"{text}\n".encode())]
    written += [make(folder / f"{chosen.name}{ending}.png") for ending, make in report.pictures.items()]
    return [*report.lines, *(f"  {path}" for path in written)]
