"""Picture of the README: direction and noise of estimators of credit, from `credit-truth`.

`python docs/_truth.py` writes docs/assets/credit_truth_light.svg and docs/assets/credit_truth_dark.svg.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import median

import matplotlib as mpl
from _tables import ROOT, result
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from benchmarks.studies.credit_truth.tables import on_tasks, verdict_on

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
    settings = {"svg.hashsalt": "credit-truth", "svg.fonttype": "path", "font.family": "DejaVu Sans", "font.size": 10}
    with mpl.rc_context(settings):
        figure = Figure((9.5, 4.4), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        for place, key in enumerate(PICTURE):
            rows = [one for one in on_tasks(result("studies/credit-truth"), key) if one is not None]
            verdict = verdict_on(rows)
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
