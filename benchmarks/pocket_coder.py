"""What the pocket coder writes before it is trained: `python -m benchmarks.pocket_coder`.

On each table that is always here it plays episodes of DataSciCoding with the environment's and POAD's defaults,
sampling freely at temperature 1. Recorded for every table: the share of attempts that run (of first ones, and of those
after a failure), what becomes of the others, the areas under the ROC curve of code that ran, tokens of prompts and
bodies, and the time that an evaluation took. Writes results/pocket_coder.json and results/pocket_coder.png.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from scipy import stats
from stable_baselines3.common.env_util import make_vec_env

from benchmarks.environment import RESULTS, describe_machine
from benchmarks.runner.files import write_bytes
from lang_envs.datascicoding.evaluation import Status
from poad_sb3 import POAD

__all__ = ["TABLES", "Attempt", "attempts_on", "summary_of"]

TABLES = ("balance-scale", "wine", "iris", "breast-cancer", "digits")
_QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
_MAX_NEW_TOKENS = 128


class Attempt(NamedTuple):
    """One body, and what became of it.

    Attributes:
        is_first: Whether nothing was tried before in its episode.
        status: What became of it.
        area: Mean area under the ROC curve over the splits; None if it did not run.
        n_prompt: Tokens of the prompt.
        n_body: Tokens of the body, end token included.
        seconds: Wall time of its evaluation.
        code: The body.
    """

    is_first: bool
    status: Status
    area: float | None
    n_prompt: int
    n_body: int
    seconds: float
    code: str


def attempts_on(table: str, n_attempts: int, *, model: str = "pocket-coder", seed: int = 0) -> Iterator[Attempt]:
    """Attempts of the untrained model in whole episodes, some of them side by side.

    Raises:
        ValueError: If there are to be none.
    """
    if n_attempts < 1:
        raise ValueError(f"Expected at least one attempt; got {n_attempts}. Fix: --attempts 200.")
    yield from itertools.islice(_attempts_on(table, min(8, n_attempts), model, seed), n_attempts)


def _attempts_on(table: str, n_envs: int, model: str, seed: int) -> Iterator[Attempt]:
    """Attempts without end."""
    vector = make_vec_env(f"DataSciCoding-{table}-v0", n_envs)
    kwargs = {"action_sampling": "free", "max_new_tokens": _MAX_NEW_TOKENS, "policy_kwargs": {"model": model}}
    agent = POAD("LLMPolicy", vector, seed=seed, **kwargs)
    env = agent.get_env()
    assert env is not None
    observation, firsts = env.reset(), [True] * n_envs
    try:
        while True:
            steps = agent.policy.act(observation)
            observation, _, dones, infos = env.step(np.stack([step.env_action for step in steps]))
            for step, first, info in zip(steps, firsts, infos, strict=True):
                sizes = len(step.path.prompt), len(step.path.action)
                yield Attempt(first, info["status"], info["auc_mean"], *sizes, info["wall_seconds"], info["code"])
            firsts = dones.tolist()
    finally:
        env.close()


def summary_of(attempts: Sequence[Attempt]) -> dict[str, Any]:
    """Shares with 95% intervals (Wilson), outcomes, and quantiles."""
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
    found = stats.binomtest(sum(attempt.area is not None for attempt in attempts), len(attempts))
    low, high = found.proportion_ci(method="wilson")
    return {"n": len(attempts), "share": round(found.statistic, 4), "interval": [round(low, 4), round(high, 4)]}


def _quantiles(numbers: Sequence[float], digits: int) -> list[float]:
    return [round(float(one), digits) for one in np.quantile(numbers, _QUANTILES)] if numbers else []


def plot(found: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """A histogram of the areas of running code for each table."""
    figure, panels = plt.subplots(1, len(found), figsize=(2.6 * len(found), 2.8), dpi=120, sharey=True, squeeze=False)
    for axes, (name, one) in zip(panels[0], found.items(), strict=True):
        axes.hist(one["areas"], bins=np.linspace(0.2, 1, 33), color="#2f6f8f")
        axes.set(title=f"{name}: {one['running']['share']:.0%} run", xlabel="ROC AUC of code that ran")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0][0].set_ylabel("attempts")
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def _table(found: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table("table", "attempts", "run", "first", "after failure", "AUC 5 %", "50 %", "95 %", "tokens", box=None)
    for name, one in found.items():
        shares = [one[key]["share"] for key in ("running", "running_first", "running_after_failure")]
        areas = [f"{one['area'][place]:.3f}" for place in (1, 3, 5)] if one["area"] else ["-"] * 3
        said = ["-" if share is None else f"{share:.1%}" for share in shares]
        table.add_row(name, str(one["running"]["n"]), *said, *areas, f"{one['body_tokens'][3]:.0f}")
    return table


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="What the pocket coder writes before it is trained.")
    parser.add_argument("--attempts", type=int, default=200, help="on each table")
    parser.add_argument("--model", default="pocket-coder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    options = parser.parse_args()
    torch.set_num_threads(1)
    started = time.perf_counter()
    found = {
        table: summary_of(list(attempts_on(table, options.attempts, model=options.model, seed=options.seed)))
        for table in TABLES
    }
    Console(width=120).print(_table(found))
    settings = {"max_new_tokens": _MAX_NEW_TOKENS, "temperature": 1.0, "model": options.model, "seed": options.seed}
    seconds = round(time.perf_counter() - started, 1)
    result = {**describe_machine(), "settings": settings, "seconds": seconds, "tables": found}
    write_bytes(options.out / "pocket_coder.json", (json.dumps(result, indent=1) + "\n").encode())
    plot(found, options.out / "pocket_coder.png")


if __name__ == "__main__":
    main()
