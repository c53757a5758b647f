"""The commands of `lang-bench`. Typer reads arguments, defaults and help from their signatures and docstrings."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from lang_bench.runner.errors import BenchmarkError, FailedError
from lang_bench.runner.lines import file_name
from lang_bench.runner.plan import Plan
from lang_bench.runner.players import Workers
from lang_bench.runner.session import times_file
from lang_envs.cli.common import console, echo, language_env, parse_settings, require_parts, resolve
from lang_envs.errors import LangEnvsError
from lang_envs.report.results import steps_file
from lang_envs.text import one_line
from poad_sb3.errors import PoadError

REFUSED, STOPPED = 1, 3
"""Exit codes, as of `poad`: refused before a start; an agent or a job failed, and earlier results are kept."""
_HUMAN = "human"  # an agent that needs the terminal for itself

app = typer.Typer(
    name="lang-bench",
    help="Measure agents on tasks, and report what was measured.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def fail(message: str, code: int = REFUSED, program: str = "lang-bench") -> NoReturn:
    """Print one line on stderr, and exit."""
    echo(f"{program}: {' '.join(message.split())}", err=True)
    raise typer.Exit(code)


@contextmanager
def one_line_errors(program: str = "lang-bench") -> Iterator[None]:
    """Print errors raised on purpose as one line on stderr, and exit."""
    try:
        yield
    except FailedError as error:
        if error.trace:
            echo(error.trace, err=True)
        fail(str(error), STOPPED, program)
    except (BenchmarkError, LangEnvsError, PoadError, OSError) as error:
        fail(str(error), REFUSED, program)


def _say(line: object) -> None:
    console().print(line, markup=False, highlight=False, soft_wrap=True)


def _require_checkout(fix: str) -> None:
    from lang_bench.reports.leaderboard import FOLDER

    if not FOLDER.is_dir():
        fail(f"Expected a checkout, whose leaderboard this is about; the package is installed. Fix: {fix}.")


def _without_parts(files: list[Path]) -> list[Path]:
    """Leave out steps and times of results that are named too, as `runs/*.jsonl` does."""
    parts = {part for file in files for part in (steps_file(file), times_file(file))}
    return [file for file in files if file not in parts]


Files = Annotated[
    list[Path], typer.Argument(metavar="FILE...", help="Results files of `run`.", callback=_without_parts)
]


@app.command()
@one_line_errors()
def run(
    agent: Annotated[
        str,
        typer.Option(
            metavar="SPEC", help="Who plays: random, oracle, checkpoint:PATH, module:function ...; {seed} is the seed."
        ),
    ],
    env: Annotated[list[str], typer.Option(metavar="ID", help="A task: an id, or module:Id-v0; repeatable.")],
    agent_set: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="An argument of the agent; repeatable.")
    ] = None,
    env_set: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="An argument of gym.make; repeatable.")
    ] = None,
    episodes: Annotated[int, typer.Option(help="Episodes of every seed on every task.")] = 100,
    seeds: Annotated[int, typer.Option(help="Seeds; intervals are taken over them.")] = 5,
    first_seed: Annotated[int, typer.Option(help="The first of them.")] = 0,
    workers: Annotated[int, typer.Option(min=1, help="Episodes that are played at a time.")] = 1,
    where: Annotated[
        Workers, typer.Option("--in", help="Where: processes to compute, threads to wait for a server.")
    ] = Workers.PROCESSES,
    ray: Annotated[
        str | None,
        typer.Option(metavar="local|auto|ADDRESS", help="Play in --workers actors of Ray instead, on any machine."),
    ] = None,
    steps: Annotated[bool, typer.Option("--steps", help="Record every step too, in NAME.steps.jsonl.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Results file; runs/benchmarks/AGENT.TASK.jsonl by default.")
    ] = None,
    label: Annotated[str | None, typer.Option(help="Name of the agent in tables, instead of its own.")] = None,
    leaderboard: Annotated[bool, typer.Option("--leaderboard", help="Then submit the results.")] = False,
) -> None:
    """Play episodes into a file; the same command resumes it."""
    from lang_bench.reports.terminal import invalid_remark, overview_table
    from lang_bench.runner.results import load
    from lang_bench.runner.session import measure

    settings = parse_settings("--env-set", env_set or (), fail)
    if "render_mode" in settings:
        fail("Expected --env-set of another argument than render_mode, which the runner chooses itself.")
    plan = Plan(
        agent=agent,
        envs=tuple(env),
        episodes=episodes,
        seeds=seeds,
        first_seed=first_seed,
        agent_settings=parse_settings("--agent-set", agent_set or (), fail),
        env_settings=settings,
        steps=steps,
        label=label,
    )
    if leaderboard and settings:
        fail("Expected tasks as registered for the leaderboard; got --env-set. Fix: leave one of the two out.")
    if leaderboard:
        _require_checkout("`lang-bench submit` with --into DIR after the run")
    for env_id in env:
        registered = resolve(env_id)
        if ray is None:
            language_env(registered, settings).close()
        else:  # its table may be on the nodes alone
            require_parts(registered, settings)
    name = f"{label or agent}.{env[0]}" if len(env) == 1 else label or agent
    path = out or Path("runs/benchmarks") / f"{file_name(name)}.jsonl"
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(), transient=True, disable=agent == _HUMAN) as progress:
        task = progress.add_task(one_line(label or agent), total=None)

        def watch(n_played: int, total: int) -> None:
            progress.update(task, completed=n_played, total=total)

        try:
            done = measure(plan, path, n_workers=workers, workers=where, ray=ray, watch=watch)
        except KeyboardInterrupt:
            if where is not Workers.THREADS or workers == 1:
                raise
            progress.stop()
            typer.echo("lang-bench: interrupted. What was written is kept; the same command resumes.", err=True)
            os._exit(130)  # a thread cannot be ended, and the interpreter would wait for its agent
    cells = load([path])
    console().print(overview_table(cells, console().width))
    if remark := invalid_remark(cells, path):
        _say(remark)
    _say(f"{path}: {done.played} episodes played in {done.seconds:.1f} s, {done.found} were there.")
    if leaderboard:
        submit([path])


@app.command()
@one_line_errors()
def report(
    files: Files,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The written file; report.html in a folder of the first file's name."),
    ] = None,
    pictures: Annotated[
        int, typer.Option(min=0, help="Episodes of the HTML file that are played again for their pictures.")
    ] = 20,
    shown: Annotated[
        int | None,
        typer.Option("--episodes-shown", min=0, help="Episodes whose steps are in the HTML file; all by default."),
    ] = None,
) -> None:
    """Write one HTML file with tables and all episodes."""
    from lang_bench.reports.html_report import write_html
    from lang_bench.reports.terminal import overview_table
    from lang_bench.runner.results import load

    cells = load(files)
    if not cells:
        fail(f"Expected episodes in {', '.join(map(str, files))}; got none. Fix: lang-bench run.")
    path = html or files[0].with_suffix("") / "report.html"
    lines = write_html(files, path, pictures=pictures, shown=shown)
    console().print(overview_table(cells, console().width))
    for line in lines:
        _say(line)


class Format(StrEnum):
    """Formats of exports."""

    INSPECT = "inspect"
    MINARI = "minari"


@app.command()
@one_line_errors()
def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Results file of `run --steps`, or RUN/episodes.jsonl.")],
    to: Annotated[Format, typer.Option(help="inspect: a log of Inspect. minari: a data set of Minari.")],
    out: Annotated[
        str | None, typer.Option(metavar="NAME", help="NAME.eval or NAME.json; for minari an id such as salad/poad-v0.")
    ] = None,
) -> None:
    """Write recorded episodes for other tools."""
    from lang_envs.report import read_results
    from lang_envs.report.exports import to_inspect, to_minari

    if to is Format.INSPECT:
        _say(to_inspect(read_results(file), Path(out or file.with_suffix(".eval"))))
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # for want of an author, whom no option names
            _say(to_minari(read_results(file), out or f"{file.stem}-v0").spec.data_path)


@app.command()
@one_line_errors()
def submit(
    files: Files,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace these tasks; an agent of this name with other settings, whole.")
    ] = False,
    into: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the leaderboard; the committed one by default.")
    ] = None,
) -> None:
    """Add the results of agents to the leaderboard, the source of the site's page."""
    from lang_bench.reports.leaderboard import add
    from lang_bench.runner.results import load
    from lang_envs.report import check

    if into is None:
        _require_checkout("--into DIR")
    for path in files:
        check(path)  # with the steps, if they are recorded: scores are not taken on trust
    for path in add(load(files), replace=replace, folder=into):
        _say(f"On the leaderboard: {path}")
