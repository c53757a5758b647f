"""Reference scores on DataSciCoding: of the oracle, of random code and of some programs.

Where any text is an action there is no list to enumerate, so only the oracle's score on a fixed table is exact: its
code has the same every time. The random coder is sampled: means and 95% intervals over seeded episodes. Ids whose table
has to be fetched, or is the user's, are not among them; where its table is here, `--id` scores such an id too.

On generated tables, those of `reset(seed=0)`, `reset(seed=1)`, ..., also the mean ROC AUC over five halves each of some
scikit-learn programs, and of the true class probabilities, an upper bound on average; these run in this process.

Print tables and write datasci_scores.json and datasci_generated.json. Use one thread: `OMP_NUM_THREADS=1`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import typer
from scipy import stats

from benchmarks.references.datasci_baselines import REPORTED, Model, evaluate_in_process
from benchmarks.reports.tables import show_records
from benchmarks.runner.episodes import Result
from benchmarks.runner.evaluation import play, summarize
from benchmarks.runner.files import write_result
from lang_envs import ENV_ROWS
from lang_envs.agents import oracle_agent
from lang_envs.datasets.generated import KEY_BYTES, NAME, draw_table, generated_table
from lang_envs.envs.datascicoding.coder import RandomCoder
from lang_envs.envs.datascicoding.oracle import oracle_code
from lang_envs.envs.datascicoding.scoring import auc, splits
from lang_envs.sandbox.rendezvous import library_versions

CODING_IDS = tuple(
    row.id
    for row in ENV_ROWS
    if row.id.startswith("DataSciCoding-") and not row.trial and row.kwargs["dataset"] != NAME
)
"""Ids with one fixed table that needs no fetching: they can be scored anywhere."""


def scores_of(env_id: str, n_episodes: int) -> dict[str, dict[str, Any]]:
    """Score two episodes of the oracle, checked to be equal, and many of the random coder.

    Args:
        env_id: Id of DataSciCoding.
        n_episodes: Number of episodes of the random coder; its seed and those of the episodes are fixed.

    Raises:
        RuntimeError: If the same code of the oracle earns two different rewards.
    """
    expert = play(env_id, oracle_agent(), 2)
    if expert[0] != expert[1]:
        raise RuntimeError(f"Expected the same code to be paid the same; got {expert} on {env_id}.")
    coded = play(env_id, RandomCoder(seed=0), n_episodes)
    return {"oracle": summary(expert, sampled=False), "random_coder": summary(coded, sampled=True)}


def summary(episodes: list[Result], *, sampled: bool) -> dict[str, Any]:
    """Return means over episodes, and the mean score of the code that ran.

    The score is the return without the failures before it, at -1 each.
    """
    scores = [episode.discounted_return + episode.n_actions - 1 for episode in episodes if episode.success]
    return {"sampled": sampled, **summarize(episodes)._asdict(), "mean_score": sum(scores) / max(len(scores), 1)}


def datasci_scores(
    episodes: Annotated[int, typer.Option(min=2, help="Of the random coder, on each id.")] = 200,
    ids: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="ID", help="Only these, of any table that is here; printed and not written."),
    ] = None,
) -> None:
    """Score the oracle and random code on DataSciCoding."""
    started = time.perf_counter()
    scores = {env_id: scores_of(env_id, episodes) for env_id in ids or CODING_IDS}
    rows = {f"{env_id}, {name}": score for env_id, both in scores.items() for name, score in both.items()}
    columns = ("n_episodes", "success_rate", "mean_return", "return_interval", "mean_actions", "mean_score")
    show_records("id, agent", rows, columns)
    if not ids:
        seconds = round(time.perf_counter() - started, 1)
        write_result("datasci_scores", {"libraries": library_versions(), "seconds": seconds, "scores": scores})


# ---------------------------------------------------------------------- generated tables

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
