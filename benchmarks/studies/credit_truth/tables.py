"""Tables of the study, from its JSON file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

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


class Measured(NamedTuple):
    """Numbers of an estimator on a case; None where undefined."""

    bias: float | None
    scale: float | None
    cosine: float | None
    nsr: float | None
    snr_per_step: float | None
    standard_error: float


def measured(case: Content | None, name: str) -> Measured | None:
    """Return the numbers of a row of a case; None where there are none."""
    if case is None or name not in case["rows"]:
        return None
    bias, scale, cosine, nsr, snr, error = (None if cell == "-" else float(cell) for cell in case["rows"][name].split())
    return Measured(bias, scale, cosine, nsr, snr, error or 0.0)


def find(
    content: Content, task: str, policy: str = "ascended", parameters: str = "tabular", gamma: float = 0.95
) -> Content | None:
    """Return a case; None where it is missing."""
    wanted = (task, policy, parameters, gamma)
    cases = content["cases"]
    matching = (case for case in cases if (case["task"], case["policy"], case["parameters"], case["gamma"]) == wanted)
    return next(matching, None)


def on_tasks(content: Content, name: str, gamma: float = 0.95) -> list[Measured | None]:
    """Return the numbers of a row on every task of `TASKS`, by the ascended policy."""
    return [measured(find(content, task, gamma=gamma), name) for task in TASKS]


def verdict_on(rows: Sequence[Measured]) -> str:
    """Say how an estimator is wrong on average over tasks, if it is."""
    if all(row.bias is not None and row.bias <= max(1e-10, 3 * row.standard_error) for row in rows):
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
    if content["cases"]:
        yield _predictions(content)
        yield _averages(content)
        yield _critics(content)
        yield _gammas(content)
        yield _pocket(content)
        yield _cases(content)


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


def _averages(content: Content) -> Table:
    rows_of = {key: on_tasks(content, key) for key in _ROWS}
    rows = [
        (_title(key), verdict_on([row for row in of_key if row is not None]), *_cells(of_key, "cosine", "nsr"))
        for key, of_key in rows_of.items()
        if any(of_key)
    ]
    remark = "Cosine to the true gradient and noise to signal (lower is better); tabular, ascended policy, gamma 0.95."
    return Table("Direction and noise", ("estimator", "on average", *TASKS.values()), rows, remark)


def _critics(content: Content) -> Table:
    rows = [
        (name, critic, *_cells(on_tasks(content, f"{name} | {critic}"), "bias", "nsr"))
        for name in _WITH_CRITICS
        for critic in _CRITICS
    ]
    remark = "Relative bias and noise to signal, ascended policy, gamma 0.95."
    return Table("Worse critics", ("estimator", "critic", *TASKS.values()), rows, remark)


def _gammas(content: Content) -> Table:
    rows = [
        (name, f"{gamma:g}", *_cells(on_tasks(content, f"{name} | exact", gamma), "scale", "cosine"))
        for name in ("NTPO, lambda_token 1", "NTPO, lambda_token 0.95", "ARCHER")
        for gamma in (0.9, 0.95, 0.99, 1.0)
    ]
    remark = "Scale and cosine of the estimators that discount inside actions, with their own exact values."
    return Table("Discount inside actions", ("estimator", "gamma", *TASKS.values()), rows, remark)


def _pocket(content: Content) -> Table:
    tasks = (*list(TASKS)[:-1], "multikey 1 2 2 4")
    cases = [find(content, task, "ascended", "pocket") or find(content, task, "start", "pocket") for task in tasks]
    rows = [(_title(key), *_cells([measured(case, key) for case in cases], "cosine", "nsr")) for key in _ROWS]
    remark = (
        "Cosine and noise to signal; the ascended policy (Tomato Salad: the untrained model, already at 61 % success)."
    )
    return Table("LoRA matrices of the pocket model", ("estimator", *TASKS.values()), rows, remark)


def _cases(content: Content) -> Table:
    rows = []
    for case in content["cases"]:
        if case["gamma"] != 0.95 or not (case["episodes_sampled"] or case["parameters"] == "pocket"):
            continue
        error = max(float(line.split()[-1]) for line in case["rows"].values())
        rows.append(
            (
                case["task"],
                case["parameters"],
                case["policy"],
                f"{case['success']:.3f}",
                f"{case['decisions']:.1f}",
                f"{case['tokens_per_action']:.1f}",
                f"{case['dimensions']}",
                f"{case['cosine_run_disc']:.3f}",
                f"{case['cosine_run_one']:.3f}",
                f"{case['episodes_sampled']:,}",
                f"{error:.3f}" if case["episodes_sampled"] else "",
            )
        )
    head = ("task", "parameters", "policy", "success", "decisions", "tokens", "dimensions")
    further = ("cos(run, disc)", "cos(run, one)", "episodes", "largest standard error")
    return Table("Cases", (*head, *further), rows)


def _title(key: str) -> str:
    return key.removesuffix(" | exact").replace(" | ", ", ")


def _cells(rows: Iterable[Measured | None], *fields: str) -> list[str]:
    """Format fields of an estimator, a cell for each task; "-" where undefined."""
    cells = []
    for row in rows:
        values = [getattr(row, field) for field in fields] if row is not None else []
        cells.append(", ".join("-" if value is None else f"{round(value, 9):.3g}" for value in values))
    return cells
