"""A recorded episode with its token credit, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.runner.plan import Job
from benchmarks.runner.records import key_of
from lang_envs.report import read_results

CUT_OFF = " The episode was cut off by its time limit, and is credited as if it had ended there."


class RolloutStep(NamedTuple):
    """One action of a rollout.

    Attributes:
        observation: Observation before the action.
        tokens: Texts of the action's tokens.
        reward: Reward of the step.
        log_probs: Log-probability of each token; may be empty.
        values: Values before the tokens, by column; a column may be missing.
        advantages: Advantages of the tokens, by column.
    """

    observation: str
    tokens: Sequence[str]
    reward: float
    log_probs: Sequence[float]
    values: Mapping[str, Sequence[float]]
    advantages: Mapping[str, Sequence[float]]


class Rollout(NamedTuple):
    """One episode with the credit of several estimators.

    Attributes:
        title: Agent, task and seed.
        columns: Names of the estimators.
        steps: Actions of the episode.
        remark: Caption: the source of the values, the discount.
    """

    title: str
    columns: tuple[str, ...]
    steps: Sequence[RolloutStep]
    remark: str = ""

    @property
    def scale(self) -> float:
        """Largest absolute advantage in any column; 1 where all are 0."""
        rows = (row for step in self.steps for row in step.advantages.values())
        return max((abs(value) for row in rows for value in row), default=0.0) or 1.0


_NUMBERS = ("tokens", "log_probs", "values", "advantages")
"""Fields that every step of a drawn episode has."""


def read_rollout(path: Path, wanted: str | None = None) -> Rollout | None:
    """Return an episode of a results file.

    Args:
        path: Path of the results file.
        wanted: `ENV/SEED/EPISODE`; None for the first success with credit, or else the first episode with credit.

    Returns:
        The episode; None if it is not there, has not ended or has no credit.

    Raises:
        ReportError: If the file cannot be read or is not a valid results file.
    """
    results = read_results(path)
    credit = (results.steps_header or {}).get("credit")
    chosen: tuple[Job, list[dict[str, Any]]] | None = None
    for episode in results.episodes if credit else ():
        job, steps = key_of(episode), episode["steps_list"] or []
        if wanted not in (None, "/".join(map(str, job))) or not steps:
            continue
        is_over = steps[-1]["terminated"] or steps[-1]["truncated"]
        if not is_over or not all(step.get(name) for step in steps for name in _NUMBERS):
            continue
        chosen = chosen or (job, steps)
        if wanted is not None or steps[-1]["success"]:
            chosen = job, steps
            break
    return None if chosen is None else _rollout(results.header["agent"]["name"], credit or {}, *chosen)


def _rollout(agent: str, credit: Mapping[str, Any], job: Job, steps: Sequence[Mapping[str, Any]]) -> Rollout:
    columns, same = tuple(steps[0]["advantages"]), ("observation", "tokens", "reward", "log_probs", "advantages")
    rows = [
        RolloutStep(values=dict.fromkeys(columns, step["values"]), **{name: step[name] for name in same})
        for step in steps
    ]
    remark = (
        "All columns read the values of one critic, the agent's; trained by another method it would have others. "
        f"gamma {credit['gamma']:g}, lambda {credit['gae_lambda']:g} between actions; inside: 1 (POAD), gamma (NTPO)."
    )
    last = steps[-1]
    if last["truncated"] and not last["terminated"] and last.get("final_value") is None:
        remark += CUT_OFF
    return Rollout(f"{agent}, {job}", columns, rows, remark)
