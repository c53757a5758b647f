"""`poad zoo`: list trained agents, train one again, evaluate one, and push one to the hub."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

import lang_envs
from lang_envs.cli.common import console, echo
from lang_envs.files import replacing
from lang_envs.machine import commit_of
from lang_envs.report.statistics import estimate, mean, wilson_interval
from poad_sb3.cli.common import BAD, DIFFERS, algorithm, environments, fail, require_llm
from poad_sb3.cli.evaluate import play_in_parts
from poad_sb3.presets import MERGED
from poad_sb3.zoo.rows import (
    CURVE,
    SHIPPED,
    Interval,
    Row,
    agents,
    agrees,
    find_agent,
    find_row,
    read_rows,
    trained_folder,
    write_row,
)

if TYPE_CHECKING:
    from poad_sb3.common.episodes import Episode

SEED, FRESH_SEED = 1_000, 2_000
"""Seeds of the evaluations of rows and of `poad zoo eval`; trainings have others."""
AGENT = ("greedy", "sampled")
"""Players that are the agent itself."""
METRICS = ("return", "discounted_return", "success")

zoo = typer.Typer(name="zoo", help="List, train, evaluate and push the agents of the zoo.", no_args_is_help=True)

Name = Annotated[
    str, typer.Argument(metavar="ROW", help="ENV, ENV/MODEL or ENV/MODEL/METHOD, as in the list; enough to be unique.")
]
Folder = Annotated[
    Path | None, typer.Option(help="Folder of agents; those trained here by default, and then the shipped ones.")
]
Episodes = Annotated[int, typer.Option(min=2, help="Episodes to play.")]


@zoo.command("list")
def list_agents(
    name: Annotated[str, typer.Argument(metavar="[ROW]", help="Beginning of the names; all by default.")] = "",
    folder: Folder = None,
) -> None:
    """List the agents with their scores: mean discounted returns, and the success of the most probable actions.

    If only one begins with ROW, its settings and all its scores are shown.
    """
    entries = [entry for entry in agents(folder).values() if entry[0].name.startswith(name)]
    if name and not entries:
        find_row(name, (row for row, _ in agents(folder).values()))  # refuses
    if name and len(entries) == 1:
        ((row, parent),) = entries
        fields = Table(box=None, show_header=False)
        for field, value in {**vars(row), "folder": str(parent)}.items():
            if field != "scores":
                text = value if isinstance(value, str) else json.dumps(value)
                fields.add_row(Text(field, style="cyan"), Text(text, overflow="fold"))
        console().print(fields)
        if row.scores:
            console().print(_scores(row.scores))
        return
    table = Table("row", "steps", "greedy", "success", "sampled", "random", "oracle", "adapter", box=None)
    for row, parent in entries:
        scores = {player: score["discounted_return"] for player, score in row.scores.items()}
        greedy = row.scores.get("greedy", {})
        size = f"{(row.size or 0) / 1e3:.0f} kB" if row.is_trained(parent) else "none"
        cells = [
            f"{row.steps:,}",
            shown(scores["greedy"], "") if "greedy" in scores else "",
            f"{greedy['success'][0]:.0%}" if greedy.get("success") else "",
            *(f"{scores[player][0]:.3f}" if player in scores else "" for player in ("sampled", "random", "oracle")),
            size if folder or parent == SHIPPED else f"{size}, trained here",
        ]
        table.add_row(Text(row.name, style="cyan", no_wrap=True), *map(Text, cells))
    console().print(table)


def shown(interval: Interval, metric: str) -> str:
    """Return a mean with its interval, as text."""
    value, low, high = interval
    if metric == "success":
        return f"{value:.1%} [{low:.1%}, {high:.1%}]"
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"


@zoo.command()
def train(name: Name, folder: Folder = None, episodes: Episodes = 200) -> None:
    """Train an agent by its row, evaluate it, and write adapter and row.

    A training that was stopped goes on from the checkpoint in `runs`. Without --folder the agent is kept in the cache.
    """
    require_llm()
    from poad_sb3.cli.train import train_run
    from poad_sb3.runs.loading import load_checkpoint
    from poad_sb3.runs.run_folder import RunFolder
    from poad_sb3.zoo.adapters import digest_of, write_adapter

    folder = folder or trained_folder()
    row = find_row(name, {row.name: row for parent in (SHIPPED, folder) for row in read_rows(parent)}.values())
    run = RunFolder(Path("runs") / f"zoo-{row.stem}")
    commit = commit_of(Path(__file__), "poad_sb3/zoo/agents", "data/results/studies")
    before = time.process_time()
    train_run(_options(row), run.path, resume=True)
    hours, config = (time.process_time() - before) / 3600, run.read_config()
    assert config is not None
    is_whole = len(config.sessions) == 1  # earlier processes took time that is not known, at commits that are not
    envs = environments(row.env_id, dict(row.env_kwargs), config.n_envs)
    model: Any = load_checkpoint(run.latest, env=envs)
    scores = {}
    for player, play in _players(row, model.policy).items():
        with contextlib.nullcontext() if player in AGENT else contextlib.suppress(*BAD):  # a task without an oracle
            scores[player] = score(row, play, episodes, SEED)
    path = row.adapter(folder)
    write_adapter(model, path)
    if folder.resolve() != SHIPPED:
        draw_curve(run.progress, path.with_suffix(CURVE), row.name)
    row = replace(
        row,
        scores=scores,
        core_hours=round(hours, 4) if is_whole else None,
        commit=commit if is_whole else None,
        version=lang_envs.__version__,
        sha256=digest_of(path),
        size=path.stat().st_size,
    )
    write_row(folder, row)
    console().print(_scores(scores))
    echo(f"{path}: {path.stat().st_size / 1e3:.0f} kB")


@zoo.command("eval")
def evaluate(
    name: Name,
    folder: Folder = None,
    episodes: Episodes = 200,
    deterministic: Annotated[
        bool, typer.Option("--deterministic/--sample", help="The most probable action, or a sample as in training.")
    ] = True,
    seed: Annotated[int, typer.Option(min=0, help="Seed of episodes and samples.")] = FRESH_SEED,
) -> None:
    """Play fresh episodes with an agent; exit with 4 if its discounted return is not that of its row."""
    require_llm()
    from poad_sb3.zoo.adapters import load_adapter

    row, path = find_agent(name, folder)
    player = "greedy" if deterministic else "sampled"
    if player not in row.scores:
        fail(f"Expected a score of {player} actions in {row.name}; got none. Fix: poad zoo train {row.name}.")
    recorded = row.scores[player]
    if seed in (row.seed, recorded["seed"]):
        fail(f"Expected fresh episodes; seed {seed} is that of the row. Fix: another --seed.")
    model = load_adapter(algorithm(row.method), path, row.sha256)
    fresh = score(row, _players(row, model.policy)[player], episodes, seed)
    console().print(_scores({"row": recorded, "now": fresh}))
    is_same = agrees(recorded["discounted_return"], fresh["discounted_return"], recorded["episodes"], fresh["episodes"])
    verdict = "agrees with" if is_same else "differs from"
    echo(
        f"{row.name}, {player}: the discounted return {verdict} that of the row. The 95 % interval of the difference, "
        f"with the errors of both samples, {'holds' if is_same else 'does not hold'} 0."
    )
    if not is_same:
        raise typer.Exit(DIFFERS)


@zoo.command()
def push(
    name: Name,
    repo_id: Annotated[str, typer.Argument(metavar="REPO_ID", help="USER/NAME on the hub of Hugging Face.")],
    folder: Folder = None,
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
) -> None:
    """Upload an agent with a model card to the hub; log in with `hf auth login` or HF_TOKEN."""
    require_llm()
    from poad_sb3.zoo.hub import push_adapter

    echo(push_adapter(*find_agent(name, folder), repo_id, private=private or None))


def draw_curve(progress: Path, path: Path, title: str) -> None:
    """Draw the returns of a training for the model card, where matplotlib is installed.

    Args:
        progress: The `progress.csv` of the run.
        path: Path of the picture; that of an earlier training is removed.
        title: Title of the picture.
    """
    path.unlink(missing_ok=True)
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    from poad_sb3.runs.progress_csv import logged, read_progress

    points = [*logged(read_progress(progress), "rollout/ep_rew_mean")]
    if not points:
        return
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(*zip(*points, strict=True))
    axes.set(title=title, xlabel="environment steps", ylabel="mean return of training")
    with replacing(path) as draft:
        figure.savefig(draft, format="png", dpi=150)


def _options(row: Row) -> dict[str, Any]:
    """Return the options of `poad train` for a row."""
    policy = {"model": row.model, **row.settings.get(MERGED, {})}
    options = {"algorithm": row.method, "steps": row.steps, "seed": row.seed, "record_episodes": 0}
    options |= {} if row.preset is None else {"preset": row.preset}
    given = {**row.settings, MERGED: policy}
    return {"env_id": row.env_id, "env_kwargs": dict(row.env_kwargs), "given": given, **options}


def _players(row: Row, policy: Any) -> dict[str, Callable[..., list[Episode]]]:
    """Return the functions that play the episodes of a row's scores, by player."""
    from poad_sb3.common.episodes import oracle_episodes, policy_episodes

    return {
        "greedy": partial(policy_episodes, policy, deterministic=True),
        "sampled": partial(policy_episodes, policy, deterministic=False),
        "random": partial(oracle_episodes, noise=1.0),
        "oracle": partial(oracle_episodes, noise=0.0),
    }


def score(row: Row, play: Callable[..., list[Episode]], n_episodes: int, seed: int) -> dict[str, Any]:
    """Return the score of a player: its episodes, their seed, and the means of their returns and success."""
    from poad_sb3.common.episode_lines import discount_of, discounted_return

    played = play_in_parts(play, row.env_id, n_episodes, seed=seed, env_kwargs=row.env_kwargs)
    discount = discount_of(row.env_id)
    ends = [episode[-1]["success"] for episode in played]
    n_won = sum(map(bool, ends))
    return {
        "episodes": n_episodes,
        "seed": seed,
        "return": _interval([discounted_return(episode, 1.0) for episode in played]),
        "discounted_return": _interval([discounted_return(episode, discount) for episode in played]),
        "success": None if None in ends else _rounded(n_won / n_episodes, *wilson_interval(n_won, n_episodes)),
    }


def _interval(values: Sequence[float]) -> Interval:
    import numpy as np

    value, low, high = estimate([np.array(values)], mean)
    return _rounded(value, *((value, value) if low is None or high is None else (low, high)))


def _rounded(value: float, low: float, high: float) -> Interval:
    return round(value, 6), round(low, 6), round(high, 6)


def _scores(scores: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table("", "episodes", *(metric.replace("_", " ") for metric in METRICS), box=None)
    for title, entry in scores.items():
        intervals = ("" if entry[metric] is None else shown(entry[metric], metric) for metric in METRICS)
        table.add_row(title, str(entry["episodes"]), *intervals)
    return table
