"""Reference scores on DataSciCoding: of the oracle and of random code.

Where any text is an action there is no list to enumerate, so only the oracle's score on a fixed table is exact: its
code has the same every time. On generated tables, those of `reset(seed=0)`, `reset(seed=1)`, ..., it is sampled. The
random coder is sampled: means and 95% intervals over seeded episodes. Ids whose table has to be fetched, or is the
user's, are not among them; where its table is here, `--id` scores such an id too.

Prints a table and writes datasci_scores.json. Use one thread: `OMP_NUM_THREADS=1`.
"""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from benchmarks.files import write_result
from benchmarks.reports.tables import show_records
from lang_bench.runner.episodes import Result
from lang_bench.runner.evaluation import play, summarize
from lang_bench.runner.results import SCORES
from lang_envs import ENV_ROWS
from lang_envs.agents import oracle_agent
from lang_envs.datasets.generated import NAME
from lang_envs.envs.datascicoding.coder import RandomCoder
from lang_envs.sandbox.rendezvous import library_versions

CODING_IDS = tuple(row.id for row in ENV_ROWS if row.id.startswith("DataSciCoding-") and not row.trial)
"""Ids whose tables need no fetching: they can be scored anywhere."""
GENERATED_ID = f"DataSciCoding-{NAME}-v0"


def scores_of(env_id: str, n_episodes: int) -> dict[str, dict[str, Any]]:
    """Score the oracle, on one table in two episodes that are checked to be equal, and the random coder.

    Args:
        env_id: Id of DataSciCoding.
        n_episodes: Number of sampled episodes; their seeds and that of the random coder are fixed.

    Raises:
        RuntimeError: If the same code of the oracle earns two different rewards on one table.
    """
    several = env_id == GENERATED_ID
    expert = play(env_id, oracle_agent(), n_episodes if several else 2)
    if not several and expert[0] != expert[1]:
        raise RuntimeError(f"Expected the same code to be paid the same; got {expert} on {env_id}.")
    coded = play(env_id, RandomCoder(seed=0), n_episodes)
    return {"oracle": summary(expert, sampled=several), "random_coder": summary(coded, sampled=True)}


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
        content = {"libraries": library_versions(), "seconds": seconds, "scores": scores}
        write_result("datasci_scores", content, SCORES)
