"""Pictures of the study: bias and noise by task, by length of the action, and by group size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from benchmarks.reports.plots import PALETTE, style
from benchmarks.studies.credit_truth.cases import Case, find_case
from benchmarks.studies.credit_truth.rows import GROUP_SIZES
from benchmarks.studies.credit_truth.tables import TASKS, row_title

SHOWN = (
    "action GAE (TWOSOME, turn-PPO) | exact",
    "BAD, lambda_token 1 | exact",
    "BAD, lambda_token 0.95 | exact",
    "BAD, lambda_token 0.8 | exact",
    "bi-level GAE, lambda_token 0.95 | exact",
    "ARCHER, gamma_token 1 | exact",
    "return to go",
    "anchor leave-one-out | N = 8",
    "RLOO | N = 8",
    "ReBN, infinite batch",
    "Dr. GRPO | N = 8",
    "GRPO | N = 8",
    "GiGPO, mean | N = 8",
    "GiGPO, mean and deviation | N = 8",
    "NTPO, lambda_token 1 | exact",
    "ARCHER | exact",
    "turn GAE, anchor mean | exact",
)
"""Rows of the summary."""
_SMALLEST = 1e-4
"""Lower bound of the drawn errors of direction: smaller ones are drawn there."""


@style()
def pictures(cases: Sequence[Case]) -> dict[str, Any]:
    """Return the figures by suffix, of the cases that are there."""
    figures = {"": _summary(cases)}
    if any(case.task.startswith("multikey 1") for case in cases):
        figures["_lengths"] = _lengths(cases)
    if any(find_case(cases, task) for task in TASKS):
        figures["_groups"] = _groups(cases)
    return figures


def _summary(cases: Sequence[Case]) -> Figure:
    """Draw noise against error of direction: a colour for each task, a row for each estimator."""
    figure = Figure(figsize=(10, 6.4), layout="constrained")
    wrong, noisy = figure.subplots(1, 2, sharey=True)
    for number, (task, title) in enumerate(TASKS.items()):
        case = find_case(cases, task) or find_case(cases, task, "start")
        if case is None:
            continue
        errors, noises = [], []
        for key in SHOWN:
            row = case.rows.get(key)
            cosine, nsr = (None, None) if row is None else (row.cosine, row.nsr)
            errors.append(float("nan") if cosine is None else max(1 - cosine, _SMALLEST))
            noises.append(nsr if nsr else float("nan"))
        rows = [index + 0.13 * (number - 2) for index in range(len(SHOWN))]
        wrong.plot(errors, rows, "o", color=PALETTE[number], label=title, markersize=4)
        noisy.plot(noises, rows, "o", color=PALETTE[number], markersize=4)
    wrong.set_xscale("log")
    noisy.set_xscale("log")
    wrong.set_xlabel(f"error of the direction, 1 - cosine ({_SMALLEST:g}: that or less)")
    noisy.set_xlabel("noise to signal, in episodes")
    wrong.set_yticks(range(len(SHOWN)), [row_title(key) for key in SHOWN])
    wrong.set_ylim(len(SHOWN) - 0.5, -0.5)
    figure.legend(*wrong.get_legend_handles_labels(), loc="outside upper center", ncols=len(TASKS))
    return figure


def _lengths(cases: Sequence[Case]) -> Figure:
    """Draw MultiKey with one key: noise by the number of slots."""
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    policies = [policy for policy in ("start", "0.25", "0.75") if any(case.policy == policy for case in cases)]
    panels = figure.subplots(1, len(policies), sharey=True, squeeze=False)[0]
    names = ["action GAE (TWOSOME, turn-PPO)", *(f"BAD, lambda_token {lam}" for lam in ("1", "0.95", "0.8", "0"))]
    names += ["NTPO, lambda_token 1"]
    for panel, policy in zip(panels, policies, strict=True):
        for color, name in zip(PALETTE, names, strict=False):
            points = [
                (case.multikey[1] + 1, case.exact(name).nsr)
                for case in cases
                if case.task.startswith("multikey 1") and case.task.endswith(" 2 4") and case.policy == policy
                if case.parameters == "tabular"
            ]
            # NTPO lies on BAD at matched traces: hollow and dashed, so that both are seen.
            style = {"linestyle": "--", "markersize": 9, "markerfacecolor": "none"} if name.startswith("NTPO") else {}
            shown = [(n, nsr) for n, nsr in points if nsr]  # 0 has no place on a logarithmic scale
            panel.plot([n for n, _ in shown], [nsr for _, nsr in shown], marker="o", color=color, label=name, **style)
        panel.set_yscale("log")
        panel.set_xlim(0.7, None)
        panel.set_xlabel("slots of an action, one of them a key")
        panel.set_title({"start": "uniform policy"}.get(policy, f"P(right) = {policy}"))
    panels[0].set_ylabel("noise to signal")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure


def _groups(cases: Sequence[Case]) -> Figure:
    """Draw group estimators by group size, at equal environment steps."""
    tasks = [task for task in TASKS if find_case(cases, task)]
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    panels = figure.subplots(1, len(tasks), squeeze=False)[0]
    names = ("RLOO", "step leave-one-out", "anchor leave-one-out", "GRPO", "GiGPO, mean", "GiGPO, mean and deviation")
    for panel, task in zip(panels, tasks, strict=True):
        case = find_case(cases, task)
        assert case is not None
        for color, name in zip(PALETTE, names, strict=False):
            ratios = [case.rows[f"{name} | N = {size}"].snr_per_step for size in GROUP_SIZES]
            panel.plot(GROUP_SIZES, ratios, "o-", color=color, label=name, markersize=3)
        panel.set_xscale("log", base=2)
        panel.set_xticks(GROUP_SIZES, [str(size) for size in GROUP_SIZES])
        panel.set_yscale("log")
        panel.set_title(TASKS[task])
        panel.set_xlabel("episodes in a group")
    panels[0].set_ylabel("signal to noise per environment step")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure
