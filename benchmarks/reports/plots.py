"""Pictures of reports: scores by task, learning curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from benchmarks.runner.results import METRICS, Cell, references_of
from lang_envs.report.statistics import Curve, Estimate, estimate, mean
from lang_envs.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes


PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
"""Colours that colour-blind readers can distinguish (Okabe and Ito)."""
_METHODS = ("POAD", "NTPO", "action level", "TWOSOME")
"""Methods of most studies: each keeps its colour in all pictures."""
_WITH_SEEDS = 3
"""Maximum number of curves in a picture with individual seeds."""
_METRICS = ("discounted_return", "success", "steps", "invalid_rate")
_STYLE: dict[str, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "figure.facecolor": "white",
}
_MARKERS = "osD^vP*X"


@contextmanager
def style() -> Iterator[None]:
    """Use the common style for the pictures made inside, and restore the settings after."""
    with rc_context(_STYLE):  # type: ignore[arg-type]  # names as literals
        yield


@style()
def plot_scores(cells: Sequence[Cell]) -> Figure:
    """Plot means with intervals: a line for each task, a panel for each metric, a colour for each agent."""
    tasks = list(dict.fromkeys(cell.task for cell in cells))
    agents = list(dict.fromkeys(cell.agent for cell in cells))
    height = 1.1 + len(tasks) * max(0.32, 0.13 * len(agents) + 0.1)
    figure = Figure(figsize=(11, height), layout="constrained")
    panels = figure.subplots(1, len(_METRICS), sharey=True, squeeze=False)[0]
    for axes, name in zip(panels, _METRICS, strict=True):
        _score_panel(axes, name, cells, tasks, agents)
    panels[0].set_yticks(range(len(tasks)), [plain_label(task.replace("-v0", "")) for task in tasks])
    panels[0].set_ylim(len(tasks) - 0.5, -0.5)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(len(agents) + 1, 5))
    return figure


def plain_label(name: str, most: int = 60) -> str:
    """Escape a name for Matplotlib: it reads formulas between dollars, and hides names that begin with "_"."""
    short = printable(" ".join(name.split()))
    short = short if len(short) <= most else f"{short[: most - 1]}\u2026"
    return ("\u200b" if short.startswith("_") else "") + short.replace("$", r"\$")


def _score_panel(axes: Axes, name: str, cells: Sequence[Cell], tasks: Sequence[str], agents: Sequence[str]) -> None:
    metric = METRICS[name]
    factor = 100.0 if metric.is_rate else 1.0
    for number, agent in enumerate(agents):
        chosen = [cell for cell in cells if cell.agent == agent and len(cell.scores(name))]
        estimates = [estimate([cell.scores(name)], mean) for cell in chosen]
        offset = (number - (len(agents) - 1) / 2) * min(0.2, 0.7 / len(agents))
        rows = [tasks.index(cell.task) + offset for cell in chosen]
        _mark_estimates(axes, estimates, rows, factor, number, plain_label(agent))
    if name == "discounted_return":
        _mark_references(axes, tasks)
    axes.set_xlabel(f"{metric.title}{', %' if metric.is_rate else ''}")
    if metric.is_rate:
        axes.set_xlim(-4, 104)
    axes.tick_params(axis="y", length=0)


def _mark_estimates(
    axes: Axes, estimates: Sequence[Estimate], rows: Sequence[float], factor: float, number: int, label: str | None
) -> None:
    """Draw points with their intervals.

    A percentile interval need not contain its point, so it is drawn as a line of its own.
    """
    color = PALETTE[number % len(PALETTE)]
    marker = _MARKERS[number % len(_MARKERS)]
    values = [factor * interval.value for interval in estimates]
    axes.plot(values, rows, marker, color=color, markersize=4.5, label=label)
    for row, interval in zip(rows, estimates, strict=True):
        if interval.low is not None and interval.high is not None:
            axes.plot(
                [factor * interval.low, factor * interval.high],
                [row, row],
                "|-",
                color=color,
                markersize=5,
                linewidth=1.4,
            )


def _mark_references(axes: Axes, tasks: Sequence[str]) -> None:
    """Draw a grey bar from random to optimal play, where both are known."""
    label: str | None = "random to optimal"
    for row, task in enumerate(tasks):  # with other arguments than registered a task has no references
        references = references_of(task)
        if references is not None:
            width = references.oracle - references.random
            axes.barh(row, width, left=references.random, height=0.8, color="0.92", zorder=0, label=label)
            label = None


@style()
def plot_curves(
    curves: Mapping[str, Curve],
    *,
    title: str,
    ylabel: str,
    references: Mapping[str, float] | None = None,
) -> Figure:
    """Plot learning curves with intervals.

    Args:
        curves: Curves by name, from `learning_curve`.
        title: Title above the picture.
        ylabel: Label of the measured quantity.
        references: Levels to compare with, by name.
    """
    figure = Figure(figsize=(7, 4.3), layout="constrained")
    axes = figure.subplots()
    draw_curves(axes, curves, references=references)
    axes.set(xlabel="environment steps (actions)", ylabel=ylabel, title=title)
    axes.legend(loc="best", fontsize=8)
    return figure


def color_places(names: Sequence[str]) -> dict[str, int]:
    """Return places in the palette, counted on where it ends: of methods in most studies the same in all pictures."""
    places = {name: index for index, name in enumerate(_METHODS) if name in names}
    free = (index for index in count() if index not in places.values())
    return {name: places[name] if name in places else next(free) for name in names}


def draw_curves(
    axes: Axes,
    curves: Mapping[str, Curve],
    *,
    references: Mapping[str, float] | None = None,
    names: Sequence[str] | None = None,
) -> None:
    """Draw learning curves with intervals into axes; see `plot_curves`. Colours go by `names`, if given.

    The seeds of up to three curves are drawn too, thin. Where there are more curves than colours, the rest are dashed
    and without intervals.
    """
    places = color_places(names or list(curves))
    for name, curve in curves.items():
        is_repeated, number = divmod(places[name], len(PALETTE))
        color, n_seeds = PALETTE[number], len(curve.by_seed)
        label = f"{plain_label(name)} ({n_seeds} seed{'' if n_seeds == 1 else 's'})"
        axes.plot(curve.steps, curve.values, "--" if is_repeated else "-", color=color, linewidth=2, label=label)
        if not is_repeated:
            axes.fill_between(curve.steps, curve.low, curve.high, color=color, alpha=0.18, linewidth=0)
        for row in curve.by_seed if n_seeds > 1 and len(curves) <= _WITH_SEEDS else ():
            axes.plot(curve.steps, row, color=color, linewidth=0.6, alpha=0.45)
    for (name, level), line in zip((references or {}).items(), ("--", ":", "-."), strict=False):
        axes.axhline(level, color="0.35", linestyle=line, linewidth=1.2, label=f"{plain_label(name)} ({level:.2f})")
