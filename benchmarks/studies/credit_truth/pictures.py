"""Pictures of the study: noise by length of the action, and by group size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from benchmarks.reports.plots import PALETTE, style
from benchmarks.studies.credit_truth.cases import Case, find_case
from benchmarks.studies.credit_truth.rows import GROUP_SIZES
from benchmarks.studies.credit_truth.tables import TASKS


@style()
def pictures(cases: Sequence[Case]) -> dict[str, Any]:
    """Return the figures by suffix, of the cases that are there."""
    figures = {}
    if any(case.task.startswith("multikey 1") for case in cases):
        figures["_lengths"] = _lengths(cases)
    if any(find_case(cases, task) for task in TASKS):
        figures["_groups"] = _groups(cases)
    return figures


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
