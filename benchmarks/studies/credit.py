"""`credit`: one episode of one trained model, and what each method makes of its tokens; the paper's figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.runner.credit import CREDITS, GAE_LAMBDA, GAMMA
from benchmarks.runner.credit_picture import credit_picture
from benchmarks.runner.files import write_picture
from benchmarks.runner.rollouts import CUT_OFF, Rollout, RolloutStep
from benchmarks.studies.arms import Task, check_seeds
from benchmarks.studies.errors import StudyError
from benchmarks.studies.jobs import Evaluation, Job
from benchmarks.studies.pieces import Piece, Pieces
from benchmarks.studies.study import Options, Report, Study

__all__ = ["CREDIT"]

_METHODS = tuple(CREDITS)
_PLAYER = "POAD"
_SEED = 0
_RATE = 1e-3
"""Of all three; nothing is compared here but pictures, so nothing is tuned."""
_WATCHED = Evaluation(every=1_280, episodes=50, rollout=True)
TASKS: dict[str, Task] = {
    "tomato-salad": Task("tomato-salad", "Overcooked-TomatoSalad-v0", 2_560, _WATCHED),
    "key-token": Task("key-token", "KeyToken-v0", 2_560, _WATCHED),
}
"""Trained half way: a critic that knows everything has no advantages left to show."""


def _job(task: Task, method: str, script: Sequence[str] = ()) -> Job:
    job = task.job(method, _SEED, action_sampling="candidates", learning_rate=_RATE)
    return job._replace(evaluation=job.evaluation._replace(script=tuple(script)))


def _tasks(options: Options) -> list[Task]:
    if _SEED not in check_seeds(options.seeds):
        raise StudyError(
            f"Expected seed {_SEED}, the only one here; got {list(options.seeds)}. Fix: leave out --seeds."
        )
    wrong = [name for name in options.tasks if name not in TASKS]
    if wrong:
        raise StudyError(f"Expected tasks among {', '.join(TASKS)}; got {', '.join(wrong)}. Fix: name some of these.")
    return [task for name, task in TASKS.items() if not options.tasks or name in options.tasks]


def _jobs(options: Options, pieces: Pieces) -> Iterator[Job]:
    """POAD's run, which records an episode; then the other methods, whose critics judge the same actions."""
    for task in _tasks(options) if not options.tuning_only else ():
        yield _job(task, _PLAYER)
        script = _script(pieces.find(_job(task, _PLAYER)))
        if script:
            yield from (_job(task, method, script) for method in _METHODS if method != _PLAYER)


def _script(piece: Piece | None) -> list[str]:
    return [] if piece is None else [step["action"] for step in piece["rollout"]]


def _found(task: Task, pieces: Pieces) -> dict[str, Piece]:
    """Pieces by method, of those that are there."""
    player = pieces.find(_job(task, _PLAYER))
    if player is None:
        return {}
    others = {method: pieces.find(_job(task, method, _script(player))) for method in _METHODS if method != _PLAYER}
    return {_PLAYER: player} | {method: piece for method, piece in others.items() if piece is not None}


# ---------------------------------------------------------------------- the report


def _report(options: Options, pieces: Pieces) -> Report:
    content: dict[str, Any] = {"gamma": GAMMA, "gae_lambda": GAE_LAMBDA, "learning_rate": _RATE, "seed": _SEED}
    content["tasks"], content["missing"] = {}, []
    pictures, lines = {}, []
    for task in _tasks(options):
        found = _found(task, pieces)
        missing = [method for method in _METHODS if method not in found]
        content["missing"] += [f"{task.env_id}: {method}" for method in missing]
        if not found:
            continue
        one_critic, own_critics = _rollout(task, found[_PLAYER], None), _rollout(task, found[_PLAYER], found)
        content["tasks"][task.name] = _told(task, found, own_critics)
        pictures[f"_{task.name}_one_critic"] = partial(_draw, one_critic)
        pictures[f"_{task.name}_own_critics"] = partial(_draw, own_critics)
        shares = content["tasks"][task.name]["differs_within_actions"]
        lines.append(f"{task.env_id}: share of the variance of advantages that is inside actions: {shares}")
    lines += [f"Missing: {one}" for one in content["missing"]]
    return Report(content, pictures, lines)


def _draw(rollout: Rollout, path: Path) -> Path:
    return write_picture(path, credit_picture(rollout))


def _rollout(task: Task, player: Piece, critics: Mapping[str, Piece] | None) -> Rollout:
    """The episode, a column for each method: by the player's critic, or each by the critic that it has trained."""
    columns = tuple(critics) if critics else _METHODS
    steps = [
        RolloutStep(
            observation=step["observation"],
            tokens=step["tokens"],
            reward=step["reward"],
            log_probs=step["log_probs"],
            values={name: _step(name, number, player, critics)["values"] for name in columns},
            advantages={name: _step(name, number, player, critics)["advantages"][name] for name in columns},
        )
        for number, step in enumerate(player["rollout"])
    ]
    whose = "each column by the critic that its method has trained" if critics else "all columns by one critic, POAD's"
    remark = (
        f"{whose}; gamma {GAMMA:g}, lambda {GAE_LAMBDA:g} between actions; inside: 1 (POAD), gamma (NTPO), "
        "whole actions (TWOSOME)."
    )
    if player["rollout"][-1]["truncated"] and not player["rollout"][-1]["terminated"]:
        remark += CUT_OFF
    title = f"An episode of POAD on {task.env_id} after {player['steps'][-1]:,} steps, seed {_SEED}"
    return Rollout(title, columns, steps, remark[0].upper() + remark[1:])


def _step(name: str, number: int, player: Piece, critics: Mapping[str, Piece] | None) -> Mapping[str, Any]:
    piece = critics[name] if critics else player
    step: Mapping[str, Any] = piece["rollout"][number]
    return step


def _told(task: Task, found: Mapping[str, Piece], own: Rollout) -> dict[str, Any]:
    return {
        "env": task.env_id,
        "steps": found[_PLAYER]["steps"][-1],
        "returns_after_training": {method: piece["returns"][-1] for method, piece in found.items()},
        "differs_within_actions": {name: _share_within(own, name) for name in own.columns},
        "episode": [
            {
                "action": "".join(step.tokens),
                "tokens": list(step.tokens),
                "reward": step.reward,
                "advantages": {name: list(row) for name, row in step.advantages.items()},
            }
            for step in own.steps
        ],
    }


def _share_within(rollout: Rollout, column: str) -> float:
    """Of the variance of all advantages, the share inside actions: 0 where all tokens of one are credited alike."""
    actions = [np.array(step.advantages[column], dtype=np.float64) for step in rollout.steps]
    within = sum(float(((one - one.mean()) ** 2).sum()) for one in actions)
    everything = np.concatenate(actions)
    total = float(((everything - everything.mean()) ** 2).sum())
    return round(within / total, 4) if total else 0.0


CREDIT = Study("credit", "token credit of POAD, NTPO and TWOSOME side by side on one episode", _jobs, _report)
