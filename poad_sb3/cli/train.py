"""`poad train`: run a training from its first step, or resume it."""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
import traceback
import warnings
from collections.abc import Iterable, Mapping
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer
from rich.console import Console
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.utils import get_device

from lang_envs.cli.common import echo
from lang_envs.errors import LangEnvsError
from poad_sb3.bc import warm_start
from poad_sb3.cli.common import BAD, INTERRUPTED, STOPPED, algorithm, checkpoint_at, environments, fail, require_device
from poad_sb3.cli.memory import MemoryCallback, show_memory
from poad_sb3.cli.progress import ProgressLines
from poad_sb3.cli.report import write_run_report
from poad_sb3.cli.train_options import TrainOptions
from poad_sb3.common.callbacks import (
    BestCodeCallback,
    EpisodeRecordingCallback,
    GenerationTableCallback,
    LatestCheckpointCallback,
    WandbCallback,
)
from poad_sb3.common.hyperparameters import known_arguments, model_preset, require_effects
from poad_sb3.common.save_util import read_header
from poad_sb3.distributed import current_ranks, end_ranks
from poad_sb3.distributed.launch import LOST_RANK
from poad_sb3.errors import LostRankError, NoEffectWarning, ObservationError
from poad_sb3.memory import free_memory
from poad_sb3.presets import PRESETS
from poad_sb3.runs import run_folder as runs

if TYPE_CHECKING:
    from stable_baselines3.common.vec_env import VecEnv

    from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm
    from poad_sb3.runs.run_folder import RunConfig, RunFolder

_NO_RAY = "off"
_LONGEST = 500
"""Maximum number of characters of an error that are shown; all of it is in `error.txt`."""


class Resolved(NamedTuple):
    """A command with its run and device.

    Attributes:
        folder: Folder of the run; still unchanged.
        existing: Config of the run in the folder; None if there is none.
        config: Config of the run to train.
        device: Device of the model.
    """

    folder: RunFolder
    existing: RunConfig | None
    config: RunConfig
    device: str


def resolve(options: TrainOptions, out: Path | None, *, resume: bool) -> Resolved:
    """Read the options, or fail with one line.

    Args:
        options: Options of the command.
        out: Folder of the run.
        resume: Whether to resume the run in the folder, or to start it if there is none yet.
    """
    folder = runs.RunFolder(out or options.default_folder())
    try:
        existing = folder.read_config()
        existing = None if existing is None else existing.moved(options.moved())
    except runs.RunError as error:
        fail(str(error))
    if existing is None and folder.latest.exists():
        fail(
            f"Expected a run or nothing in {folder.path}; got a checkpoint of something else. "
            f"Fix: --warm-start {folder.latest} with another --out."
        )
    if existing is not None and not resume:
        fail(f"{folder.path} holds a run already. Fix: --resume, or another --out.")
    device = options.arguments.get("device", "auto" if existing is None else existing.given.get("device", "auto"))
    require_device(device)
    if existing is None:
        config = options.new()
    else:
        options.require_same(existing)
        free_to_change = ("steps", "save_every", "record_episodes", "ray", "n_actors")
        given = {name: getattr(options, name) for name in free_to_change}
        config = replace(existing, **{name: value for name, value in given.items() if value is not None})
    if config.warm_start is not None and existing is None:
        checkpoint_at(Path(config.warm_start))
    if options.n_actors is not None and config.ray in (None, _NO_RAY):
        fail(f"Expected --ray beside --n-actors {options.n_actors}; got none. Fix: --ray local.")
    if options.n_actors is not None and options.n_actors > config.n_envs:
        fail(
            f"Expected --n-actors of at most {config.n_envs}, the number of environments; got {options.n_actors}. "
            "Fix: fewer actors, or more --n-envs."
        )
    return Resolved(folder, existing, config, device)


def train_run(
    console: Console,
    options: TrainOptions,
    out: Path | None,
    *,
    resume: bool,
    progress: ProgressLines,
    wandb_project: str | None = None,
) -> None:
    """Train, write all files into the run's folder, and print the outcome.

    Args:
        console: Console to print to.
        options: Options of the command.
        out: Folder of the run.
        resume: Whether to resume the run in the folder, or to start it if there is none yet.
        progress: Progress lines that report the state of the training.
        wandb_project: Project of Weights & Biases to log to.
    """
    ranks = current_ranks()
    progress.phase = "making environments"
    try:
        resolved = ranks.on_rank_zero("resolve", lambda: resolve(options, out, resume=resume))
        with resolved.folder.held() if ranks.is_first else nullcontext():
            _train(console, options, resolved, progress, wandb_project)
    except runs.RunError as error:
        fail(str(error))
    except LostRankError as error:  # before the first step
        ranks.wait_until_first_ends()
        fail(str(error), LOST_RANK)


def _train(
    console: Console, options: TrainOptions, resolved: Resolved, progress: ProgressLines, wandb_project: str | None
) -> None:
    ranks = current_ranks()
    folder, existing, config, device = resolved
    envs: VecEnv | str = config.env_id  # other ranks than 0 get the results of its environments
    if ranks.is_first:
        folder.clean()
        ray = None if config.ray == _NO_RAY else config.ray
        envs = environments(config.env_id, config.env_kwargs, config.n_envs, ray=ray, n_actors=config.n_actors)
    progress.phase = "loading the model"
    free = free_memory(get_device(device))  # before there is a model, since the estimate counts it
    if existing is not None and ranks.on_rank_zero("checkpoint", folder.latest.exists):
        model = _load(folder, config, envs, device, options.moved())
    else:
        model = make_algorithm(config, envs, device, options.arguments)
        _warm_start(config, model)
    if existing is not None and config.steps < min(existing.steps, model.num_timesteps):
        fail(f"Expected --steps beyond {model.num_timesteps}, where the run already is; got {config.steps}.")
    # Training is of whole rollouts; the length of those of whole episodes is not known before.
    rollout = model.n_steps * model.n_envs if not model.whole_episodes else 1
    n_rollouts = -(-max(0, config.steps - model.num_timesteps) // rollout)
    total = model.num_timesteps + n_rollouts * rollout
    callbacks: list[BaseCallback] = []
    if ranks.is_first:
        assert not isinstance(envs, str)
        config = _completed(config, existing, model, envs)
        callbacks = [MemoryCallback(console, free), *_callbacks(folder, config, envs, wandb_project)]
        try:
            folder.write_config(config)
            model.set_logger(runs.run_logger(folder, model.num_timesteps))
        except OSError as error:
            fail(f"{folder.path} cannot be written: {error}")
        _announce(console, folder, config, model, total)
        _warn_of_preset(config)
    progress.watch(model, total)
    _learn(folder, config, existing, model, callbacks)
    if not ranks.is_first:
        return
    console.print(f"{folder.path}: {model.num_timesteps} steps, {_outcome(model)}", markup=False, highlight=False)
    try:
        write_run_report(console, [folder.path], None)
    except typer.Exit:
        echo("poad: warning: the training is complete; only its report could not be written.", err=True)


def dry_run(console: Console, options: TrainOptions, out: Path | None, *, resume: bool) -> None:
    """Check the settings of a training and show the memory that it needs; train and write nothing.

    Args:
        console: Console to print to.
        options: Options of the command.
        out: Folder of the run.
        resume: Whether the folder may hold the run already.
    """
    resolved = resolve(options, out, resume=resume)
    config, device = resolved.config, resolved.device
    with closing(environments(config.env_id, config.env_kwargs, config.n_envs)) as envs:
        free = free_memory(get_device(device))  # before there is a model, since the estimate counts it
        model = make_algorithm(config, envs, device, options.arguments)
        assert model.env is not None
        try:
            show_memory(console, model, model.env.reset(), free)
        except Exception as error:  # an environment may raise anything
            fail(f"{config.env_id} cannot be reset: {error}")


def make_algorithm(config: RunConfig, envs: VecEnv | str, device: str, given: Iterable[str]) -> LLMOnPolicyAlgorithm:
    """Make the algorithm of a new run, or fail with one line.

    Args:
        config: Config of the run.
        envs: Environments of the run.
        device: Device of the model.
        given: Names of arguments that must have an effect.
    """
    arguments = {**config.given, "device": device}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoEffectWarning)  # an error here
            model = algorithm(config.algorithm)("LLMPolicy", envs, seed=config.seed, **arguments, _model_preset=False)
        require_effects(model, given)
    except LostRankError:
        raise
    except BAD as error:
        fail(str(error))
    return model


def _warm_start(config: RunConfig, model: LLMOnPolicyAlgorithm) -> None:
    if config.warm_start is None:
        return
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warm_start(model, checkpoint_at(Path(config.warm_start))[0])
    except LostRankError:
        raise
    except BAD as error:
        fail(str(error))
    if current_ranks().is_first:
        for warning in caught:
            echo(f"poad: warning: {warning.message}", err=True)


def _load(
    folder: RunFolder, config: RunConfig, envs: VecEnv | str, device: str, moved: Mapping[str, Any]
) -> LLMOnPolicyAlgorithm:
    kind = algorithm(config.algorithm)
    try:
        written_by = read_header(folder.latest)["algorithm"]
        if written_by != config.algorithm:
            fail(f"{folder.latest} was written by {written_by}, but the run is of {config.algorithm}.")
        model = kind.load(folder.latest, envs, device, policy_kwargs=dict(moved))
    except LostRankError:
        raise
    except BAD as error:
        fail(str(error))
    changes = list(runs.differences(runs.effective_arguments(model), config.arguments))
    if changes:
        fail(f"{folder.latest} is not of this run: {changes[0]} by {folder.config_file}.")
    return model


def _completed(config: RunConfig, existing: RunConfig | None, model: LLMOnPolicyAlgorithm, envs: VecEnv) -> RunConfig:
    """Fill in fields known after construction; a resumed run must match them."""
    now = replace(
        config,
        arguments=runs.effective_arguments(model),
        model=runs.describe_model(model),
        dataset=runs.dataset_digest(envs),
        prompt_template=model.policy.lm.prompter.template.to_dict(),
        sessions=[*config.sessions, runs.session(sys.argv, model.num_timesteps)],
    )
    if existing is None:
        return now
    names = ("arguments", "dataset", "prompt_template")
    same = {**{name: getattr(now, name) for name in names}, "fingerprint": now.model["fingerprint"]}
    recorded = {**{name: getattr(existing, name) for name in names}, "fingerprint": existing.model.get("fingerprint")}
    # Settings that are younger than the run have their defaults in it.
    defaults = json.loads(json.dumps(known_arguments(algorithm(config.algorithm)), default=str))
    recorded["arguments"] = {**{name: defaults[name] for name in now.arguments}, **existing.arguments}
    changes = list(runs.differences(recorded, same))
    if changes:
        fail(f"The run cannot go on as it was: {'; '.join(changes)}. Fix: restore what changed, or train again.")
    return now


def _callbacks(folder: RunFolder, config: RunConfig, envs: VecEnv, wandb_project: str | None) -> list[BaseCallback]:
    callbacks: list[BaseCallback] = [
        LatestCheckpointCallback(folder.latest, config.save_every),
        GenerationTableCallback(folder.path),
    ]
    n_recorded = config.record_episodes
    if n_recorded is None:  # programs take long in the sandbox
        runs_code = envs.has_attr("steps_elsewhere") and all(envs.get_attr("steps_elsewhere"))
        n_recorded = 1 if runs_code else 4
    if n_recorded:
        session = config.sessions[0]
        provenance = {"command": shlex.join(session["command"]), "versions": session["versions"]}
        recording = EpisodeRecordingCallback(
            folder.path,
            config.env_id,
            env_kwargs=config.env_kwargs,
            every=config.save_every,
            n_episodes=n_recorded,
            seed=config.seed,
            provenance=provenance,
        )
        callbacks.append(recording)
    if envs.has_attr("best_so_far"):
        callbacks.append(BestCodeCallback(folder.path))
    if wandb_project is not None:
        begun = f"{folder.path.resolve()} {config.sessions[0]['time']}"
        run_id = hashlib.sha256(begun.encode()).hexdigest()[:16]  # the same when the run is resumed
        shown: dict[str, Any] = {"seed": config.seed, "env": config.env_id, **config.arguments}
        try:
            callbacks.append(
                WandbCallback(wandb_project, run_id=run_id, config=shown, name=folder.path.name, dir=str(folder.path))
            )
        except LangEnvsError as error:
            fail(str(error))
    return callbacks


def _announce(console: Console, folder: RunFolder, config: RunConfig, model: LLMOnPolicyAlgorithm, total: int) -> None:
    start = f"from step {model.num_timesteps}" if model.num_timesteps else "from the start"
    line = f"{config.algorithm} on {config.env_id}, seed {config.seed}: {start} to {total}, in {folder.path}"
    console.print(line, markup=False, highlight=False, soft_wrap=True)
    facts = [f"action_sampling={model.action_sampling!r}", f"model={model.policy.lm.source.name!r}"]
    remark = f"preset {config.preset}" if config.preset is not None else ""
    if config.preset is None and not model.num_timesteps:
        _, remark = model_preset(type(model), config.env_id, config.given)
    facts += [remark] if remark else []
    if current_ranks().size > 1:
        facts.append(f"{current_ranks().size} ranks")
    if config.ray not in (None, _NO_RAY):
        facts.append(f"environments in Ray actors ({config.ray})")
    console.print(", ".join(facts), markup=False, highlight=False, soft_wrap=True)


def _warn_of_preset(config: RunConfig) -> None:
    """Warn where a preset was made for another family of environments."""
    family, of_preset = config.env_id.partition("-")[0].lower(), (config.preset or "").rpartition("/")[2]
    families = {name.rpartition("/")[2] for name in PRESETS}
    if of_preset and family in families and family != of_preset:
        echo(f"poad: warning: preset {config.preset} is for {of_preset}; {config.env_id} is not.", err=True)


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
        current_ranks().wait_until_first_ends()
        fail(f"{error} {_left_over(folder)}", LOST_RANK)
    except Exception as error:  # environments may raise anything
        is_first = current_ranks().is_first
        if isinstance(error, ObservationError) and model.num_timesteps == 0 and existing is None:
            if is_first:
                folder.config_file.unlink(missing_ok=True)  # settings that do not fit the environment: there is no run
            fail(" ".join(str(error).split()))
        if is_first:
            _note_error(folder)
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


def _note_error(folder: RunFolder) -> None:
    try:
        (folder.path / "error.txt").write_text(traceback.format_exc(), encoding="utf-8")
    except OSError:
        return  # the error may be a full disk


def _outcome(model: LLMOnPolicyAlgorithm) -> str:
    episodes = [episode["r"] for episode in model.ep_info_buffer or ()]
    if not episodes:
        return "no episode ended"
    return f"mean return {sum(episodes) / len(episodes):.3f} of the last {len(episodes)} episodes"
