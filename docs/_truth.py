"""`credit-truth`: tables of its page, and its picture for the README.

`python docs/_truth.py` writes docs/assets/credit_truth_light.svg and docs/assets/credit_truth_dark.svg.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from _tables import ROOT, code, machine, records, result, table

from benchmarks.studies.engine.html_report import study_tables

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


def _of_tasks(name: str, policy: str = "ascended", gamma: float = 0.95) -> list[Row | None]:
    return [_row(_case(task, policy, gamma=gamma), name) for task in TASKS]


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


def _shown(rows: Iterable[Row | None], *fields: str) -> list[str]:
    """Format fields of an estimator, a cell for each task; "-" where undefined."""
    cells = []
    for row in rows:
        values = [getattr(row, field) for field in fields] if row is not None else []
        cells.append(", ".join("-" if value is None else f"{round(value, 9):.3g}" for value in values))
    return cells


def credit_truth_summary() -> str:
    """Show the verdict of every estimator, with direction and noise on each task."""
    found = {key: _of_tasks(key) for key in ROWS}
    rows = [
        (_title(key), _verdict([one for one in of_key if one is not None]), *_shown(of_key, "cosine", "nsr"))
        for key, of_key in found.items()
        if any(of_key)
    ]
    about = "Cosine to the true gradient and noise to signal (lower is better); tabular, ascended policy, gamma 0.95."
    picture = "![Direction and noise of the estimators](../assets/studies/credit-truth.png)"
    return f"{picture}\n\n{about}\n\n{table(('estimator', 'on average', *TASKS.values()), rows)}"


def credit_truth_critics() -> str:
    """Show bias and noise with worse critics."""
    kinds = ("exact", "flat", "fitted prefixes", "fitted observations")
    rows = [(name, one, *_shown(_of_tasks(f"{name} | {one}"), "bias", "nsr")) for name in CRITICS for one in kinds]
    return table(("estimator", "critic", *TASKS.values()), rows)


def credit_truth_gammas() -> str:
    """Show NTPO and ARCHER by gamma."""
    rows = []
    for name in ("NTPO, lambda_token 1", "NTPO, lambda_token 0.95", "ARCHER"):
        for gamma in (0.9, 0.95, 0.99, 1.0):
            cells = _shown(_of_tasks(f"{name} | exact", gamma=gamma), "scale", "cosine")
            rows.append((name, f"{gamma:g}", *cells))
    return table(("estimator", "gamma", *TASKS.values()), rows)


def credit_truth_pocket() -> str:
    """Show the LoRA matrices of the pocket model."""
    tasks = (*list(TASKS)[:-1], "multikey 1 2 2 4")
    cases = [_case(task, "ascended", "pocket") or _case(task, "start", "pocket") for task in tasks]
    rows = [(_title(key), *_shown([_row(case, key) for case in cases], "cosine", "nsr")) for key in ROWS]
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
    cases = [
        {**one, "error": max(float(line.split()[-1]) for line in one["rows"].values())}
        for one in result("studies/credit-truth")["cases"]
        if one["gamma"] == 0.95 and (one["episodes_sampled"] or one["parameters"] == "pocket")
    ]
    columns: dict[str, str | Callable[[Any], str]] = {
        **{name: f"{{{name}}}" for name in ("task", "parameters", "policy")},
        "success": "{success:.3f}",
        "decisions": "{decisions:.1f}",
        "tokens": "{tokens_per_action:.1f}",
        "dimensions": "{dimensions}",
        "cos(run, disc)": "{cosine_run_disc:.3f}",
        "cos(run, one)": "{cosine_run_one:.3f}",
        "episodes": "{episodes_sampled:,}",
        "largest standard error": lambda one: f"{one['error']:.3f}" if one["episodes_sampled"] else "",
    }
    return records(cases, columns)


def credit_truth_predictions() -> str:
    """Show the predictions with command, machine and commit of the run."""
    content = result("studies/credit-truth")
    (found,) = study_tables(content)
    where, commits = machine(content["measured_with"][0]), ", ".join(content["commits"])
    made = f"Made by {code(content['command'])} on {where}; commit {commits}."
    return f"{table(found.head, found.rows)}\n\n{found.remark}\n\n{made}"


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
