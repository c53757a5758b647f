"""`poad bc`: behaviour cloning of recorded episodes, or of an oracle with random actions, into a checkpoint."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.table import Table

from lang_envs.cli.common import console, echo
from poad_sb3.cli.common import (
    BAD,
    INTERRUPTED,
    STOPPED,
    EnvSettings,
    Settings,
    environments,
    fail,
    require_device,
    require_llm,
)
from poad_sb3.presets import ALGORITHMS

if TYPE_CHECKING:
    from poad_sb3.bc import Episode
    from poad_sb3.runs.run_folder import RunFolder

_PLAYED, _NOISE = 100, 0.3
"""Default number of oracle episodes in each environment, 0 with recorded ones, and their share of random actions."""


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
    require_llm()
    from lang_envs.files import write_text
    from poad_sb3.bc import BC, oracle_episodes, policy_episodes
    from poad_sb3.cli.train import make_algorithm
    from poad_sb3.cli.train_options import new_run, parse_options
    from poad_sb3.runs.run_folder import RunFolder, session

    files = files or []
    folder, began, seed = RunFolder(out), time.perf_counter(), seed or 0
    if folder.latest.exists() or folder.config_file.exists():
        fail(f"{out} holds a checkpoint or a run already. Fix: another --out.")
    if len({*env_ids}) < len(env_ids):
        fail(f"Expected each --env once; got {' '.join(env_ids)}. Fix: --n-episodes for more episodes.")
    n_played = _PLAYED * (not files) if n_episodes is None else n_episodes
    if oracle_noise and not n_played:
        fail("Expected --oracle-noise with episodes of an oracle; got none. Fix: --n-episodes 100, or leave it out.")
    noise = oracle_noise or [_NOISE]
    if len(noise) not in (1, len(env_ids)):
        fail(f"Expected one --oracle-noise, or one for each of {len(env_ids)} --env; got {len(noise)}.")
    options = parse_options(settings, env_settings, env_id=env_ids[0], algorithm=algo, preset=preset, seed=seed)
    config, env_kwargs = new_run(options), options["env_kwargs"]
    require_device(config.given.get("device", "auto"))
    envs = environments(config.env_id, env_kwargs, config.n_envs)
    model = make_algorithm(config, envs, options["given"])

    def evaluate(number: int) -> dict[str, _Score]:
        """Return the scores of an evaluation in each environment; each number has its own episodes."""
        arguments: dict[str, Any] = {
            "seed": seed,
            "first": first + number * eval_episodes,
            "env_kwargs": env_kwargs,
        }
        scores = {name: _score(policy_episodes(model.policy, name, eval_episodes, **arguments)) for name in env_ids}
        for name, score in scores.items():
            if stop_at_success is not None and score.successes is None:
                raise ValueError(
                    f"Expected info['success'] of {name} at the end of an episode; got none. "
                    "Fix: leave --stop-at-success out."
                )
        return scores

    def after_epoch(epoch: int, loss: float) -> bool:
        text = f"negative log-likelihood {loss:.4f}"
        rate = None
        if stop_at_success is not None:
            successes = {name: score.successes or 0 for name, score in evaluate(epoch).items()}
            rate = sum(successes.values()) / (eval_episodes * len(successes))
            text += "".join(f", {name} {count / eval_episodes:.2f}" for name, count in successes.items())
        echo(f"epoch {epoch}: {text}")
        epochs.append({"negative_log_likelihood": loss, "mean_success": rate})
        return stop_at_success is None or rate is None or rate < stop_at_success

    epochs: list[dict[str, float | None]] = []
    with _failures(folder), closing(envs):
        shares = dict(zip(env_ids, noise if len(noise) > 1 else [*noise] * len(env_ids), strict=True))
        episodes = [episode for file in files for episode in _of(env_ids, env_kwargs, file)]
        first = 1 + max((episode[0]["episode"] for episode in episodes if episode[0]["seed"] == seed), default=-1)
        for name, share in shares.items():
            episodes += oracle_episodes(name, n_played, noise=share, seed=seed, env_kwargs=env_kwargs)
        cloning = BC(model, episodes)
        with folder.held():
            before = evaluate(0)
            cloning.train(n_epochs, 0, after_epoch)
            model.save(folder.latest)
            cloning.train(0, n_epochs if n_critic_epochs is None else n_critic_epochs)
            model.save(folder.latest)
            after = evaluate(n_epochs + 1)
            record = {
                **session(sys.argv, 0),
                "algorithm": config.algorithm,
                "preset": config.preset,
                "given": config.given,
                "seed": seed,
                "files": {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files},
                "oracle": {"noise": shares, "episodes": n_played} if n_played else None,
                "episodes": len(episodes),
                "steps": sum(map(len, episodes)),
                "epochs": epochs,
                "stop_at_success": stop_at_success,
                "eval_episodes": eval_episodes,
                "returns": {"before": _parts(before, "mean_return"), "after": _parts(after, "mean_return")},
                "successes": {"before": _parts(before, "successes"), "after": _parts(after, "successes")},
                "seconds": round(time.perf_counter() - began, 1),
            }
            write_text(folder.path / "bc.json", json.dumps(record, indent=2, default=str) + "\n")
    console().print(_table(before, after, eval_episodes))
    line = f"{folder.latest}: {record['steps']} steps of {len(episodes)} episodes, {len(epochs)} epochs"
    echo(f"{line}, {record['seconds']:.0f} s")


@contextmanager
def _failures(folder: RunFolder) -> Iterator[None]:
    """End with one line at an error or Ctrl-C, with the state of the folder."""
    try:
        yield
    except KeyboardInterrupt:
        echo(f"poad: interrupted; {_left_over(folder)}", err=True)
        raise typer.Exit(INTERRUPTED) from None
    except BAD as error:
        fail(f"{error} {_left_over(folder)}" if folder.latest.exists() else str(error))
    except Exception as error:  # environments may raise anything
        fail(f"The cloning stopped ({type(error).__name__}: {error}). {_left_over(folder)}", STOPPED)


def _left_over(folder: RunFolder) -> str:
    if folder.latest.exists():
        return f"{folder.latest} holds the cloned policy, and may lack the critic."
    return "Nothing was saved."


def _of(env_ids: Sequence[str], env_kwargs: Mapping[str, Any], file: Path) -> list[Episode]:
    """Return the episodes of a file that belong to some environments, without those with invalid actions."""
    from lang_envs.report.results import read_results
    from poad_sb3.bc import recorded_episodes

    episodes = recorded_episodes(file)
    kept = [episode for episode in episodes if episode[0]["env"] in env_ids]
    if not kept:
        names = sorted({episode[0]["env"] for episode in episodes})
        raise ValueError(f"Expected episodes of {', '.join(env_ids)} in {file}; got {', '.join(names)}. Fix: --env.")
    recorded = read_results(file, with_steps=False).header.get("env_settings") or {}
    if recorded != json.loads(json.dumps(env_kwargs, default=str)):
        line = f"{file}: recorded with the environment arguments {recorded}; got {dict(env_kwargs)} by --env-set"
        echo(f"poad: warning: {line}.", err=True)
    valid = [episode for episode in kept if not any(line.get("invalid", False) for line in episode)]
    if len(valid) < len(kept):
        echo(f"{file}: {len(kept) - len(valid)} of {len(kept)} episodes have invalid actions and are left out")
    if not valid:
        raise ValueError(f"Expected episodes of valid actions in {file}; got none. Fix: another file, or --n-episodes.")
    return valid


class _Score(NamedTuple):
    """Mean return of an evaluation, and its successes; None where the environment reports none."""

    mean_return: float
    successes: int | None


def _score(episodes: Sequence[Episode]) -> _Score:
    successes = [episode[-1]["success"] for episode in episodes]
    returns = [sum(step["reward"] for step in episode) for episode in episodes]
    return _Score(sum(returns) / len(returns), None if None in successes else sum(successes))


def _parts(scores: Mapping[str, _Score], name: str) -> dict[str, Any]:
    return {env_id: getattr(score, name) for env_id, score in scores.items()}


def _table(before: Mapping[str, _Score], after: Mapping[str, _Score], n: int) -> Table:
    from lang_envs.report.statistics import wilson_interval

    table = Table("sampled actions", "return before", "after", "success before", "after", "95% interval", box=None)
    for name, score in after.items():
        cells = [f"{before[name].mean_return:.3f}", f"{score.mean_return:.3f}"]
        old, new = before[name].successes, score.successes
        if old is not None and new is not None:
            low, high = wilson_interval(new, n)
            cells += [f"{old / n:.2f}", f"{new / n:.2f}", f"{low:.2f} to {high:.2f}"]
        table.add_row(name, *cells)
    return table
