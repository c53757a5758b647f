"""`poad train`: run a training from its first step, or resume it."""

from __future__ import annotations

import contextlib
import hashlib
import shlex
import sys
import traceback
import warnings
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.utils import get_device

from lang_envs.cli.common import echo
from poad_sb3.bc import warm_start
from poad_sb3.cli.common import BAD, INTERRUPTED, STOPPED, algorithm, environments, fail, require_device
from poad_sb3.cli.engine import LOG, free_url, program, serve_arguments, serving
from poad_sb3.cli.memory import MemoryCallback, show_memory
from poad_sb3.cli.report import report
from poad_sb3.cli.train_options import ZOO, Options, default_folder, moved, new_run, resumed_run
from poad_sb3.common.callbacks import (
    BestCodeCallback,
    EpisodeRecordingCallback,
    GenerationTableCallback,
    LatestCheckpointCallback,
    WandbCallback,
)
from poad_sb3.common.hyperparameters import model_preset, require_effects
from poad_sb3.common.save_util import read_header
from poad_sb3.distributed import current_ranks, end_ranks
from poad_sb3.distributed.launch import LOST_RANK
from poad_sb3.errors import LostRankError, NoEffectWarning, ObservationError
from poad_sb3.memory import free_memory
from poad_sb3.runs import run_folder as runs
from poad_sb3.runs.loading import find_checkpoint
from poad_sb3.settings.arguments import effective_arguments
from poad_sb3.zoo.adapters import read_adapter
from poad_sb3.zoo.rows import find_agent

if TYPE_CHECKING:
    from stable_baselines3.common.vec_env import VecEnv

    from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm
    from poad_sb3.runs.run_folder import RunConfig, RunFolder

_NO_RAY = "off"
_LONGEST = 500
"""Maximum number of characters of an error that are shown; all of it is in `error.txt`."""


def resolve(options: Options, out: Path | None, *, resume: bool) -> tuple[RunFolder, RunConfig | None, RunConfig]:
    """Return the folder of a run, still unchanged, the config in it, if any, and that of the run to train.

    Args:
        options: Options of the command.
        out: Folder of the run.
        resume: Whether to resume the run in the folder, or to start it if there is none yet.
    """
    folder = runs.RunFolder(out or default_folder(options))
    existing = folder.read_config()
    if existing is None:
        if folder.latest.exists():
            fail(
                f"Expected a run or nothing in {folder.path}; got a checkpoint of something else. "
                f"Fix: --warm-start {folder.latest} with another --out."
            )
        config = new_run(options)
        if config.warm_start is not None:
            _warm_start_file(config.warm_start)
    elif resume:
        _require_server(options, existing)
        existing = existing.moved(moved(options))
        config = resumed_run(options, existing)
    else:
        fail(f"{folder.path} holds a run already. Fix: --resume, or another --out.")
    require_device(config.given.get("device", "auto"))
    n_actors = options.get("n_actors")
    if n_actors is not None and config.ray in (None, _NO_RAY):
        fail(f"Expected --ray beside --n-actors {n_actors}; got none. Fix: --ray local.")
    if n_actors is not None and n_actors > config.n_envs:
        fail(
            f"Expected --n-actors of at most {config.n_envs}, the number of environments; got {n_actors}. "
            "Fix: fewer actors, or more --n-envs."
        )
    return folder, existing, config


def train_run(
    options: Options, out: Path | None, *, resume: bool, wandb_project: str | None = None, engine: str | None = None
) -> None:
    """Train, write all files into the run's folder, and print the outcome.

    Args:
        options: Options of the command.
        out: Folder of the run.
        resume: Whether to resume the run in the folder, or to start it if there is none yet.
        wandb_project: Project of Weights & Biases to log to.
        engine: Command of a server to start for the training; see `poad_sb3.cli.engine`.
    """
    ranks = current_ranks()
    options, command = _served(options, engine)
    try:
        folder, existing, config = ranks.on_rank_zero("resolve", lambda: resolve(options, out, resume=resume))
        with folder.held() if ranks.is_first else nullcontext():
            _train(options, folder, existing, config, wandb_project, command)
    except LostRankError as error:  # before the first step
        fail(str(error), LOST_RANK)


def _warm_start_file(source: str) -> Path:
    """Return the checkpoint of a path, or the adapter of `zoo:ROW`."""
    if not source.startswith(ZOO):
        return find_checkpoint(Path(source))[0]
    row, path = find_agent(source.removeprefix(ZOO))
    read_adapter(path, row.sha256)  # refuses a damaged one
    return path


def _served(options: Options, engine: str | None) -> tuple[Options, list[str] | None]:
    """Return the options with the URL of the server that `--engine` starts, and its command."""
    if engine is None:
        return options, None
    if "generation_endpoint" in options["given"]:
        fail(
            f"Expected one server; got --engine {engine} and --set generation_endpoint="
            f"{options['given']['generation_endpoint']}. Fix: leave one of them out."
        )
    return {**options, "given": {**options["given"], "generation_endpoint": free_url()}}, program(engine)


def _require_server(options: Options, existing: RunConfig) -> None:
    """Refuse to resume without the server of `--engine`, which ended with its process."""
    command = existing.sessions[-1]["command"] if existing.sessions else []
    if "generation_endpoint" not in options["given"] and any(word.split("=")[0] == "--engine" for word in command):
        fail(
            "Expected --engine, as when this run was last trained; got none, and that server has ended. "
            "Fix: the same --engine, or --set generation_endpoint=URL."
        )


def _train(
    options: Options,
    folder: RunFolder,
    existing: RunConfig | None,
    config: RunConfig,
    wandb_project: str | None,
    command: list[str] | None,
) -> None:
    ranks = current_ranks()
    envs: VecEnv | str = config.env_id  # other ranks than 0 get the results of its environments
    if ranks.is_first:
        folder.clean()
        ray = None if config.ray == _NO_RAY else config.ray
        envs = environments(config.env_id, config.env_kwargs, config.n_envs, ray=ray, n_actors=config.n_actors)
    device = config.given.get("device", "auto")
    free = free_memory(get_device(device))  # before there is a model, since the estimate counts it
    if existing is not None and ranks.on_rank_zero("checkpoint", folder.latest.exists):
        at = {name: value for name, value in options["given"].items() if name == "generation_endpoint"}
        with _refusals():
            model = algorithm(config.algorithm).load(folder.latest, envs, device, policy_kwargs=moved(options), **at)
    else:
        model = make_algorithm(config, envs, options["given"])
        if config.warm_start is not None:
            with _refusals():
                warm_start(model, _warm_start_file(config.warm_start))
    if existing is not None and config.steps < min(existing.steps, model.num_timesteps):
        fail(f"Expected --steps beyond {model.num_timesteps}, where the run already is; got {config.steps}.")
    # Training is of whole rollouts; the length of those of whole episodes is not known before.
    rollout = model.n_steps * model.n_envs if not model.whole_episodes else 1
    n_rollouts = -(-max(0, config.steps - model.num_timesteps) // rollout)
    total = model.num_timesteps + n_rollouts * rollout
    callbacks: list[BaseCallback] = []
    server: AbstractContextManager[object] = nullcontext()
    if command is not None:
        assert model.generation_endpoint is not None
        server = serving(command, serve_arguments(model), model.generation_endpoint, folder.path / LOG)
    with server:
        if ranks.is_first:
            assert not isinstance(envs, str)
            config = _completed(config, existing, model, envs)
            callbacks = [MemoryCallback(free), *_callbacks(folder, config, envs, wandb_project)]
            folder.write_config(config)
            model.set_logger(runs.run_logger(folder, model.num_timesteps))
            _announce(folder, config, model, total)
        _learn(folder, config, existing, model, callbacks)
    if not ranks.is_first:
        return
    returns = [episode["r"] for episode in model.ep_info_buffer or ()]
    mean = f"mean return {sum(returns) / len(returns):.3f} of the last {len(returns)} episodes" if returns else ""
    echo(f"{folder.path}: {model.num_timesteps} steps, {mean or 'no episode ended'}")
    try:
        report([folder.path])
    except Exception as error:
        echo(f"poad: warning: the training is complete; only its report could not be written: {error}", err=True)


def dry_run(options: Options, out: Path | None, *, resume: bool, engine: str | None = None) -> None:
    """Check the settings of a training and show the memory that it needs; train and write nothing.

    Args:
        options: Options of the command.
        out: Folder of the run.
        resume: Whether the folder may hold the run already.
        engine: Command of a server; see `train_run`.
    """
    options, _ = _served(options, engine)
    _, _, config = resolve(options, out, resume=resume)
    with closing(environments(config.env_id, config.env_kwargs, config.n_envs)) as envs:
        free = free_memory(get_device(config.given.get("device", "auto")))  # before there is a model
        model = make_algorithm(config, envs, options["given"])
        assert model.env is not None
        try:
            show_memory(model, model.env.reset(), free)
        except Exception as error:  # an environment may raise anything
            fail(f"{config.env_id} cannot be reset: {error}")


def make_algorithm(config: RunConfig, envs: VecEnv | str, given: Iterable[str]) -> LLMOnPolicyAlgorithm:
    """Make the algorithm of a new run, or fail with one line.

    Args:
        config: Config of the run.
        envs: Environments of the run.
        given: Names of arguments that must have an effect.
    """
    with _refusals(), warnings.catch_warnings():
        warnings.simplefilter("ignore", NoEffectWarning)  # an error here
        model = algorithm(config.algorithm)("LLMPolicy", envs, seed=config.seed, **config.given, _model_preset=False)
        require_effects(model, given)
    return model


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Fail with one line where a model or its arguments are refused."""
    try:
        yield
    except LostRankError:
        raise
    except BAD as error:
        fail(str(error))


def _completed(config: RunConfig, existing: RunConfig | None, model: LLMOnPolicyAlgorithm, envs: VecEnv) -> RunConfig:
    """Fill in fields known after construction. The checkpoint has the same arguments, prompt and base model."""
    dataset = runs.dataset_digest(envs)
    if existing is not None and dataset != existing.dataset:
        fail(
            f"Expected the table that the run began with, of digest {existing.dataset}; got {dataset}. "
            "Fix: restore the table, or train again."
        )
    return replace(
        config,
        arguments=effective_arguments(model),
        model=runs.describe_model(model),
        dataset=dataset,
        prompt_template=model.policy.lm.prompter.template.to_dict(),
        sessions=[*config.sessions, runs.session(sys.argv, model.num_timesteps)],
    )


def _callbacks(folder: RunFolder, config: RunConfig, envs: VecEnv, wandb_project: str | None) -> list[BaseCallback]:
    callbacks: list[BaseCallback] = [
        LatestCheckpointCallback(folder.latest, config.save_every),
        GenerationTableCallback(folder.path),
    ]
    n_recorded, session = config.record_episodes, config.sessions[0]
    if n_recorded is None:  # programs take long in the sandbox
        runs_code = envs.has_attr("steps_elsewhere") and all(envs.get_attr("steps_elsewhere"))
        n_recorded = 1 if runs_code else 4
    if n_recorded:
        recording = EpisodeRecordingCallback(
            folder.path,
            config.env_id,
            env_kwargs=config.env_kwargs,
            every=config.save_every,
            n_episodes=n_recorded,
            seed=config.seed,
            provenance={"command": shlex.join(session["command"]), "versions": session["versions"]},
        )
        callbacks.append(recording)
    if envs.has_attr("best_so_far"):
        callbacks.append(BestCodeCallback(folder.path))
    if wandb_project is not None:
        begun = f"{folder.path.resolve()} {session['time']}"
        run_id = hashlib.sha256(begun.encode()).hexdigest()[:16]  # the same when the run is resumed
        shown: dict[str, Any] = {"seed": config.seed, "env": config.env_id, **config.arguments}
        callbacks.append(
            WandbCallback(wandb_project, run_id=run_id, config=shown, name=folder.path.name, dir=str(folder.path))
        )
    return callbacks


def _announce(folder: RunFolder, config: RunConfig, model: LLMOnPolicyAlgorithm, total: int) -> None:
    start = f"from step {model.num_timesteps}" if model.num_timesteps else "from the start"
    echo(f"{config.algorithm} on {config.env_id}, seed {config.seed}: {start} to {total}, in {folder.path}")
    facts = [f"action_sampling={model.action_sampling!r}", f"model={model.policy.lm.source.name!r}"]
    if config.preset is not None:
        facts.append(f"preset {config.preset}")
    elif remark := model_preset(type(model), config.env_id, config.given)[1]:
        facts.append(remark)
    if current_ranks().size > 1:
        facts.append(f"{current_ranks().size} ranks")
    if config.ray not in (None, _NO_RAY):
        facts.append(f"environments in Ray actors ({config.ray})")
    echo(", ".join(facts))


def _learn(
    folder: RunFolder,
    config: RunConfig,
    existing: RunConfig | None,
    model: LLMOnPolicyAlgorithm,
    callbacks: list[BaseCallback],
) -> None:
    """Train the remaining steps, and save; on an error, show the checkpoint to resume from."""
    try:
        left = max(0, config.steps - model.num_timesteps)
        model.learn(left, callbacks, reset_num_timesteps=model.num_timesteps == 0, progress_bar=sys.stdout.isatty())
        model.save(folder.latest)
        end_ranks()
    except KeyboardInterrupt:
        echo(f"poad: interrupted; {_left_over(folder)}", err=True)
        raise typer.Exit(INTERRUPTED) from None
    except LostRankError as error:
        fail(f"{error} {_left_over(folder)}", LOST_RANK)
    except Exception as error:  # environments may raise anything
        is_first = current_ranks().is_first
        if isinstance(error, ObservationError) and model.num_timesteps == 0 and existing is None:
            if is_first:
                folder.config_file.unlink(missing_ok=True)  # settings that do not fit the environment: there is no run
            fail(str(error))
        if is_first:
            with contextlib.suppress(OSError):  # the error may be a full disk
                (folder.path / "error.txt").write_text(traceback.format_exc(), encoding="utf-8")
        cause = f"{type(error).__name__}: {error}"[:_LONGEST] if str(error) else type(error).__name__
        fail(f"The training stopped at step {model.num_timesteps} ({cause}). {_left_over(folder)}", STOPPED)
    finally:
        for callback in callbacks:
            if isinstance(callback, WandbCallback):
                callback.close()
        model.logger.close()
        if model.env is not None:
            model.env.close()  # actors end before their cluster does


def _left_over(folder: RunFolder) -> str:
    if not folder.latest.exists():
        return "There is no checkpoint yet; the same command with --resume starts over."
    steps = read_header(folder.latest)["num_timesteps"]
    return f"{folder.latest} holds step {steps}; the same command with --resume continues from there."
