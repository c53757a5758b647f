"""The code that the pocket coder writes before it is trained.

On each table that is always here it plays episodes of DataSciCoding with the environment's and POAD's defaults,
sampling freely at temperature 1. Recorded for every table: the share of attempts that run (of first ones, and of those
after a failure), the outcomes of the rest, the areas under the ROC curve of code that ran, tokens of prompts and
bodies, and the time that an evaluation took. Writes pocket_coder.json and pocket_coder.png.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
import typer
from matplotlib.figure import Figure
from stable_baselines3.common.env_util import make_vec_env

from benchmarks.reports.plots import style
from benchmarks.reports.tables import show_records
from benchmarks.runner.files import write_picture, write_result
from benchmarks.runner.machine import RESULTS
from lang_envs.envs.datascicoding.evaluation import Status
from lang_envs.report.statistics import wilson_interval
from poad_sb3 import POAD

TABLES = ("balance-scale", "wine", "iris", "breast-cancer", "digits")
_QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
_MAX_NEW_TOKENS = 128


class Attempt(NamedTuple):
    """One body and its outcome.

    Attributes:
        is_first: Whether it is the first attempt of its episode.
        status: Outcome of the attempt.
        area: Mean area under the ROC curve over the splits; None if the code did not run.
        n_prompt: Number of tokens of the prompt.
        n_body: Number of tokens of the body, end token included.
        seconds: Wall time of the evaluation.
        code: Code of the body.
    """

    is_first: bool
    status: Status
    area: float | None
    n_prompt: int
    n_body: int
    seconds: float
    code: str


def attempts_on(table: str, n_attempts: int, *, model: str = "pocket-coder", seed: int = 0) -> Iterator[Attempt]:
    """Play whole episodes of the untrained model, some of them side by side."""
    n_envs = min(8, n_attempts)
    vector = make_vec_env(f"DataSciCoding-{table}-v0", n_envs)
    kwargs = {"action_sampling": "free", "max_new_tokens": _MAX_NEW_TOKENS, "policy_kwargs": {"model": model}}
    agent = POAD("LLMPolicy", vector, seed=seed, **kwargs)
    env = agent.get_env()
    assert env is not None
    observation, firsts, n_made = env.reset(), [True] * n_envs, 0
    while n_made < n_attempts:
        steps = agent.policy.act(observation)
        observation, _, dones, infos = env.step(np.stack([step.env_action for step in steps]))
        for step, first, info in list(zip(steps, firsts, infos, strict=True))[: n_attempts - n_made]:
            sizes = len(step.path.prompt), len(step.path.action)
            yield Attempt(first, info["status"], info["auc_mean"], *sizes, info["wall_seconds"], info["code"])
        firsts, n_made = dones.tolist(), n_made + n_envs
    env.close()


def summary_of(attempts: Sequence[Attempt]) -> dict[str, Any]:
    """Summarize attempts: shares with 95% intervals (Wilson), outcomes, and quantiles."""
    running = [attempt for attempt in attempts if attempt.area is not None]
    outcomes = Counter(str(attempt.status) for attempt in attempts)
    return {
        "running": _share(attempts),
        "running_first": _share([attempt for attempt in attempts if attempt.is_first]),
        "running_after_failure": _share([attempt for attempt in attempts if not attempt.is_first]),
        "outcomes": {name: round(count / len(attempts), 4) for name, count in outcomes.most_common()},
        "distinct_codes": len({attempt.code for attempt in attempts}) / len(attempts),
        "mean_area": float(np.mean([attempt.area for attempt in running])) if running else None,
        "quantiles": list(_QUANTILES),
        "area": _quantiles([attempt.area for attempt in running if attempt.area is not None], 4),
        "body_tokens": _quantiles([attempt.n_body for attempt in attempts], 0),
        "prompt_tokens": _quantiles([attempt.n_prompt for attempt in attempts], 0),
        "seconds_of_running": _quantiles([attempt.seconds for attempt in running], 3),
        "areas": [round(attempt.area, 4) for attempt in running if attempt.area is not None],
    }


def _share(attempts: Sequence[Attempt]) -> dict[str, Any]:
    if not attempts:
        return {"n": 0, "share": None, "interval": None}
    n_running, n = sum(attempt.area is not None for attempt in attempts), len(attempts)
    interval = [round(end, 4) for end in wilson_interval(n_running, n)]
    return {"n": n, "share": round(n_running / n, 4), "interval": interval}


def _quantiles(numbers: Sequence[float], digits: int) -> list[float]:
    return [round(float(quantile), digits) for quantile in np.quantile(numbers, _QUANTILES)] if numbers else []


@style()
def draw(tables: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Draw a histogram of the areas of running code for each table."""
    figure = Figure(figsize=(2.6 * len(tables), 2.8), layout="constrained")
    panels = figure.subplots(1, len(tables), sharey=True, squeeze=False)[0]
    for axes, (name, table) in zip(panels, tables.items(), strict=True):
        axes.hist(table["areas"], bins=np.linspace(0.2, 1, 33), color="#2f6f8f")
        axes.set(title=f"{name}: {table['running']['share']:.0%} run", xlabel="ROC AUC of code that ran")
    panels[0].set_ylabel("attempts")
    return figure


def pocket_coder(
    attempts: Annotated[int, typer.Option(min=1, help="On each table.")] = 200,
    model: str = "pocket-coder",
    seed: int = 0,
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = RESULTS,
) -> None:
    """Let the untrained pocket coder write code for the tables that are always here."""
    torch.set_num_threads(1)
    started = time.perf_counter()
    tables = {table: summary_of(list(attempts_on(table, attempts, model=model, seed=seed))) for table in TABLES}
    rows = {
        name: table
        | {f"{key} share": table[key]["share"] for key in ("running", "running_first", "running_after_failure")}
        for name, table in tables.items()
    }
    shares = ("running share", "running_first share", "running_after_failure share")
    show_records("table", rows, (*shares, "mean_area", "distinct_codes"))
    settings = {"max_new_tokens": _MAX_NEW_TOKENS, "temperature": 1.0, "model": model, "seed": seed}
    seconds = round(time.perf_counter() - started, 1)
    write_result("pocket_coder", {"settings": settings, "seconds": seconds, "tables": tables}, out)
    write_picture(out / "pocket_coder.png", draw(tables))
