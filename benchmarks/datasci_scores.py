"""Scores of the oracle and of random code on DataSciCoding: `python -m benchmarks.datasci_scores`.

Where any text is an action there is no list to go through, so nothing is exact but the oracle, whose code is paid the
same every time. The random coder is sampled: means and 95% intervals over seeded episodes. Prints a table and writes
results/datasci_scores.json. Ids whose table has to be fetched, or is the user's, are not among them; where its table is
here, `--ids` scores such an id too. Those of generated tables are made by `benchmarks.datasci_generated`. Use one
thread: `OMP_NUM_THREADS=1`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.environment import RESULTS, describe_machine
from benchmarks.evaluation import Episode, play, summarize
from lang_envs import ENV_ROWS
from lang_envs.agents import oracle_agent
from lang_envs.datascicoding.coder import RandomCoder
from lang_envs.datascicoding.datasets.generated import NAME
from lang_envs.datascicoding.sandbox.rendezvous import library_versions

__all__ = ["CODING_IDS", "OUTPUT", "scores_of", "summary"]

CODING_IDS = tuple(
    row.id
    for row in ENV_ROWS
    if row.id.startswith("DataSciCoding-") and not row.trial and row.kwargs["dataset"] != NAME
)
"""The ids of one table that needs no data: they can be scored anywhere."""
OUTPUT = RESULTS / "datasci_scores.json"


def scores_of(env_id: str, n_episodes: int) -> dict[str, dict[str, Any]]:
    """Two episodes of the oracle, which have to be equal, and many of the random coder.

    Args:
        env_id: An id of DataSciCoding.
        n_episodes: Of the random coder; its seed and those of the episodes are fixed.

    Raises:
        RuntimeError: If the oracle's code is not paid the same twice.
    """
    expert = play(env_id, oracle_agent(), 2)
    if expert[0] != expert[1]:
        raise RuntimeError(f"Expected the same code to be paid the same; got {expert} on {env_id}.")
    coded = play(env_id, RandomCoder(seed=0), n_episodes)
    return {"oracle": summary(expert, sampled=False), "random_coder": summary(coded, sampled=True)}


def summary(episodes: list[Episode], *, sampled: bool) -> dict[str, Any]:
    """Means, and the mean score of the code that ran: a return without the failures before it, at -1 each."""
    scores = [one.discounted_return + one.n_actions - 1 for one in episodes if one.success]
    return {"sampled": sampled, **summarize(episodes)._asdict(), "mean_score": sum(scores) / max(len(scores), 1)}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Scores of the oracle and of random code on DataSciCoding.")
    parser.add_argument("--episodes", type=int, default=200, help="of the random coder, on each id")
    parser.add_argument(
        "--ids", nargs="+", metavar="ID", help="only these, of any table that is here; printed and not written"
    )
    options = parser.parse_args()
    started = time.perf_counter()
    found = {env_id: scores_of(env_id, options.episodes) for env_id in options.ids or CODING_IDS}
    Console(width=120).print(_table(found))
    if options.ids:
        return
    result = {
        **describe_machine(),
        "libraries": library_versions(),
        "seconds": round(time.perf_counter() - started, 1),
        "scores": found,
    }
    OUTPUT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _table(found: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Table:
    table = Table("id", "agent", "episodes", "success", "return", "95 %", "attempts", "score", box=None)
    for env_id, both in found.items():
        for name, one in both.items():
            interval = "{:.3f} to {:.3f}".format(*one["return_interval"]) if one["sampled"] else "exact"
            numbers = (
                f"{one['success_rate']:.3f}",
                f"{one['mean_return']:.4f}",
                interval,
                f"{one['mean_actions']:.2f}",
            )
            table.add_row(env_id, name, str(one["n_episodes"]), *numbers, f"{one['mean_score']:.4f}")
    return table


if __name__ == "__main__":
    main()
