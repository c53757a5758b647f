"""What changed between two evaluations by lm-eval, with standard errors; it works on what the harness returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Change", "Scores", "changes"]

Scores = Mapping[str, Any]
"""What `lm_eval.simple_evaluate` returns."""


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
    before: tuple[float, float | None]
    after: tuple[float, float | None]
    difference: tuple[float, float | None]
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
            pair = [_value(scores["results"][task], metric, kept_by) for scores in (before, after)]
            leaves = list(_leaves(task, groups))
            yield _change(task, metric, pair, [_answers(one, leaves, metric, kept_by) for one in (before, after)])


def _value(found: Mapping[str, Any], metric: str, kept_by: str) -> tuple[float, float | None]:
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
    task: str, metric: str, pair: Sequence[tuple[float, float | None]], answers: Sequence[dict[tuple[str, int], float]]
) -> Change:
    (before, its_error), (after, other_error) = pair
    one, other = answers
    difference = after - before
    single = np.array([other[key] - one[key] for key in one if key in other])
    if len(single) > 1 and one.keys() == other.keys() and abs(single.mean() - difference) < 1e-6:
        error = float(single.std(ddof=1) / np.sqrt(len(single)))
        return Change(task, metric, len(single), *pair, (difference, error), paired=True)
    known = its_error is not None and other_error is not None
    error = float(np.hypot(its_error, other_error)) if known else None  # type: ignore[arg-type]
    return Change(task, metric, len(one), *pair, (difference, error), paired=False)
