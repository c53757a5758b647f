"""Pictures of learning curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from lang_envs.report.statistics import Curve
from lang_envs.text import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes


PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
"""Colours that colour-blind readers can distinguish (Okabe and Ito)."""
_METHODS = ("POAD", "NTPO", "action level", "TWOSOME")
"""Methods of most studies: each keeps its colour in all pictures."""
_WITH_SEEDS = 3
"""Maximum number of curves in a picture with individual seeds."""
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


@contextmanager
def style() -> Iterator[None]:
    """Use the common style for the pictures made inside, and restore the settings after."""
    with rc_context(_STYLE):  # type: ignore[arg-type]  # names as literals
        yield


def plain_label(name: str, most: int = 60) -> str:
    """Escape a name for Matplotlib: it reads formulas between dollars, and hides names that begin with "_"."""
    short = one_line(name)
    short = short if len(short) <= most else f"{short[: most - 1]}\u2026"
    return ("\u200b" if short.startswith("_") else "") + short.replace("$", r"\$")


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
