"""`poad bc`: behaviour cloning of recorded episodes, or of an oracle with random actions, into a checkpoint."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from lang_envs.files import write_text
from lang_envs.report.statistics import wilson_interval
from poad_sb3.bc import BC, Episode, oracle_episodes, policy_episodes, recorded_episodes
from poad_sb3.cli.common import BAD, STOPPED, environments, fail, require_device
from poad_sb3.cli.progress import ProgressLines
from poad_sb3.cli.request import Request
from poad_sb3.cli.train import make_algorithm
from poad_sb3.runs.run_folder import RunFolder, session

_PLAYED = 100
"""Default number of oracle episodes in each environment; 0 with recorded episodes."""


def clone(
    console: Console,
    request: Request,
    env_ids: Sequence[str],
    files: Sequence[Path],
    out: Path,
    *,
    noise: Sequence[float],
    n_episodes: int | None,
    n_epochs: int,
    n_critic_epochs: int | None,
    stop_at: float | None,
    eval_episodes: int,
    progress: ProgressLines,
) -> None:
    """Clone episodes, save the algorithm, and show its success in each environment before and after.

    Args:
        console: Console to print to.
        request: Method, preset, seed and arguments, with the first environment.
        env_ids: Ids of the environments of the episodes.
        files: Results files with recorded steps.
        out: Folder to create.
        noise: Share of random actions of the oracle: one for all environments, or one for each.
        n_episodes: Number of episodes of the oracle in each; None for 100, or for 0 with recorded episodes.
        n_epochs: Number of epochs of the policy.
        n_critic_epochs: Number of epochs of the critic; as many as `n_epochs` if None.
        stop_at: Mean success over the environments that ends the training of the policy; None to disable.
        eval_episodes: Number of episodes of an evaluation, in each environment.
        progress: Progress lines that report the phase.
    """
    folder, began, seed = RunFolder(out), time.perf_counter(), request.seed or 0
    if folder.latest.exists() or folder.config_file.exists():
        fail(f"{out} holds a checkpoint or a run already. Fix: another --out.")
    if len(noise) not in (1, len(env_ids)):
        fail(f"Expected one --oracle-noise, or one for each of {len(env_ids)} --env; got {len(noise)}.")
    require_device(request.arguments.get("device", "auto"))
    config, env_kwargs = request.new(), dict(request.env_kwargs)
    progress.phase = "making environments"
    envs = environments(config.env_id, env_kwargs, config.n_envs)
    progress.phase = "loading the model"
    model = make_algorithm(config, envs, request.arguments.get("device", "auto"), request.arguments)

    def evaluate(number: int) -> dict[str, int]:
        """Return the successes of each environment in an evaluation; each number has its own episodes."""
        arguments: dict[str, Any] = {"seed": seed, "first": number * eval_episodes, "env_kwargs": env_kwargs}
        return {name: _successes(policy_episodes(model.policy, name, eval_episodes, **arguments)) for name in env_ids}

    def after_epoch(epoch: int, loss: float) -> bool:
        progress.phase, said = f"epoch {epoch} of {n_epochs}", f"negative log-likelihood {loss:.4f}"
        rate = None
        if stop_at is not None:
            found = evaluate(epoch)
            rate = sum(found.values()) / (eval_episodes * len(found))
            said += "".join(f", {name} {count / eval_episodes:.2f}" for name, count in found.items())
        console.print(f"epoch {epoch}: {said}", markup=False, highlight=False, soft_wrap=True)
        epochs.append({"negative_log_likelihood": loss, "mean_success": rate})
        return stop_at is None or rate is None or rate < stop_at

    epochs: list[dict[str, float | None]] = []
    try:
        progress.phase = "playing and reading episodes"
        n_played = _PLAYED * (not files) if n_episodes is None else n_episodes
        shares = dict(zip(env_ids, noise if len(noise) > 1 else [*noise] * len(env_ids), strict=True))
        episodes = [one for file in files for one in _of(env_ids, file, console)]
        for name, share in shares.items():
            episodes += oracle_episodes(name, n_played, noise=share, seed=seed, env_kwargs=env_kwargs)
        cloning = BC(model, episodes)
        before = evaluate(0)
        progress.phase = f"epoch 1 of {n_epochs}"
        cloning.train(n_epochs, n_critic_epochs, after_epoch)
        after = evaluate(n_epochs + 1)
        model.save(folder.latest)
    except BAD as error:
        fail(str(error))
    except FloatingPointError as error:
        fail(str(error), STOPPED)
    finally:
        envs.close()
    record = {
        **session(sys.argv, 0),
        "algorithm": config.algorithm,
        "preset": config.preset,
        "given": config.given,
        "seed": seed,
        "files": [str(file) for file in files],
        "oracle": {"noise": shares, "episodes": n_played},
        "episodes": len(episodes),
        "steps": sum(map(len, episodes)),
        "epochs": epochs,
        "eval_episodes": eval_episodes,
        "successes": {"before": before, "after": after},
        "seconds": round(time.perf_counter() - began, 1),
    }
    write_text(folder.path / "bc.json", json.dumps(record, indent=2, default=str) + "\n")
    console.print(_table(before, after, eval_episodes))
    line = f"{folder.latest}: {record['steps']} steps of {len(episodes)} episodes, {len(epochs)} epochs"
    console.print(f"{line}, {record['seconds']:.0f} s", markup=False, highlight=False, soft_wrap=True)


def _of(env_ids: Sequence[str], file: Path, console: Console) -> list[Episode]:
    """Return the episodes of a file that belong to some environments, without those with invalid actions."""
    episodes = recorded_episodes(file)
    kept = [one for one in episodes if one[0]["env"] in env_ids]
    if not kept:
        found = sorted({one[0]["env"] for one in episodes})
        raise ValueError(f"Expected episodes of {', '.join(env_ids)} in {file}; got {', '.join(found)}. Fix: --env.")
    valid = [one for one in kept if not any(line.get("invalid", False) for line in one)]
    if len(valid) < len(kept):
        line = f"{file}: {len(kept) - len(valid)} of {len(kept)} episodes have invalid actions and are left out"
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if not valid:
        raise ValueError(f"Expected episodes of valid actions in {file}; got none. Fix: another file, or --n-episodes.")
    return valid


def _successes(episodes: Sequence[Episode]) -> int:
    found = [one[-1]["success"] for one in episodes]
    if None in found:
        raise ValueError(
            f"Expected info['success'] of {episodes[0][0]['env']} at the end of an episode; got none, so its success "
            "cannot be measured. Fix: poad_sb3.bc.BC from Python, which measures nothing."
        )
    return sum(found)


def _table(before: Mapping[str, int], after: Mapping[str, int], n: int) -> Table:
    table = Table("success of sampled actions", "before", "after", "95% interval", box=None)
    for name, count in after.items():
        low, high = wilson_interval(count, n)
        table.add_row(name, f"{before[name] / n:.2f}", f"{count / n:.2f}", f"{low:.2f} to {high:.2f}")
    return table
