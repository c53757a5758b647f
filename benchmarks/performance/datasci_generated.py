"""Reference scores on generated tables.

Mean ROC AUC over the tables of `reset(seed=0)`, `reset(seed=1)`, ..., five halves each, of some scikit-learn programs,
and of the true class probabilities, an upper bound on average; these run in this process. Further the oracle
and the random coder in the environment, an episode for each of the tables. Prints a table and writes
datasci_generated.json. Use one thread: `OMP_NUM_THREADS=1`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import typer
from scipy import stats

from benchmarks.performance.datasci_scores import summary
from benchmarks.references.datasci_baselines import REPORTED, Model, evaluate_in_process
from benchmarks.reports.tables import show_records
from benchmarks.runner.evaluation import play
from benchmarks.runner.files import write_result
from lang_envs.agents import oracle_agent
from lang_envs.datasets.generated import KEY_BYTES, NAME, draw_table, generated_table
from lang_envs.envs.datascicoding.coder import RandomCoder
from lang_envs.envs.datascicoding.oracle import oracle_code
from lang_envs.envs.datascicoding.scoring import auc, splits

GENERATED_ID = f"DataSciCoding-{NAME}-v0"
CEILING = "true probabilities"

_FILLED = ("pipeline.make_pipeline", "impute.SimpleImputer")
_LOGISTIC = Model(
    "logistic regression",
    (*_FILLED, "linear_model.LogisticRegression", "preprocessing.StandardScaler"),
    "make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression(max_iter=1000))",
)
_FOREST = Model(
    "random forest",
    (*_FILLED, "ensemble.RandomForestClassifier"),
    "make_pipeline(SimpleImputer(), RandomForestClassifier(random_state=0))",
)
_BOOSTING = Model(
    "histogram gradient boosting",
    ("ensemble.HistGradientBoostingClassifier",),
    "HistGradientBoostingClassifier(random_state=0)",
)
PROGRAMS: dict[str, str] = {
    **{model.name: model.code for model in (_LOGISTIC, _FOREST, _BOOSTING)},
    "oracle": oracle_code(NAME),
}
"""Bodies of `build_model` by name."""


def scores_of_table(seed: int, programs: Mapping[str, str] = PROGRAMS) -> dict[str, float]:
    """Return the mean AUC over the halves of each program, and of the true probabilities, on one generated table.

    The table is that of `reset(seed=seed)`.

    Raises:
        RuntimeError: If a program fails.
    """
    key = np.random.default_rng(seed).bytes(KEY_BYTES)
    table, probabilities = generated_table(key), draw_table(key).probabilities
    halves = splits(table, REPORTED)
    scores = {}
    for name, code in programs.items():
        evaluation = evaluate_in_process(code, table, REPORTED)
        if evaluation.error is not None:
            raise RuntimeError(f"Expected {name} to run on the table of seed {seed}; got {evaluation.error}.")
        scores[name] = float(np.mean(evaluation.scores))
    scores[CEILING] = float(np.mean([auc(table.y[half.test], probabilities[half.test]) for half in halves]))
    return scores


def summaries(tables: Sequence[Mapping[str, float]]) -> dict[str, dict[str, Any]]:
    """Return the mean over tables with a 95 % interval of Student's t, and the standard deviation between tables."""
    rows = {}
    for name in tables[0]:
        scores = np.array([table[name] for table in tables])
        low, high = stats.t.interval(0.95, len(scores) - 1, scores.mean(), stats.sem(scores))
        deviation = float(scores.std(ddof=1))
        rows[name] = {"mean": float(scores.mean()), "interval": [float(low), float(high)], "std": deviation}
    return rows


def datasci_generated(
    tables: Annotated[int, typer.Option(min=2, help="How many; their seeds are 0, 1, ...")] = 200,
) -> None:
    """Score programs, the oracle and random code on generated tables."""
    rows = summaries([scores_of_table(seed) for seed in range(tables)])
    show_records("program", rows, ("mean", "interval", "std"))
    agents = {"oracle": oracle_agent(), "random_coder": RandomCoder(seed=0)}
    played = {name: summary(play(GENERATED_ID, agent, tables), sampled=True) for name, agent in agents.items()}
    write_result("datasci_generated", {"tables": tables, "programs": rows, "scores": {GENERATED_ID: played}})
