"""`python -m benchmarks study`: run a study over cores, resume it, and report."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from benchmarks.errors import JobFailedError, StudyError
from benchmarks.options import parse_seeds
from benchmarks.reports.tables import show_table
from benchmarks.studies.engine.jobs import Job
from benchmarks.studies.engine.pieces import STUDIES, Pieces
from benchmarks.studies.engine.study import Options, Study
from lang_bench.runner.machine import describe_machine
from lang_envs.cli.common import console

if TYPE_CHECKING:
    from benchmarks.studies.credit_truth.trainings import Noise
    from benchmarks.studies.engine.comparing import Comparing
    from benchmarks.studies.real_model import CurvesOfPresets

AnyStudy: TypeAlias = "Study | Comparing | Noise | CurvesOfPresets"


class Action(StrEnum):
    """Parts of a study that can be chosen."""

    RUN = "run"
    REPORT = "report"
    PACK = "pack"


def study_names() -> dict[str, str]:
    """Return the studies by name, with the question of each."""
    from benchmarks.studies.registry import ALL

    return {study.name: study.about for study in ALL}


def run_study(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Which; `python -m benchmarks` lists them. `all`: each of them.")
    ],
    action: Annotated[
        Action,
        typer.Argument(help="run: what is not there yet, then the report; report; pack its pieces."),
    ] = Action.RUN,
    workers: Annotated[int, typer.Option(min=1, help="Runs at a time, one thread each.")] = 1,
    ray: Annotated[
        str | None,
        typer.Option(metavar="local|auto|ADDRESS", help="Run --workers jobs in actors of Ray, on any machine."),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="N,N", help="Seeds of the reported runs; those of the study by default.")
    ] = None,
    tasks: Annotated[
        str, typer.Option(metavar="NAME,NAME", help="Tasks that are run, all by default; the report is of all.")
    ] = "",
    budget: Annotated[
        float | None, typer.Option(min=0, metavar="MINUTES", help="Begin no other run after this time.")
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Show the runs that are left and their cost; run none.")] = False,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where reports are, and pieces below.")] = STUDIES,
) -> None:
    """Run a study and report; the same command resumes it, and studies share their jobs."""
    if name == "all":
        for each in study_names():
            console().print(each)
            run_study(each, action, workers, ray, seeds, tasks, budget, plan, out)
        return
    study = _find_study(name)
    chosen = [task for task in tasks.split(",") if task]
    options = Options(study.seeds if seeds is None else parse_seeds(seeds), chosen)
    pieces = Pieces(out / "pieces")
    listed = list(study.jobs(options, pieces))  # an error in the options is raised before anything is done
    if action is Action.REPORT and not pieces.names:
        raise StudyError(f"Expected pieces in {pieces.folder}; got none. Fix: copy {STUDIES / 'pieces'} there.")
    if plan:
        for line in planned(listed, pieces):
            console().print(line, markup=False, highlight=False, soft_wrap=True)
        return
    if action is Action.PACK:
        console().print(f"  {pieces.pack(study.name, [job.name for job in listed])}")
        return
    failed: JobFailedError | None = None
    if action is not Action.REPORT:
        try:
            _work(study, options, pieces, workers, ray, budget)
        except JobFailedError as error:
            failed = error
    content, paths = write_report(study, options.seeds, pieces, out)
    for table in study.tables(content):
        show_table(table.head, table.rows, title=table.title, caption=table.remark)
    for line in [*(f"Missing: {text}" for text in content["missing"]), *(f"  {path}" for path in paths)]:
        console().print(line, markup=False, highlight=False, soft_wrap=True)
    if failed is not None:
        raise failed


def _find_study(name: str) -> AnyStudy:
    from benchmarks.studies.registry import ALL

    study = next((study for study in ALL if study.name == name), None)
    if study is None:
        raise StudyError(f"Expected a study; got {name!r}. Fix: all, or one of {', '.join(study_names())}.")
    return study


def planned(jobs: Sequence[Job], pieces: Pieces) -> list[str]:
    """Return the runs that are left by kind, with the processor time that runs of the kind took so far.

    Args:
        jobs: Jobs of a study as far as they are known.
        pieces: Existing pieces.
    """
    kinds: dict[str, list[Job]] = {}
    for job in jobs:
        kinds.setdefault(job.kind, []).append(job)
    lines, total, unknown = [], 0.0, 0
    for kind, jobs_of_kind in kinds.items():
        seconds = [spent for job in jobs_of_kind if (spent := pieces.cost(job)) is not None]
        left = sum(pieces.find(job) is None for job in jobs_of_kind)
        mean = sum(seconds) / len(seconds) if seconds else None
        cost = "cost not known yet" if mean is None else f"{mean:.0f} s each, {left * mean / 3600:.1f} core-hours left"
        lines.append(f"{kind}: {left} of {len(jobs_of_kind)} runs left, {cost}")
        total += left * (mean or 0.0)
        unknown += left if mean is None else 0
    more = f", and {unknown} runs of unknown cost" if unknown else ""
    further = "; runs that depend on the tuning are listed once it is complete"
    return [*lines, f"In all: {total / 3600:.1f} core-hours left{more}{further}."]


def _work(
    study: AnyStudy, options: Options, pieces: Pieces, workers: int, ray: str | None, budget: float | None
) -> None:
    from benchmarks.studies.engine.pool import work

    def listed() -> list[Job]:
        return list(study.jobs(options, pieces))

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console()) as progress:
        task = progress.add_task(study.name, total=None)

        def watch(job: Job, failure: JobFailedError | None) -> None:
            if failure is not None:
                progress.console.print(f"{failure.trace}\n{failure}", markup=False, highlight=False)
                return
            jobs = listed()
            n_done = sum(pieces.find(listed_job) is not None for listed_job in jobs)
            progress.update(task, completed=n_done, total=len(jobs))
            progress.console.print(f"{job}: done", highlight=False)

        seconds = None if budget is None else 60 * budget
        machine = describe_machine()
        measured = {name: machine[name] for name in ("command", "commit")}  # a worker describes its own machine
        done = work(listed, pieces, measured, n_workers=workers, ray=ray, seconds=seconds, watch=watch)
    more = "" if done.in_time else " Time is up; the same command resumes."
    console().print(f"{study.name}: {done.n_done} runs done.{more}", highlight=False)


def write_report(
    study: AnyStudy, seeds: Sequence[int], pieces: Pieces, folder: Path
) -> tuple[dict[str, Any], list[Path]]:
    """Write NAME.json and the pictures, of all tasks and at least the usual seeds: a part would pass for the whole.

    Args:
        study: Study to report.
        seeds: Chosen seeds.
        pieces: Existing pieces.
        folder: Folder of the written files.

    Returns:
        Content of the JSON file, and the paths of the files.
    """
    from benchmarks.files import write_picture
    from lang_envs.files import write_json

    report = study.report(Options(tuple(sorted({*study.seeds, *seeds}))), pieces)
    about = {"study": study.name, "about": study.about, "command": f"python -m benchmarks study {study.name}"}
    content = {**about, "measured_with": pieces.machines(), "commits": pieces.commits(), **report.content}
    written = [write_json(folder / f"{study.name}.json", content)]
    written += [write_picture(folder / f"{study.name}{end}.png", figure) for end, figure in report.pictures.items()]
    return content, written
