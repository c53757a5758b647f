"""`credit`: one episode of one trained model, and each method's credit for its tokens; the paper's figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.errors import StudyError
from benchmarks.reports.plots import plain_label, style
from benchmarks.studies.engine.jobs import Evaluation, Job, TrainingJob
from benchmarks.studies.engine.pieces import Piece, Pieces
from benchmarks.studies.engine.study import Options, Report, Study
from benchmarks.studies.engine.tuning import Task
from lang_bench.runner.credit import CREDITS, GAE_LAMBDA, GAMMA
from lang_envs.report import Table

_METHODS = tuple(CREDITS)
_PLAYER = "POAD"
_SEED = 0
_RATE = 1e-3
"""Learning rate of all three; only pictures are compared, so it is not tuned."""
_WATCHED = Evaluation(every=1_280, episodes=50, rollout=True)
TASKS: dict[str, Task] = {
    "tomato-salad": Task("tomato-salad", "Overcooked-TomatoSalad-v0", 2_560, _WATCHED),
    "key-token": Task("key-token", "KeyToken-v0", 2_560, _WATCHED),
}
"""Tasks, trained half way: a critic that knows everything has no advantages left to show."""


def _job(task: Task, method: str, script: Sequence[str] = ()) -> TrainingJob:
    job = task.job(method, _SEED, action_sampling="candidates", learning_rate=_RATE)
    return replace(job, evaluation=replace(job.evaluation, script=tuple(script)))


def _tasks(options: Options) -> list[Task]:
    if _SEED not in options.checked_seeds():
        raise StudyError(
            f"Expected seed {_SEED}, the only one here; got {list(options.seeds)}. Fix: leave out --seeds."
        )
    return [TASKS[name] for name in options.chosen_tasks(TASKS)]


def _jobs_of(task: Task, pieces: Pieces) -> dict[str, Job]:
    """Return POAD's run with a recorded episode, then the other methods, whose critics value the same actions."""
    jobs: dict[str, Job] = {_PLAYER: _job(task, _PLAYER)}
    if player := pieces.find(jobs[_PLAYER]):
        script = [step["action"] for step in player["rollout"]]
        jobs |= {method: _job(task, method, script) for method in _METHODS if method != _PLAYER}
    return jobs


def _jobs(options: Options, pieces: Pieces) -> Iterator[Job]:
    for task in _tasks(options):
        yield from _jobs_of(task, pieces).values()


# ---------------------------------------------------------------------- the report


def _report(options: Options, pieces: Pieces) -> Report:
    content: dict[str, Any] = {"gamma": GAMMA, "gae_lambda": GAE_LAMBDA, "learning_rate": _RATE, "seed": _SEED}
    content["tasks"], content["missing"], content["runs"] = {}, [], []
    pictures = {}
    for task in _tasks(options):
        jobs = _jobs_of(task, pieces)
        runs = pieces.select(jobs)
        content["runs"] += [jobs[method].name for method in runs]
        content["missing"] += [f"{task.env_id}: {method}" for method in _METHODS if method not in runs]
        if not runs:
            continue
        one_critic, own_critics = _episode(runs[_PLAYER], None), _episode(runs[_PLAYER], runs)
        content["tasks"][task.name] = {
            "env": task.env_id,
            "steps": runs[_PLAYER]["steps"][-1],
            "returns_after_training": {method: piece["returns"][-1] for method, piece in runs.items()},
            "differs_within_actions": {method: _share_within(own_critics, method) for method in runs},
            "episode": own_critics,
        }
        pictures[f"_{task.name}_one_critic"] = credit_figure(one_critic, f"{task.env_id}, POAD's critic")
        pictures[f"_{task.name}_own_critics"] = credit_figure(own_critics, f"{task.env_id}, the critic of each method")
    return Report(content, pictures)


def _episode(player: Piece, critics: Mapping[str, Piece] | None) -> list[dict[str, Any]]:
    """Return the steps of the episode, with advantages by the player's critic, or by that of each method."""
    steps = []
    for number, step in enumerate(player["rollout"]):
        judged = {name: (critics[name] if critics else player)["rollout"][number] for name in critics or _METHODS}
        advantages = {name: list(critic["advantages"][name]) for name, critic in judged.items()}
        action = {"action": "".join(step["tokens"]), "tokens": list(step["tokens"]), "reward": step["reward"]}
        steps.append({**action, "advantages": advantages})
    return steps


def _share_within(episode: Sequence[Mapping[str, Any]], method: str) -> float:
    """Return the share of the variance of all advantages that lies inside actions.

    It is 0 where all tokens of an action are credited alike.
    """
    actions = [np.array(step["advantages"][method], dtype=np.float64) for step in episode]
    within = sum(float(((advantages - advantages.mean()) ** 2).sum()) for advantages in actions)
    everything = np.concatenate(actions)
    total = float(((everything - everything.mean()) ** 2).sum())
    return round(within / total, 4) if total else 0.0


@style()
def credit_figure(episode: Sequence[Mapping[str, Any]], title: str) -> Figure:
    """Draw the tokens of every action on their advantages, a column for each method: orange below 0, purple above."""
    methods, n_tokens = list(episode[0]["advantages"]), max(len(step["tokens"]) for step in episode)
    largest = max(abs(value) for step in episode for row in step["advantages"].values() for value in row) or 1.0
    figure = Figure(figsize=(1 + 0.52 * n_tokens * len(methods), 1.2 + 0.36 * len(episode)), layout="constrained")
    figure.suptitle(f"{title}; gamma {GAMMA:g}, lambda {GAE_LAMBDA:g} between actions", fontsize=10)
    for axes, method in zip(figure.subplots(1, len(methods), sharey=True, squeeze=False)[0], methods, strict=True):
        table = np.full((len(episode), n_tokens), np.nan)
        for row, step in enumerate(episode):
            table[row, : len(step["tokens"])] = step["advantages"][method]
            for place, (token, advantage) in enumerate(zip(step["tokens"], step["advantages"][method], strict=True)):
                text = f"{plain_label(token.strip())}\n{advantage:+z.2f}"
                axes.text(place, row, text, ha="center", va="center", fontsize=6.5)
        axes.imshow(table, cmap="PuOr", vmin=-2 * largest, vmax=2 * largest, aspect="auto")
        axes.grid(False)
        axes.set(title=method, xticks=[], yticks=range(len(episode)))
        axes.set_yticklabels([f"{step['reward']:+z.3g}" for step in episode])
    figure.supylabel("reward of the action", fontsize=9)
    return figure


def _tables(content: Mapping[str, Any]) -> Iterator[Table]:
    rows = [
        (row["env"], name, f"{row['returns_after_training'][name]:.3f}", f"{share:.3f}")
        for row in content["tasks"].values()
        for name, share in row["differs_within_actions"].items()
    ]
    head = ("task", "critic and rule of", "its return", "share of the variance of advantages inside actions")
    yield Table("Credit inside actions", head, rows)


CREDIT = Study(
    "credit",
    "token credit of POAD, NTPO and TWOSOME side by side on one episode",
    _jobs,
    _report,
    _tables,
    seeds=(_SEED,),
)
