"""Tables of the study, from its JSON file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.studies.credit_truth.cases import Case, Measured, find_case
from lang_envs.report import Table

Content = Mapping[str, Any]
TASKS = {
    "food-preparation": "Food Preparation",
    "entertainment": "Entertainment",
    "tomato-salad": "Tomato Salad",
    "key-token 4": "KeyToken",
    "multikey 2 2 2 4": "MultiKey",
}
"""Columns of the tables: tasks with their titles."""
_ROWS = (
    "action GAE (TWOSOME, turn-PPO) | exact",
    "BAD, lambda_token 1 | exact",
    "BAD, lambda_token 0.95 | exact",
    "BAD, lambda_token 0.8 | exact",
    "BAD, lambda_token 0 | exact",
    "bi-level GAE, lambda_token 0.95 | exact",
    "bi-level GAE as published (last anchor) | exact",
    "ARCHER, gamma_token 1 | exact",
    "return to go",
    "RLOO | N = 8",
    "step leave-one-out | N = 8",
    "anchor leave-one-out | N = 8",
    "ReBN, infinite batch",
    "Dr. GRPO | N = 8",
    "GRPO | N = 8",
    "GRPO, mean over the episode's tokens | N = 8",
    "GiGPO, mean | N = 8",
    "GiGPO, mean and deviation | N = 8",
    "NTPO, lambda_token 1 | exact",
    "REINFORCE++, infinite batch",
    "ARCHER | exact",
    "turn GAE, anchor mean | exact",
    "turn GAE, anchor last | exact",
    "BAD, mean over the action's tokens | exact",
)
"""Rows of the recorded cases: estimator, and its values or group size."""
_WITH_CRITICS = (
    "action GAE (TWOSOME, turn-PPO)",
    "BAD, lambda 1, lambda_token 1",
    "BAD, lambda_token 1",
    "BAD, lambda_token 0.95",
    "BAD, lambda_token 0.8",
    "BAD, lambda_token 0",
    "NTPO, lambda_token 1",
)
_CRITICS = ("exact", "flat", "fitted prefixes", "fitted observations")
_ALIGNED = 0.9995
"""Smallest cosine that counts as the right direction."""


def on_tasks(cases: Sequence[Case], name: str, gamma: float = 0.95) -> list[Measured | None]:
    """Return the numbers of a row on every task of `TASKS`, by the ascended policy."""
    of_tasks = [find_case(cases, task, gamma=gamma) for task in TASKS]
    return [None if case is None else case.rows.get(name) for case in of_tasks]


def verdict_on(rows: Sequence[Measured]) -> str:
    """Say how an estimator is wrong on average over tasks, if it is."""
    if all(row.bias is not None and row.bias <= max(1e-10, 3 * (row.standard_error or 0.0)) for row in rows):
        return "unbiased"
    cosines = [row.cosine for row in rows]
    if any(cosine is None for cosine in cosines):
        return "no gradient"
    lowest = min(cosine for cosine in cosines if cosine is not None)
    scales = sorted(row.scale for row in rows if row.scale is not None)
    if lowest >= _ALIGNED:
        return f"scaled by {scales[0]:.3g} to {scales[-1]:.3g}"
    return f"wrong direction: cosine down to {lowest:.3g}"


def tables(content: Content) -> Iterator[Table]:
    """Yield the tables of the content of the JSON file."""
    if cases := [Case.from_json(entry) for entry in content["cases"]]:
        yield _predictions(content)
        yield _averages(cases)
        yield _critics(cases)
        yield _gammas(cases)
        yield _pocket(cases)
        yield _cases(cases)


def _predictions(content: Content) -> Table:
    """Return how many checks of each prediction hold, and those that do not."""
    predictions = content["predictions"]
    rows = []
    for number, prediction in enumerate(predictions, 1):
        largest = "" if prediction["largest_difference"] is None else f"{prediction['largest_difference']:.2g}"
        rows.append((str(number), prediction["name"], f"{prediction['held']:,} of {prediction['checked']:,}", largest))
    failed = [
        f"{fault['case']}: predicted {_number(fault['predicted'])}, measured {_number(fault['measured'])}"
        for prediction in predictions
        for fault in prediction["failures"]
    ]
    remark = f"Checks that do not hold: {'; '.join(failed)}." if failed else ""
    return Table("Predictions", ("", "prediction", "checks that hold", "largest difference"), rows, remark)


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.4g}"


def _averages(cases: Sequence[Case]) -> Table:
    rows_of = {key: on_tasks(cases, key) for key in _ROWS}
    rows = [
        (row_title(key), verdict_on([row for row in of_key if row is not None]), *_cells(of_key, "cosine", "nsr"))
        for key, of_key in rows_of.items()
        if any(of_key)
    ]
    remark = "Cosine to the true gradient and noise to signal (lower is better); tabular, ascended policy, gamma 0.95."
    return Table("Direction and noise", ("estimator", "on average", *TASKS.values()), rows, remark)


def _critics(cases: Sequence[Case]) -> Table:
    rows = [
        (name, critic, *_cells(on_tasks(cases, f"{name} | {critic}"), "bias", "nsr"))
        for name in _WITH_CRITICS
        for critic in _CRITICS
    ]
    remark = "Relative bias and noise to signal, ascended policy, gamma 0.95."
    return Table("Worse critics", ("estimator", "critic", *TASKS.values()), rows, remark)


def _gammas(cases: Sequence[Case]) -> Table:
    rows = [
        (name, f"{gamma:g}", *_cells(on_tasks(cases, f"{name} | exact", gamma), "scale", "cosine"))
        for name in ("NTPO, lambda_token 1", "NTPO, lambda_token 0.95", "ARCHER")
        for gamma in (0.9, 0.95, 0.99, 1.0)
    ]
    remark = "Scale and cosine of the estimators that discount inside actions, with their own exact values."
    return Table("Discount inside actions", ("estimator", "gamma", *TASKS.values()), rows, remark)


def _pocket(cases: Sequence[Case]) -> Table:
    tasks = (*list(TASKS)[:-1], "multikey 1 2 2 4")
    of_tasks = [
        find_case(cases, task, "ascended", "pocket") or find_case(cases, task, "start", "pocket") for task in tasks
    ]
    measured = {key: [None if case is None else case.rows.get(key) for case in of_tasks] for key in _ROWS}
    rows = [(row_title(key), *_cells(of_key, "cosine", "nsr")) for key, of_key in measured.items()]
    remark = (
        "Cosine and noise to signal; the ascended policy (Tomato Salad: the untrained model, already at 61 % success)."
    )
    return Table("LoRA matrices of the pocket model", ("estimator", *TASKS.values()), rows, remark)


def _cases(cases: Sequence[Case]) -> Table:
    rows = []
    for case in cases:
        facts = case.facts
        if case.gamma != 0.95 or not (facts["episodes_sampled"] or case.parameters == "pocket"):
            continue
        error = max(row.standard_error or 0.0 for row in case.rows.values())
        rows.append(
            (
                *case[:3],
                f"{facts['success']:.3f}",
                f"{facts['decisions']:.1f}",
                f"{facts['tokens_per_action']:.1f}",
                f"{facts['dimensions']}",
                f"{facts['cosine_run_disc']:.3f}",
                f"{facts['cosine_run_one']:.3f}",
                f"{facts['episodes_sampled']:,}",
                f"{error:.3f}" if facts["episodes_sampled"] else "",
            )
        )
    head = ("task", "parameters", "policy", "success", "decisions", "tokens", "dimensions")
    further = ("cos(run, disc)", "cos(run, one)", "episodes", "largest standard error")
    return Table("Cases", (*head, *further), rows)


def row_title(key: str) -> str:
    """Return the name of a row in tables and pictures."""
    return key.removesuffix(" | exact").replace(" | ", ", ")


def _cells(rows: Iterable[Measured | None], *fields: str) -> list[str]:
    """Format fields of an estimator, a cell for each task; "-" where undefined."""
    cells = []
    for row in rows:
        values = [getattr(row, field) for field in fields] if row is not None else []
        cells.append(", ".join("-" if value is None else f"{round(value, 9):.3g}" for value in values))
    return cells
