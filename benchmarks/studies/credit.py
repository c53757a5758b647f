"""`credit`: one episode of one trained model, and each method's credit for its tokens; the paper's figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.reports.credit_picture import CUT_OFF, Rollout, RolloutStep, credit_picture
from benchmarks.runner.credit import CREDITS, GAE_LAMBDA, GAMMA
from benchmarks.runner.errors import StudyError
from benchmarks.studies.engine.jobs import Evaluation, Job, TrainingJob
from benchmarks.studies.engine.pieces import Piece, Pieces
from benchmarks.studies.engine.study import Options, Report, Study
from benchmarks.studies.engine.tuning import Task
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
        one_critic, own_critics = _rollout(task, runs[_PLAYER], None), _rollout(task, runs[_PLAYER], runs)
        content["tasks"][task.name] = _to_json(task, runs, own_critics)
        pictures[f"_{task.name}_one_critic"] = credit_picture(one_critic)
        pictures[f"_{task.name}_own_critics"] = credit_picture(own_critics)
    return Report(content, pictures)


def _rollout(task: Task, player: Piece, critics: Mapping[str, Piece] | None) -> Rollout:
    """Draw the episode, a column for each method: by the player's critic, or by the method's own."""
    columns = tuple(critics) if critics else _METHODS
    steps = []
    for number, step in enumerate(player["rollout"]):
        judged = {name: (critics[name] if critics else player)["rollout"][number] for name in columns}
        steps.append(
            RolloutStep(
                observation=step["observation"],
                tokens=step["tokens"],
                reward=step["reward"],
                log_probs=step["log_probs"],
                values={name: critic["values"] for name, critic in judged.items()},
                advantages={name: critic["advantages"][name] for name, critic in judged.items()},
            )
        )
    whose = "each column by the critic that its method has trained" if critics else "all columns by one critic, POAD's"
    remark = (
        f"{whose}; gamma {GAMMA:g}, lambda {GAE_LAMBDA:g} between actions; inside: 1 (POAD), gamma (NTPO), "
        "whole actions (TWOSOME)."
    )
    ends = [piece["rollout"][-1] for piece in (critics.values() if critics else [player])]
    if ends[0]["truncated"] and not ends[0]["terminated"] and any(end.get("final_value") is None for end in ends):
        remark += CUT_OFF
    title = f"An episode of POAD on {task.env_id} after {player['steps'][-1]:,} steps, seed {_SEED}"
    return Rollout(title, columns, steps, remark[0].upper() + remark[1:])


def _to_json(task: Task, pieces: Mapping[str, Piece], rollout: Rollout) -> dict[str, Any]:
    return {
        "env": task.env_id,
        "steps": pieces[_PLAYER]["steps"][-1],
        "returns_after_training": {method: piece["returns"][-1] for method, piece in pieces.items()},
        "differs_within_actions": {name: _share_within(rollout, name) for name in rollout.columns},
        "episode": [
            {
                "action": "".join(step.tokens),
                "tokens": list(step.tokens),
                "reward": step.reward,
                "advantages": {name: list(row) for name, row in step.advantages.items()},
            }
            for step in rollout.steps
        ],
    }


def _share_within(rollout: Rollout, column: str) -> float:
    """Return the share of the variance of all advantages that lies inside actions.

    It is 0 where all tokens of an action are credited alike.
    """
    actions = [np.array(step.advantages[column], dtype=np.float64) for step in rollout.steps]
    within = sum(float(((advantages - advantages.mean()) ** 2).sum()) for advantages in actions)
    everything = np.concatenate(actions)
    total = float(((everything - everything.mean()) ** 2).sum())
    return round(within / total, 4) if total else 0.0


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
