"""Cost of the sandbox.

One evaluation of GaussianNB (5 splits of a table of the size of pharyngitis, 512 rows x 18 features), three ways in
turns: in this process, in the sandbox, and in a fresh interpreter as most harnesses do it. Prints medians and writes
sandbox_latency.json.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.files import write_result
from benchmarks.performance.timing import in_turns, milliseconds
from benchmarks.reports.tables import show_table
from lang_envs.datasets import Dataset
from lang_envs.envs.datascicoding.evaluation import Evaluator
from lang_envs.sandbox.client import Sandbox

CODE = "from sklearn.naive_bayes import GaussianNB\nmodel = GaussianNB().fit(x_train, y_train)"
SPLITS = range(5)

_FRESH = """
import sys; sys.path[:0] = {path!r}
from benchmarks.performance.sandbox_latency import in_process, table
print(in_process(table()))
"""


def table() -> Dataset:
    """Return a table of the size of pharyngitis, drawn from a fixed generator."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(512, 18))
    y = (x[:, 0] + rng.normal(size=512) > 0).astype(np.int64)
    return Dataset(name="drawn", title="a drawn table", about="Drawn.", x=x, y=y, published=True, source="drawn")


def in_process(dataset: Dataset) -> float:
    """Return the harness one would write without a sandbox: mean AUC."""
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import train_test_split

    areas = []
    for state in SPLITS:
        x_train, x_test, y_train, y_test = train_test_split(
            dataset.x, dataset.y, test_size=0.5, random_state=state, shuffle=True
        )
        module: dict[str, object] = {"x_train": x_train, "y_train": y_train}
        exec(CODE, module)  # noqa: S102 - the code above
        areas.append(roc_auc_score(y_test, module["model"].predict_proba(x_test)[:, 1]))  # type: ignore[attr-defined]
    return float(np.mean(areas))


def _fresh_interpreter() -> None:
    code = _FRESH.format(path=[str(Path(__file__).parents[2])])
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, env=env)


def latency(n_repeats: int) -> dict[str, float]:
    """Return the median milliseconds of each way; the ways take turns, so that other load affects them alike."""
    dataset, sandbox = table(), Sandbox()
    evaluator = Evaluator(dataset, SPLITS, sandbox=sandbox)
    wanted, got = in_process(dataset), evaluator(CODE).score
    if got != wanted:
        raise RuntimeError(f"Expected the same score in the sandbox; got {got} instead of {wanted}.")
    ways = {
        "in process": partial(in_process, dataset),
        "sandbox": partial(evaluator, CODE),
        "fresh interpreter": _fresh_interpreter,
    }
    works = {way: partial(milliseconds, work, time.perf_counter) for way, work in ways.items()}
    times = in_turns(works, n_repeats)
    sandbox.close()
    return {way: statistics.median(each) for way, each in times.items()}


def sandbox_latency(repeats: int = 20) -> None:
    """Measure one evaluation of code in and outside the sandbox."""
    medians = latency(repeats)
    show_table(("an evaluation", "median ms"), medians.items())
    write_result("sandbox_latency", {"median_ms": medians})
