"""`poad tune`: search for the arguments of a method on a task."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from lang_envs.cli.common import console, echo, parse_settings
from lang_envs.files import write_text
from poad_sb3.cli.common import (
    INTERRUPTED,
    STOPPED,
    EnvSettings,
    Settings,
    algorithm,
    environments,
    fail,
    require_llm,
)
from poad_sb3.errors import PoadError

if TYPE_CHECKING:
    import optuna


def tune(
    env_id: Annotated[str, typer.Argument(metavar="ENV", help="An id of `lang-envs list`, or module:Id-v0.")],
    trials: Annotated[int, typer.Option(min=1, help="Trials in all, with those that are there.")] = 50,
    algo: Annotated[str | None, typer.Option(help="As of `poad train`; POAD by default.")] = None,
    preset: Annotated[
        str | None, typer.Option(help="As of `poad train`; what is not searched is taken from it.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Environment steps of a trial.")] = 4_096,
    n_envs: Annotated[int | None, typer.Option(min=1, help="Environments; those of the preset, or 1.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the trials; take others for what you report.")] = 101,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes of each of the four evaluations of a trial.")] = 20,
    workers: Annotated[int, typer.Option(min=1, help="Trials at a time, one thread each if there are several.")] = 1,
    ray: Annotated[
        str | None,
        typer.Option(metavar="local|auto|ADDRESS", help="Run --workers trials in actors of Ray, on any machine."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the search; runs/tune-ALGO-ENV by default.")] = None,
    settings: Settings = None,
    env_settings: EnvSettings = None,
) -> None:
    """Search for the arguments of a method on a task (extra tune)."""
    require_llm()
    from poad_sb3.cli.train_options import new_run, parse_options
    from poad_sb3.runs import run_folder as runs
    from poad_sb3.tuning import Search, best_arguments, ended_trials, importances, open_study, run_trials

    options = parse_options(settings, env_settings, env_id=env_id, algorithm=algo, preset=preset, n_envs=n_envs)
    config, fixed = new_run(options), tuple(sorted(parse_settings("--set", settings or (), fail)))
    environments(env_id, config.env_kwargs, 1).close()  # or it fails with a sentence
    kind = algorithm(config.algorithm)
    search = Search(
        kind, env_id, steps, config.n_envs, config.given, fixed, config.env_kwargs, seed=seed, n_episodes=episodes
    )
    folder = out or Path("runs") / f"tune-{config.algorithm}-{env_id.replace('/', '-').replace(':', '-')}"
    study = open_study(search, folder / "trials.db")

    def done(_: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
        error = trial.user_attrs.get("error", "")
        score = error if not trial.intermediate_values else f"{trial.intermediate_values[trial.last_step or 0]:.3f}"
        tried = ", ".join(f"{name}={_short(value)}" for name, value in trial.params.items())
        echo(f"trial {trial.number}: {trial.state.name.lower()}, {score} ({tried})")

    try:
        run_trials(study, search, trials, done, workers, ray)
    except PoadError:
        raise
    except KeyboardInterrupt:
        echo("poad: interrupted; the same command continues.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    except Exception as error:  # environments may raise anything
        fail(f"A trial stopped ({type(error).__name__}: {error}). The same command continues with the next.", STOPPED)
    arguments = best_arguments(study, search)
    file = folder / "preset.json"
    content = {
        "algorithm": config.algorithm,
        "env_id": env_id,
        "env_kwargs": config.env_kwargs,
        "n_envs": config.n_envs,
        "arguments": arguments,
        "score": study.best_value,
        "trials": len(ended_trials(study)),
        "seed": seed,
        "steps": steps,
        "versions": runs.session([], 0)["versions"],
    }
    write_text(file, json.dumps(content, indent=2) + "\n")
    table = Table("argument", "best", "importance", box=None)
    for name, share in importances(study).items():
        table.add_row(name, _short(study.best_params[name]), f"{share:.2f}")
    console().print(table)
    echo(f"Best of {len(ended_trials(study))} trials: {study.best_value:.3f}, the mean return over its evaluations.")
    of_env = [word for setting in env_settings or () for word in ("--env-set", setting)]
    echo(shlex.join(["poad", "train", env_id, "--preset", str(file), *of_env]))


def _short(value: Any) -> str:
    return f"{value:.2g}" if isinstance(value, float) else str(value)
