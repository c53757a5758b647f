"""`credit-truth`: tables of its page, and its picture for the README.

`python docs/_truth.py` writes docs/assets/credit_truth_light.svg and docs/assets/credit_truth_dark.svg.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from _tables import ROOT, code, machine, result, table

Content = Mapping[str, Any]
TASKS = {
    "food-preparation": "Food Preparation",
    "entertainment": "Entertainment",
    "tomato-salad": "Tomato Salad",
    "key-token 4": "KeyToken",
    "multikey 2 2 2 4": "MultiKey",
}
ROWS = (
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
"""Rows of the recorded cases: estimator, and its values or size of group."""
CRITICS = (
    "action GAE (TWOSOME, turn-PPO)",
    "BAD, lambda 1, lambda_token 1",
    "BAD, lambda_token 1",
    "BAD, lambda_token 0.95",
    "BAD, lambda_token 0.8",
    "BAD, lambda_token 0",
    "NTPO, lambda_token 1",
)
GROUPS = (
    "RLOO",
    "step leave-one-out",
    "anchor leave-one-out",
    "Dr. GRPO",
    "GRPO",
    "GiGPO step part, mean",
    "GiGPO step part, mean and deviation",
    "GiGPO, mean",
    "GiGPO, mean and deviation",
)
_ALIGNED = 0.9995
"""A cosine from here on is called the right direction."""


class Row(NamedTuple):
    """An estimator on a case; None where undefined."""

    bias: float | None
    scale: float | None
    cosine: float | None
    nsr: float | None
    snr_per_step: float | None
    standard_error: float


def _case(task: str, policy: str, parameters: str = "tabular", gamma: float = 0.95) -> Content | None:
    wanted = (task, policy, parameters, gamma)
    cases = result("studies/credit-truth")["cases"]
    found = (one for one in cases if (one["task"], one["policy"], one["parameters"], one["gamma"]) == wanted)
    return next(found, None)


def _row(case: Content | None, name: str) -> Row | None:
    if case is None or name not in case["rows"]:
        return None
    numbers = [None if one == "-" else float(one) for one in case["rows"][name].split()]
    return Row(*numbers[:5], numbers[5] or 0.0)


def _of_tasks(name: str, policy: str = "ascended") -> list[Row | None]:
    return [_row(_case(task, policy), name) for task in TASKS]


def _verdict(rows: Sequence[Row]) -> str:
    if all(one.bias is not None and one.bias <= max(1e-10, 3 * one.standard_error) for one in rows):
        return "unbiased"
    cosines = [one.cosine for one in rows]
    if any(one is None for one in cosines):
        return "no gradient"
    lowest = min(one for one in cosines if one is not None)
    scales = sorted(one.scale for one in rows if one.scale is not None)
    if lowest >= _ALIGNED:
        return f"scaled by {scales[0]:.3g} to {scales[-1]:.3g}"
    return f"wrong direction: cosine down to {lowest:.3g}"


def _title(key: str) -> str:
    return key.removesuffix(" | exact").replace(" | ", ", ")


def _shown(row: Row | None) -> str:
    if row is None:
        return ""
    if row.cosine is None:
        return "-, -"
    return f"{row.cosine:.3f}, {'-' if row.nsr is None else f'{row.nsr:.3g}'}"


def credit_truth_summary() -> str:
    """Show the verdict of every estimator, with direction and noise on each task."""
    rows = []
    for key in ROWS:
        found = _of_tasks(key)
        there = [one for one in found if one is not None]
        if there:
            rows.append((_title(key), _verdict(there), *map(_shown, found)))
    about = "Cosine to the true gradient and noise to signal (lower is better); tabular, ascended policy, gamma 0.95."
    picture = "![Direction and noise of the estimators](../assets/studies/credit-truth.png)"
    return f"{picture}\n\n{about}\n\n{table(('estimator', 'on average', *TASKS.values()), rows)}"


def credit_truth_critics() -> str:
    """Show bias and noise with worse critics."""
    rows = []
    for name in CRITICS:
        for kind in ("exact", "flat", "fitted prefixes", "fitted observations"):
            cells = []
            for row in _of_tasks(f"{name} | {kind}"):
                bias = "" if row is None or row.bias is None else f"{0.0 if row.bias < 1e-10 else row.bias:.3f}"
                noise = "" if row is None else ", -" if row.nsr is None else f", {row.nsr:.3g}"
                cells.append(bias + noise)
            rows.append((name, kind, *cells))
    return table(("estimator", "critic", *TASKS.values()), rows)


def credit_truth_groups() -> str:
    """Show group estimators by the size of the group."""
    rows = []
    for name in GROUPS:
        for size in (2, 4, 8, 16):
            cells = []
            for row in _of_tasks(f"{name} | N = {size}"):
                if row is None:
                    cells.append("")
                    continue
                cosine = "-" if row.cosine is None else f"{row.cosine:.3f}"
                cells.append(f"{row.bias:.3f} ({row.standard_error:.3f}), {cosine}, {row.snr_per_step:.2g}")
            rows.append((name, str(size), *cells))
    return table(("estimator", "N", *TASKS.values()), rows)


def credit_truth_lengths() -> str:
    """Show MultiKey and KeyToken by the number of slots."""
    names = ["action GAE (TWOSOME, turn-PPO)", *(f"BAD, lambda_token {one}" for one in ("1", "0.95", "0.8", "0"))]
    names += ["bi-level GAE, lambda_token 0.8", "NTPO, lambda_token 1"]
    rows = []
    for d in range(8):
        case = _case(f"multikey 1 {d} 2 4", "0.75")
        found = [_row(case, f"{name} | exact") for name in names]
        rows.append((str(d + 1), *("" if one is None or one.nsr is None else f"{one.nsr:.3g}" for one in found)))
    return table(("slots", *(name.replace("lambda_token ", "") for name in names)), rows)


def credit_truth_gammas() -> str:
    """Show NTPO and ARCHER by gamma."""
    rows = []
    for name in ("NTPO, lambda_token 1", "NTPO, lambda_token 0.95", "ARCHER"):
        for gamma in (0.9, 0.95, 0.99, 1.0):
            found = [_row(_case(task, "ascended", gamma=gamma), f"{name} | exact") for task in TASKS]
            cells = ["" if one is None or one.cosine is None else f"{one.scale:.3f}, {one.cosine:.3f}" for one in found]
            rows.append((name, f"{gamma:g}", *cells))
    return table(("estimator", "gamma", *TASKS.values()), rows)


def credit_truth_pocket() -> str:
    """Show the LoRA matrices of the pocket model."""
    tasks = (*list(TASKS)[:-1], "multikey 1 2 2 4")
    cases = [_case(task, "ascended", "pocket") or _case(task, "start", "pocket") for task in tasks]
    rows = [(_title(key), *(_shown(_row(case, key)) for case in cases)) for key in ROWS]
    return table(("estimator", *TASKS.values()), rows)


def protocol_predictions() -> str:
    """Show the noise of each estimator divided by that of action-level GAE on tasks of the protocol."""
    from benchmarks.studies.credit_truth.problems import Additive

    rows = []
    for k, d in ((1, 0), (2, 4), (4, 4)):
        form = Additive(k, d, 4, 2, 0.5, 0.95 * 0.95)
        action = form.nsr("action", 1.0)
        kinds = [("bad", one) for one in (1.0, 0.95, 0.8, 0.0)] + [("bilevel", 0.95)]
        ratios = [form.nsr(kind, one) for kind, one in kinds]
        shown = ["-" if not action else f"{one / action:.3g}" for one in ratios if one is not None]
        rows.append((f"k = {k}, d = {d}", f"{action:.3g}", *shown))
    head = ("MultiKey", "action-level GAE", "BAD 1", "BAD 0.95", "BAD 0.8", "BAD 0", "bi-level 0.95")
    return table(head, rows)


def credit_truth_cases() -> str:
    """Show the cases with their policies."""
    rows = []
    for one in result("studies/credit-truth")["cases"]:
        if one["gamma"] == 0.95 and (one["episodes_sampled"] or one["parameters"] == "pocket"):
            errors = [float(line.split()[-1]) for line in one["rows"].values()]
            rows.append(
                (
                    one["task"],
                    one["parameters"],
                    one["policy"],
                    f"{one['success']:.3f}",
                    f"{one['decisions']:.1f}",
                    f"{one['tokens_per_action']:.1f}",
                    str(one["dimensions"]),
                    f"{one['cosine_run_disc']:.3f}",
                    f"{one['cosine_run_one']:.3f}",
                    f"{one['episodes_sampled']:,}",
                    f"{max(errors):.3f}" if one["episodes_sampled"] else "",
                )
            )
    head = ("task", "parameters", "policy", "success", "decisions", "tokens", "dimensions", "cos(run, disc)")
    return table((*head, "cos(run, one)", "episodes", "largest standard error"), rows)


def predictions(content: Content) -> str:
    """Show how many checks of each prediction hold, and those that do not."""
    rows = [
        (
            str(number),
            one["name"],
            f"{one['held']:,} of {one['checked']:,}",
            "" if one["largest_difference"] is None else f"{one['largest_difference']:.2g}",
        )
        for number, one in enumerate(content["predictions"], 1)
    ]
    failed = [
        f"{fault['case']}: predicted {_number(fault['predicted'])}, measured {_number(fault['measured'])}"
        for one in content["predictions"]
        for fault in one["failures"]
    ]
    found = table(("", "prediction", "checks that hold", "largest difference"), rows)
    return f"{found}\n\nChecks that do not hold: {'; '.join(failed)}." if failed else found


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.4g}"


def credit_truth_predictions() -> str:
    """Show the predictions with command, machine and commit of the run."""
    content = result("studies/credit-truth")
    parts = [predictions(content)]
    if content["missing"]:
        parts.append(f"Not run yet: {'; '.join(content['missing'])}.")
    where, commits = machine(content["measured_with"][0]), ", ".join(content["commits"])
    parts.append(f"Made by {code(content['command'])} on {where}; commit {commits}.")
    return "\n\n".join(parts)


# ---------------------------------------------------------------------- the picture of the README

THEMES = {
    "light": {
        "ink": "#1f2328",
        "dim": "#59636e",
        "grid": "#d1d9e0",
        "good": "#2f74b5",
        "scaled": "#6e7781",
        "bad": "#c2570c",
    },
    "dark": {
        "ink": "#f0f6fc",
        "dim": "#9198a1",
        "grid": "#3d444d",
        "good": "#63b0f0",
        "scaled": "#9198a1",
        "bad": "#f59e4c",
    },
}
MARKERS = {"good": "o", "scaled": "s", "bad": "^"}
PICTURE = {
    "BAD, lambda_token 0.8 | exact": "BAD, λ_token 0.8",
    "BAD, lambda_token 0.95 | exact": "BAD (POAD), λ_token 0.95",
    "BAD, lambda_token 1 | exact": "BAD (POAD), λ_token 1",
    "action GAE (TWOSOME, turn-PPO) | exact": "action GAE (TWOSOME, turn-PPO)",
    "anchor leave-one-out | N = 8": "anchor leave-one-out, groups of 8",
    "RLOO | N = 8": "RLOO, groups of 8",
    "return to go": "REINFORCE",
    "GRPO | N = 8": "GRPO, groups of 8",
    "GiGPO, mean and deviation | N = 8": "GiGPO, groups of 8",
    "NTPO, lambda_token 1 | exact": "NTPO (token GAE with one gamma)",
    "turn GAE, anchor mean | exact": "turn GAE, mean anchor",
}


def draw(path: Path, theme: Mapping[str, str]) -> None:
    """Draw direction and noise: a small mark for each task, a large one for their median."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    settings = {"svg.hashsalt": "credit-truth", "svg.fonttype": "path", "font.family": "DejaVu Sans", "font.size": 10}
    with mpl.rc_context(settings):
        figure = Figure((9.5, 4.4), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        for place, key in enumerate(PICTURE):
            rows = [one for one in _of_tasks(key) if one is not None]
            verdict = _verdict(rows)
            unbiased = verdict == "unbiased"
            kind = "good" if unbiased else "scaled" if verdict.startswith("scaled") else "bad"
            style = {"marker": MARKERS[kind], "color": theme[kind], "linestyle": "none"}
            errors = [0.0 if unbiased or one.cosine is None else 1 - one.cosine for one in rows]
            for panel, points in zip(panels, (errors, [one.nsr for one in rows if one.nsr]), strict=True):
                panel.plot(points, [place] * len(points), markersize=3.5, alpha=0.5, **style)
                panel.plot([median(points)], [place], markersize=9, **style)
        panels[0].set_yticks(range(len(PICTURE)), list(PICTURE.values()))
        panels[0].set_ylim(len(PICTURE) - 0.5, -0.5)
        panels[0].set_xlabel("error of the direction, 1 - cosine")
        panels[0].set_xlim(-0.01, None)
        panels[0].xaxis.set_major_locator(MaxNLocator(5))
        panels[1].set_xscale("log")
        panels[1].set_xlabel("noise to signal, in episodes")
        labels = {"good": "unbiased", "scaled": "right direction, other size", "bad": "wrong direction"}
        handles = [
            panels[0].plot([], [], MARKERS[key], color=theme[key], label=label)[0] for key, label in labels.items()
        ]
        legend = figure.legend(handles=handles, loc="outside upper center", ncols=3, frameon=False)
        for text in legend.get_texts():
            text.set_color(theme["ink"])
        for panel in panels:
            panel.set_facecolor("none")
            panel.grid(axis="x", color=theme["grid"], linewidth=0.6)
            panel.tick_params(colors=theme["dim"], labelcolor=theme["ink"], length=0)
            panel.xaxis.label.set_color(theme["ink"])
            for spine in panel.spines.values():
                spine.set_visible(False)
        figure.savefig(path, transparent=True, metadata={"Date": None})


if __name__ == "__main__":
    for theme_name, colors in THEMES.items():
        draw(ROOT / f"docs/assets/credit_truth_{theme_name}.svg", colors)
