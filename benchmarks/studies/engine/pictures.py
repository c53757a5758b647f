"""Pictures of studies: learning curves, attempts at code."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from benchmarks.reports.plots import PALETTE, color_places, draw_curves, style
from benchmarks.studies.engine.coding_findings import MEASURES, TableFindings, areas_of, interval_of
from benchmarks.studies.engine.findings import Findings
from lang_envs.datasets.generated import NAME as GENERATED
from lang_envs.report.statistics import Floats
from poad_sb3.common.episode_lines import discount_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LETTER, _HANDLE = 5.2, 36.0  # width in points of the legend's letters, and of a line with its gaps


def panels(
    n: int, columns: int, width: float, height: float, margin: float = 0.0, **options: Any
) -> tuple[Figure, NDArray[Any]]:
    """Return a figure and its grid of `n` panels, `[rows, columns]`; the rest of the grid is empty."""
    columns = min(columns, n)
    rows = -(-n // columns)
    figure = Figure(figsize=(1 + width * columns, margin + height * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, **options)
    for axes in grid.flat[n:]:
        axes.set_visible(False)
    return figure, grid


@style()
def curves_figure(findings: Sequence[Findings], title: str, drawn: Sequence[str] = ()) -> Figure:
    """Draw learning curves: a panel for each task that has runs, and in it the `drawn` methods, or all."""
    shown = [finding for finding in findings if finding.methods]
    names = drawn or list(dict.fromkeys(arm.name for finding in findings for arm in finding.comparison.arms))
    figure, grid = panels(len(shown), 2, 4.6, 3.3, 0.9)
    figure.suptitle(textwrap.fill(title, 62 * grid.shape[1]), fontsize=11)
    for axes, finding in zip(grid.flat, shown, strict=False):
        _curves_panel(axes, finding, names)
    _legend(figure, grid)
    return figure


def _curves_panel(axes: Axes, findings: Findings, names: Sequence[str]) -> None:
    task, discount = findings.comparison.task, discount_of(findings.comparison.task.env_id)
    curves = {name: findings.methods[name].curve for name in names if name in findings.methods}
    lines = {} if findings.facts is None else {name: findings.facts[name] for name in ("oracle", "random")}
    begins = {float(curve.values[0]) for curve in curves.values()}
    if len(begins) == 1:  # methods with policies of their own begin at levels of their own
        lines["untrained" if findings.comparison.task.cloning is None else "base"] = begins.pop()
    draw_curves(axes, curves, references=lines, names=names)
    seeds = [len(curve.by_seed) for curve in curves.values()]
    seeds_text = f"{max(seeds)} seed{'' if max(seeds) == 1 else 's'}"
    axes.set(
        title=f"{task.name}, {seeds_text if min(seeds) == max(seeds) else f'{min(seeds)} to {seeds_text}'}",
        xlabel="environment steps (actions)",
        ylabel="return" if discount == 1 else f"return, discounted {discount:g} per move",
    )


def _legend(figure: Figure, grid: NDArray[Any]) -> None:
    """Draw one legend for all panels, as a method has the same colour in all.

    Numbers of seeds and levels differ between panels, and are left out.
    """
    handles: dict[str, Any] = {}
    for axes in grid.flat:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label.rpartition(" (")[0], handle)
    lines = ("oracle", "random", "untrained", "base")
    names = [name for name in handles if name not in lines] + [name for name in lines if name in handles]
    ncols = max(1, int(72 * figure.get_figwidth() / (_LETTER * max(map(len, names)) + _HANDLE)))
    figure.legend([handles[name] for name in names], names, loc="outside lower center", ncols=ncols)


# ---------------------------------------------------------------------- code

_PARTS = 16
"""Number of parts that attempts are divided into, each a point of a curve."""
_ROWS = {"reward": "mean reward", "share": "share that runs", "area": "AUC of code that runs"}


@style()
def coding_figure(findings: Sequence[TableFindings]) -> Figure:
    """Draw a column for each table: reward, share and AUC of running code by attempt, and the best code so far."""
    n_rows = len(_ROWS) + any(finding.table != GENERATED for finding in findings)
    figure = Figure(figsize=(1.4 + 2.9 * len(findings), 2.1 * n_rows), layout="constrained")
    grid = figure.subplots(n_rows, len(findings), squeeze=False, sharex="col")
    handles: dict[str, Any] = {}
    for column, finding in enumerate(findings):
        panels = list(grid[:, column])
        for axes, (name, label) in zip(panels, _ROWS.items(), strict=False):
            _along(axes, finding, name)
            axes.set_ylabel("" if column else label)
        if finding.table != GENERATED:
            _best(panels[-1], finding)
            panels[-1].set_ylabel("AUC of the best so far")
        elif n_rows > len(_ROWS):  # another table in every episode: no code is the best one
            panels.pop().set_visible(False)
        panels[0].set_title(finding.table)
        panels[-1].set_xlabel("attempts (evaluations)")
        panels[-1].tick_params(labelbottom=True)
        handles |= dict(zip(*reversed(panels[0].get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=max(1, len(handles)))
    return figure


def _shown(finding: TableFindings) -> list[tuple[str, str, list[Floats]]]:
    """Return name, colour and AUCs by seed of the methods that were run."""
    places = color_places(list(finding.runs))
    return [
        (method, PALETTE[places[method]], [areas_of(piece["areas"]) for piece in runs.values()])
        for method, runs in finding.runs.items()
        if runs
    ]


def _along(axes: Axes, finding: TableFindings, name: str) -> None:
    for method, color, runs in _shown(finding):
        edges = np.linspace(0, min(map(len, runs)), min(_PARTS, min(map(len, runs))) + 1).astype(int)
        parts = list(pairwise(edges))
        intervals = [interval_of(MEASURES[name], [run[begin:end] for run in runs]) for begin, end in parts]
        ends = [end for _, end in parts]
        axes.plot(ends, [part.value for part in intervals], color=color, label=method)
        low, high = (
            np.array([getattr(part, side) for part in intervals], dtype=np.float64) for side in ("low", "high")
        )
        axes.fill_between(ends, low, high, color=color, alpha=0.15, linewidth=0)


def _best(axes: Axes, finding: TableFindings) -> None:
    for _, color, runs in _shown(finding):
        for curve in map(np.fmax.accumulate, runs):  # NaN before any code has run
            axes.plot(np.arange(1, len(curve) + 1), curve, color=color, linewidth=1.2, alpha=0.8)
