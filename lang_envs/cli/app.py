"""The commands. Typer reads arguments, defaults and help from their signatures and docstrings."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import gymnasium as gym
import numpy as np
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from lang_envs.agents import Agent, oracle_agent, random_agent
from lang_envs.cli.common import arguments, console, counted, echo, fail, language_env, require_parts, resolve, signed
from lang_envs.cli.data import data_app
from lang_envs.cli.describe import show_description
from lang_envs.cli.play import play_episode
from lang_envs.cli.sandbox import sandbox_app
from lang_envs.env_checker import CHECKS, Result, Status, iter_checks
from lang_envs.env_checker.attacks import ATTACKS, iter_attacks
from lang_envs.errors import LangEnvsError
from lang_envs.recording import Recording, record_gif
from lang_envs.registration import ALL_ROWS, ENV_ROWS, FOREIGN_ROWS, TRAINING_IDS, UNSEEN_IDS, EnvRow, registered
from lang_envs.text import one_line

app = typer.Typer(
    name="lang-envs",
    help="Language environments: sequential decision tasks in words.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(data_app, name="data")
app.add_typer(sandbox_app, name="sandbox")

EnvId = Annotated[
    str,
    typer.Argument(metavar="ID", help="An id of `lang-envs list`, or module:Id-v0 for one that a module registers."),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the reset.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="An argument of gym.make, such as data=synthetic; repeatable."),
]

_STYLES = {Status.PASSED: "green", Status.FAILED: "bold red", Status.SKIPPED: "yellow"}


class AgentName(StrEnum):
    """Who plays for `watch`."""

    ORACLE = "oracle"
    RANDOM = "random"
    CODER = "coder"


@app.command("list")
def list_environments(
    family: Annotated[str | None, typer.Option(help="Only the ids of this family, such as overcooked.")] = None,
) -> None:
    """List the environments; those of other packages by --family."""
    rows: Sequence[EnvRow] = ENV_ROWS
    if family is not None:
        rows = [row for row in ALL_ROWS if _family(row.id).lower() == family.lower()]
    foreign = list(dict.fromkeys(_family(row.id) for row in FOREIGN_ROWS))
    if not rows:
        families = sorted({_family(row.id) for row in ENV_ROWS}) + foreign
        fail(f"Expected a family among {families}; got {family!r}.")
    table = Table("id", "task", "use", box=None)
    for row in rows:
        use = "training" if row.id in TRAINING_IDS else "unseen" if row.id in UNSEEN_IDS else row.extra
        table.add_row(Text(row.id, style="cyan", no_wrap=True), Text(row.summary), Text(use))
    console().print(table)
    if family is None:
        console().print(f"Of other packages: lang-envs list --family {', '.join(foreign)}", soft_wrap=True)


def _family(env_id: str) -> str:
    return env_id.partition("-")[0]


@app.command()
def describe(env_id: EnvId, seed: Seed = 0, settings: Settings = None) -> None:
    """Describe an environment: spaces, arguments, first observation, actions, drawing."""
    name = resolve(env_id)
    with language_env(name, arguments(settings or ())) as env:
        show_description(console(), env, gym.spec(name), seed)


@app.command()
def play(env_id: EnvId, seed: Seed = 0, settings: Settings = None) -> None:
    """Play an episode yourself."""
    with language_env(resolve(env_id), arguments(settings or ())) as env:
        try:
            play_episode(console(), env, seed)
        except LangEnvsError as error:  # code cannot be run here
            fail(str(error))


@app.command()
def check(
    env_id: EnvId,
    settings: Settings = None,
    attack: Annotated[
        bool,
        typer.Option(
            "--attack", help="Try attack programs on an environment that runs code, in place of the contract."
        ),
    ] = False,
    honest: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --attack: code that earns a reward.")
    ] = None,
    worthless: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --attack: a valid answer without merit, put before each program."),
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, help="With --attack: time in which a step must end.")] = 60,
) -> None:
    """Check that an environment keeps the contract; exit code 1 if it does not."""
    name = resolve(env_id)
    kwargs = arguments(settings or ())
    require_parts(name, kwargs)
    try:
        gym.make(name, disable_env_checker=True, **kwargs).close()
    except Exception as error:  # of the environment's own code
        message = " ".join(str(error).split())
        fail(f"Expected an environment that can be made; {env_id} raises {type(error).__name__}: {message}")
    if attack:
        if honest is None:
            fail(
                "Expected --honest FILE with --attack, code that earns a reward: else nothing shows that programs run."
            )
        try:
            texts = {
                key: path.read_text("utf-8") for key, path in (("honest", honest), ("worthless", worthless)) if path
            }
        except (OSError, ValueError) as error:
            fail(f"Expected files of Python code; got {error}")
        names = {program.name: program.description for program in ATTACKS}
        make = partial(gym.make, name, disable_env_checker=True, **kwargs)
        results = iter_attacks(make, seconds=seconds, **texts)  # type: ignore[arg-type]
    else:
        names = {point.name: point.description for point in CHECKS}
        results = iter_checks(name, **kwargs)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    # auto_refresh would run a thread, and some checks fork
    with (
        Progress(*columns, console=console(), transient=True, auto_refresh=False) as progress,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # the results have those that matter
        try:
            done = list(progress.track(results, total=len(names), description=name))
        except LangEnvsError as error:
            fail(str(error))
    _show_results(env_id, done, names)
    if any(result.status is Status.FAILED for result in done):
        raise typer.Exit(1)


def _show_results(env_id: str, results: Sequence[Result], descriptions: dict[str, str]) -> None:
    table = Table("check", "result", "", title=Text(env_id), title_justify="left")
    for result in results:
        status = Text(result.status.value, style=_STYLES[result.status])
        table.add_row(result.name, status, Text(one_line(result.message or descriptions[result.name])))
    console().print(table)
    counts = {status: sum(result.status is status for result in results) for status in Status}
    console().print(", ".join(f"{count} {status.value}" for status, count in counts.items()))


@app.command()
def serve(
    env_id: EnvId,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on.")] = 8000,
    max_sessions: Annotated[int, typer.Option(min=1, help="Sessions at a time.")] = 64,
    idle_seconds: Annotated[float, typer.Option(min=1, help="Close a session after this time without a word.")] = 600,
    package: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write a folder for OpenEnv's tools, and serve nothing.")
    ] = None,
    settings: Settings = None,
) -> None:
    """Serve an environment by OpenEnv's protocol (extra openenv)."""
    name, kwargs = resolve(env_id), arguments(settings or ())
    language_env(name, kwargs, drawn=False).close()
    try:
        if package is not None:
            from lang_envs.bridges.openenv_package import write_package

            write_package(env_id, package, **kwargs)
            console().print(f"{package}: openenv.yaml, server and client of {name}", markup=False, highlight=False)
            return
        from lang_envs.bridges.openenv import serve as serve_task

        console().print(f"{name} at ws://{host}:{port}/ws; Ctrl-C ends it", markup=False, highlight=False)
        serve_task(name, host=host, port=port, max_sessions=max_sessions, idle_seconds=idle_seconds, **kwargs)
    except (LangEnvsError, OSError) as error:
        fail(str(error))


@app.command("check-results")
def check_results(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="NAME.jsonl, with NAME.steps.jsonl beside it, or a file of steps."),
    ],
) -> None:
    """Check results files line by line; exit code 1 if one is not as the schemas have it."""
    from lang_envs.report import ReportError
    from lang_envs.report import check as check_file

    is_refused = False
    for path in files:
        try:
            echo(f"{path}: ok: {check_file(path)}")
        except ReportError as error:
            is_refused = True
            echo(f"lang-envs: {error}", err=True)
    if is_refused:
        raise typer.Exit(1)


@app.command()
def watch(
    env_id: EnvId,
    agent: Annotated[AgentName, typer.Option(help="Who plays.")] = AgentName.ORACLE,
    out: Annotated[Path | None, typer.Option(help="The GIF; ID.gif in this folder by default.")] = None,
    seed: Seed = 0,
    max_frames: Annotated[int, typer.Option(min=1, help="Stop here, whether or not the episode is over.")] = 60,
    settings: Settings = None,
) -> None:
    """Record an episode of an agent as an animated GIF."""
    name = resolve(env_id)
    kwargs = arguments(settings or ())
    with language_env(name, kwargs) as env:
        player = _player(agent, env, seed)
    path = Path(f"{name.replace('/', '-')}.gif") if out is None else out
    if path.is_dir() or path.suffix.lower() != ".gif":
        fail(f"Expected a file name that ends in .gif; got {str(path)!r}.")
    try:
        recording = record_gif(name, player, path, seed=seed, max_frames=max_frames, **kwargs)
    except (LangEnvsError, NotImplementedError, OSError) as error:
        fail(str(error))
    console().print(_ending(recording), highlight=False)
    console().print(f"{path}: {len(recording.frames)} frames", markup=False, highlight=False)


@app.command()
def replay(
    path: Annotated[
        Path, typer.Argument(metavar="FILE", help="Results file with steps, NAME.jsonl, or an episode of a report.")
    ],
    identity: Annotated[
        str | None,
        typer.Argument(metavar="ENV/SEED/EPISODE", help="The episode; with @STEPS behind it in a training."),
    ] = None,
    render: Annotated[bool, typer.Option("--render", help="Show the drawing of each step.")] = False,
    module: Annotated[
        str | None, typer.Option("--import", metavar="MODULE", help="Module that registers the environment.")
    ] = None,
    settings: Settings = None,
) -> None:
    """Play a recorded episode again and compare it with the record; exit code 1 if they differ.

    Recorded programs run with `confinement="require"`, and with the recorded limits only where they are smaller than
    the usual ones; --set chooses others.
    """
    from lang_envs.cli.replay import cautious, find_episode, replay_episode
    from lang_envs.report.replaying import recorded_arguments

    try:
        header, episode = find_episode(path, identity)
        recorded = episode["env"].rpartition(":")[2]
        name = registered(recorded) if module is None else resolve(f"{module}:{recorded}")
        if name is None:
            fail(
                f"Expected a registered environment in {path}; got {episode['env']!r}. "
                "Fix: --import MODULE, with the module that registers it."
            )
        chosen, kwargs = arguments(settings or ()), recorded_arguments(header)
        require_parts(name, kwargs | chosen)
        safe = cautious(name, kwargs | chosen) | chosen
        lowered = [f"--set {key}={kwargs[key]}" for key in kwargs if key not in chosen and kwargs[key] != safe[key]]
        if lowered:
            echo(f"lang-envs: programs run with the usual limits; as recorded: {' '.join(lowered)}", err=True)
        with language_env(name, safe, drawn=render) as env:
            same = replay_episode(console(), env, episode)
    except (LangEnvsError, OSError) as error:
        fail(str(error))
    if not same:
        raise typer.Exit(1)


def _player(name: AgentName, env: gym.Env[Any, Any], seed: int) -> Agent:
    if name is AgentName.ORACLE:
        return oracle_agent()
    if name is AgentName.RANDOM:
        return random_agent(np.random.default_rng((seed, 1)))
    if env.reset(seed=seed)[1]["admissible_actions"] is not None:
        fail("Expected an environment where any text is an action for the coder; this one lists its actions.")
    from lang_envs.envs.datascicoding.coder import RandomCoder

    return RandomCoder(seed)


def _ending(recording: Recording) -> str:
    done = f"{counted(len(recording.actions))}, return {signed(recording.episode_return)}"
    if recording.success:
        return f"The goal was reached: {done}."
    if recording.terminated or recording.truncated:
        how = "by failure" if recording.terminated else "without success, its budget used up"
        return f"The episode ended {how}: {done}."
    return f"The episode was not over after {done}."
