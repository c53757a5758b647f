"""What changed between two evaluations by lm-eval, with standard errors; it works on what the harness returns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Change", "Scores", "changes"]

Scores = Mapping[str, Any]
"""What `lm_eval.simple_evaluate` returns."""
Measured = tuple[float, float | None]
"""A value and its standard error; None where it has none."""


class Change(NamedTuple):
    """A metric of a task, before and after.

    Attributes:
        task: Of the harness; a group stands for its tasks.
        metric: Of the task.
        n: Questions.
        before: Value of the base model, and its standard error as the harness has it (None where it has none).
        after: Of what was trained.
        difference: After less before, and its standard error.
        paired: Whether that is taken over the differences of single answers. Where the harness keeps none that add up
            to the metric, the two errors are added as if they were independent, which is too large.
    """

    task: str
    metric: str
    n: int
    before: Measured
    after: Measured
    difference: Measured
    paired: bool


def changes(before: Scores, after: Scores) -> Iterator[Change]:
    """Compare what the harness found; a task that belongs to a group is part of the group's rows only.

    Args:
        before: Of `simple_evaluate`.
        after: Likewise, on the same tasks.
    """
    groups: Mapping[str, Sequence[str]] = before.get("group_subtasks", {})
    parts = {part for members in groups.values() for part in members}
    for task, found in before["results"].items():
        if task in parts:
            continue
        for key, value in found.items():
            metric, _, kept_by = key.partition(",")
            if not kept_by or metric.endswith("_stderr") or not isinstance(value, int | float):
                continue
            one, other = (_value(scores["results"][task], metric, kept_by) for scores in (before, after))
            leaves = list(_leaves(task, groups))
            answers = [_answers(scores, leaves, metric, kept_by) for scores in (before, after)]
            yield _change(task, metric, one, other, answers)


def _value(found: Mapping[str, Any], metric: str, kept_by: str) -> Measured:
    error = found.get(f"{metric}_stderr,{kept_by}")
    return float(found[f"{metric},{kept_by}"]), float(error) if isinstance(error, int | float) else None


def _leaves(task: str, groups: Mapping[str, Sequence[str]]) -> Iterator[str]:
    members = groups.get(task)
    if not members:
        yield task
    for member in members or ():
        yield from _leaves(member, groups)


def _answers(scores: Scores, leaves: Sequence[str], metric: str, kept_by: str) -> dict[tuple[str, int], float]:
    """What every single answer got, where that is a number."""
    found = {}
    for leaf in leaves:
        for sample in scores.get("samples", {}).get(leaf, ()):
            value = sample.get(metric)
            if sample.get("filter", kept_by) == kept_by and isinstance(value, int | float):
                found[leaf, sample["doc_id"]] = float(value)
    return found


def _change(
    task: str, metric: str, before: Measured, after: Measured, answers: Sequence[Mapping[tuple[str, int], float]]
) -> Change:
    one, other = answers
    difference = after[0] - before[0]
    single = np.array([other[key] - one[key] for key in one if key in other])
    if len(single) > 1 and one.keys() == other.keys() and abs(single.mean() - difference) < 1e-6:
        paired_error = float(single.std(ddof=1) / np.sqrt(len(single)))
        return Change(task, metric, len(single), before, after, (difference, paired_error), paired=True)
    error = None if before[1] is None or after[1] is None else math.hypot(before[1], after[1])
    return Change(task, metric, len(one), before, after, (difference, error), paired=False)
