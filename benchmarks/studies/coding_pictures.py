"""Pictures of the `datasci` study."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.runner.plots import PALETTE, style
from benchmarks.studies.coding_findings import MEASURES, Floats, TableFindings, areas_of, best_so_far, interval_of

__all__ = ["coding_figure"]

_PARTS = 16
"""Stretches of attempts that a point stands for."""
_ROWS = {"reward": "mean reward", "share": "share that runs", "area": "AUC of code that runs"}


def coding_figure(found: Sequence[TableFindings]) -> Figure:
    """A column for each table: reward, share and AUC of what runs along the attempts, and the best code so far."""
    with style():
        figure = Figure(figsize=(1.4 + 2.9 * len(found), 8.4), layout="constrained")
        grid = figure.subplots(len(_ROWS) + 1, len(found), squeeze=False, sharex="col")
        for column, one in enumerate(found):
            for row, name in enumerate(_ROWS):
                _along(grid[row, column], one, name)
            _best(grid[-1, column], one)
            grid[0, column].set_title(one.table)
            grid[-1, column].set_xlabel("attempts (evaluations)")
        for row, told in enumerate((*_ROWS.values(), "AUC of the best so far")):
            grid[row, 0].set_ylabel(told)
        handles, labels = grid[-1, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=max(1, len(labels)))
    return figure


def _shown(one: TableFindings) -> list[tuple[str, str, list[Floats]]]:
    """Methods that were run: name, colour, AUCs by seed."""
    return [
        (method, PALETTE[number], [areas_of(piece["areas"]) for piece in runs.values()])
        for number, (method, runs) in enumerate(one.runs.items())
        if runs
    ]


def _along(axes: Axes, one: TableFindings, name: str) -> None:
    for _, color, runs in _shown(one):
        edges = np.linspace(0, min(map(len, runs)), min(_PARTS, min(map(len, runs))) + 1).astype(int)
        parts = list(pairwise(edges))
        found = [interval_of(MEASURES[name], [run[begin:end] for run in runs]) for begin, end in parts]
        ends = [end for _, end in parts]
        axes.plot(ends, [part.value for part in found], color=color)
        low, high = (np.array([getattr(part, side) for part in found], dtype=np.float64) for side in ("low", "high"))
        axes.fill_between(ends, low, high, color=color, alpha=0.15, linewidth=0)


def _best(axes: Axes, one: TableFindings) -> None:
    for method, color, runs in _shown(one):
        curves = [best_so_far([None if np.isnan(area) else area for area in run]) for run in runs]
        for number, curve in enumerate(curves):
            steps = np.arange(1, len(curve) + 1)
            axes.plot(steps, curve, color=color, linewidth=1.2, alpha=0.8, label=None if number else method)
