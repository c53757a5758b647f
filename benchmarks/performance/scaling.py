"""How the cost of an environment step grows.

One thing is changed at a time, on the task and the model of `synthetic`: tokens of the prompt,
environments, candidates, and for the memory of the rollout buffer the tokens of written actions. Each point is the
median processor time of rollout and update (one epoch) of 32 environment steps (64 where environments are counted), by
one thread. A growth exponent is the slope of a straight line through all points of a log-log plot: 1 is linear.

Writes scaling.json and scaling.png.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from statistics import median
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, StrMethodFormatter

from benchmarks.performance.our_loop import SETTINGS, OurLoop
from benchmarks.performance.synthetic import TaskSizes
from benchmarks.performance.timing import milliseconds
from benchmarks.reports.plots import style
from benchmarks.runner.files import write_picture, write_result
from benchmarks.runner.machine import RESULTS
from benchmarks.runner.options import one_of


class Study(NamedTuple):
    """One thing that is changed.

    Attributes:
        label: Label of the axis.
        workload: Key of `our_loop.SETTINGS`.
        values: Values of the varied quantity.
        sizes: Sizes of the task at a value.
        n_envs: Number of environments at a value.
        n_samples: Environment steps of a rollout.
    """

    label: str
    workload: str
    values: tuple[int, ...]
    sizes: Callable[[int], TaskSizes] = lambda _: TaskSizes()
    n_envs: Callable[[int], int] = lambda _: 4
    n_samples: int = 32


STUDIES = {
    "prompt": Study("tokens of the prompt", "poad", (64, 128, 256, 512, 1024), lambda n: TaskSizes(prompt=(n, n))),
    "written": Study(
        "tokens of a written action",
        "code",
        (16, 32, 64, 128, 256),
        lambda n: TaskSizes(candidates=None, action=(n, n)),
    ),
    "envs": Study("environments", "poad", (1, 2, 4, 8, 16, 32, 64), n_envs=lambda n: n, n_samples=64),
    "candidates": Study("candidates (POAD)", "poad", (4, 8, 16, 32, 64), lambda n: TaskSizes(candidates=(n, n))),
    "candidates_twosome": Study(
        "candidates (TWOSOME)", "twosome", (4, 8, 16, 32, 64), lambda n: TaskSizes(candidates=(n, n))
    ),
}


class Point(NamedTuple):
    """The cost of one value.

    Attributes:
        value: Value of the varied quantity.
        ms: Milliseconds per environment step.
        tokens: Action tokens in the rollout buffer.
        buffer_bytes: Bytes of the buffer: prompts and actions, credit, features.
    """

    value: int
    ms: float
    tokens: int
    buffer_bytes: int


def measure(study: Study, value: int, runs: int) -> Point:
    """Return the medians of some rollouts with their updates, after one that warms up."""
    n_envs = study.n_envs(value)
    setting = SETTINGS[study.workload]._replace(
        sizes=study.sizes(value), n_steps=study.n_samples // n_envs, batch_size=16, n_epochs=1
    )
    longest = setting.sizes.action[1]
    changes: dict[str, Any] = {"max_new_tokens": longest} if setting.workload.generates else {}
    loop = OurLoop(setting, n_envs=n_envs, **changes)

    def turn() -> None:
        loop.rollout()
        loop.update()

    times = [milliseconds(turn) / study.n_samples for _ in range(runs + 1)]
    state = loop.model.rollout_buffer.get_state()
    return Point(value, round(median(times[1:]), 2), len(state["old_log_prob"]), len(pickle.dumps(state)))


def exponent(points: list[Point], of: Callable[[Point], tuple[float, float]]) -> float:
    """Return the slope of the logarithms."""
    xs, ys = np.log([of(point) for point in points]).T
    return float(np.polyfit(xs, ys, 1)[0])


@style()
def draw(studies: dict[str, dict[str, Any]]) -> Figure:
    """Draw a panel for each study, and one for the memory of the buffer."""
    figure = Figure(figsize=(13, 7.5), layout="constrained")
    axes = figure.subplots(2, 3)
    for axis, (name, study) in zip(axes.flat, STUDIES.items(), strict=False):
        points = studies[name]["points"]
        _panel(axis, [point["value"] for point in points], [point["ms"] for point in points], "ms per environment step")
        axis.set(xlabel=study.label, title=f"time grows as n^{studies[name]['exponent']:.2f}")
    points = studies["written"]["points"]
    _panel(
        axes.flat[-1], [point["tokens"] for point in points], [point["buffer_bytes"] / 2**20 for point in points], "MiB"
    )
    title = f"buffer grows as n^{studies['written']['buffer_exponent']:.2f}"
    axes.flat[-1].set(xlabel="action tokens in the rollout", title=title)
    figure.suptitle("Cost of an environment step: rollout and update of one epoch, 5.8 M weights, one thread")
    return figure


def _panel(axis: Axes, xs: list[int], ys: list[float], label: str) -> None:
    axis.plot(xs, ys, "o-", color="#2a6f97", label="measured")
    axis.plot(xs, [ys[0] * x / xs[0] for x in xs], "--", color="#999999", label="linear")
    axis.set(xscale="log", yscale="log", ylabel=label)
    axis.set_xticks(xs, [f"{x:,}" for x in xs])
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axis.minorticks_off()
    axis.legend()


def measured(name: str, runs: int) -> dict[str, Any]:
    """Run a whole study."""
    study, points = STUDIES[name], []
    for value in study.values:
        points.append(measure(study, value, runs))
        print(f"{study.label} {value}: {points[-1].ms} ms", flush=True)
    figures = {
        "exponent": round(exponent(points, lambda point: (point.value, point.ms)), 3),
        "points": [point._asdict() for point in points],
    }
    if name == "written":
        figures["buffer_exponent"] = round(exponent(points, lambda point: (point.tokens, point.buffer_bytes)), 3)
    return figures


def scaling(
    runs: int = 3,
    study: Annotated[list[str] | None, one_of(STUDIES, "Measure only this again; repeatable.")] = None,
) -> None:
    """Measure how the cost of an environment step grows."""
    torch.set_num_threads(1)
    path = RESULTS / "scaling.json"
    studies = json.loads(path.read_text(encoding="utf-8"))["studies"] if path.exists() else {}
    for name in study or STUDIES:
        studies[name] = measured(name, runs)
        write_result("scaling", {"studies": {key: studies[key] for key in STUDIES if key in studies}})
    if studies.keys() >= STUDIES.keys():
        write_picture(RESULTS / "scaling.png", draw(studies))
