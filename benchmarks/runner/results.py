"""Results files as numbers: scores of every agent on every task, by seed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.runner.errors import ResultFileError
from benchmarks.runner.machine import RESULTS
from benchmarks.runner.plan import without_incidental
from lang_envs.report import Metric, read_results
from poad_sb3.common.episode_lines import discount_of

Episode = Mapping[str, Any]


METRICS = {
    one.name: one
    for one in (
        Metric("discounted_return", "discounted return"),
        Metric("return", "return"),
        Metric("success", "success", 1, is_rate=True),
        Metric("steps", "steps", 1),
        Metric("moves", "moves", 1),
        Metric("invalid_rate", "invalid actions", 1, is_rate=True),
        Metric("ran_share", "code that ran", 1, is_rate=True),
        Metric("best_score", "best score"),
        Metric("refused_share", "refused by the world", 1, is_rate=True),
        Metric("key_share", "right keys", 1, is_rate=True),
        Metric("requests", "requests", 1),
        Metric("prompt_tokens", "prompt tokens", 0),
        Metric("completion_tokens", "completion tokens", 0),
        Metric("cost", "cost", 4),
    )
}
"""Metrics by the name of the field; those that are None in all episodes of a task are not shown."""


class Cell(NamedTuple):
    """The episodes of one agent on one task.

    Attributes:
        agent: Name of the agent.
        env: Id of the environment.
        header: Header of the results file.
        episodes: Episodes of all seeds, in order.
        expected: Number of planned episodes.
    """

    agent: str
    env: str
    header: Mapping[str, Any]
    episodes: Sequence[Episode]
    expected: int

    @property
    def task(self) -> str:
        """Id with the arguments that differ from the registered ones: with them it is another task."""
        settings = self.header["env_settings"]
        arguments = ", ".join(f"{name}={value}" for name, value in settings.items())
        return f"{self.env} ({arguments})" if settings else self.env

    @property
    def is_complete(self) -> bool:
        """Whether no episode is missing."""
        return len(self.episodes) == self.expected

    def of_whole_seeds(self) -> Cell:
        """Return the cell without seeds that lack episodes: their means are less certain than those of the others."""
        counts = Counter(episode["seed"] for episode in self.episodes)
        whole = [one for one in self.episodes if counts[one["seed"]] == self.header["episodes"]]
        return self._replace(episodes=whole)

    def scores(self, metric: str) -> NDArray[np.float64]:
        """Return the mean over the episodes of each seed, `[n_seeds]`; empty where no episode has the metric."""
        by_seed: dict[int, list[float]] = {}
        for episode in self.episodes:
            value = episode.get(metric)
            if metric == "invalid_rate":
                value = episode["invalid_actions"] / episode["steps"]
            if value is not None:
                by_seed.setdefault(episode["seed"], []).append(float(value))
        return np.array([np.mean(values) for values in by_seed.values()], dtype=np.float64)


def load(paths: Iterable[Path]) -> list[Cell]:
    """Return the cells of some results files, in their order.

    Raises:
        ReportError: If a file cannot be read or is not a valid results file.
        ResultFileError: If a file is of a training, or two files hold the same agent on the same task, or different
            agents of one name.
    """
    cells: list[Cell] = []
    for path in paths:
        cells += cells_beside(cells, path)
    return cells


def cells_beside(cells: Sequence[Cell], path: Path) -> list[Cell]:
    """Return the cells of a file that can be shown beside others; the errors are those of `load`."""
    found = _cells_of(path)
    known = {cell.agent: cell for cell in cells}
    for cell in found:
        if any((cell.agent, cell.task) == (one.agent, one.task) for one in cells):
            raise ResultFileError(
                f"Expected every agent once on every task; got {cell.agent} on {cell.task} again in {path}. "
                "Fix: leave one of the files out, or run the other with --label."
            )
        mine, other = (
            without_incidental({"agent": one.header["agent"]}) for one in (cell, known.get(cell.agent, cell))
        )
        if mine != other:
            raise ResultFileError(
                f"Expected one agent of each name; {cell.agent} of {path} has other settings than in another file. "
                "Fix: leave one of the files out, or run the other with --label."
            )
    return found


def _cells_of(path: Path) -> list[Cell]:
    header, episodes, *_ = read_results(path, with_steps=False)
    if header.get("training"):
        raise ResultFileError(
            f"Expected a file that `python -m benchmarks run` has written; got {path}, of a training. "
            f"Fix: poad report {path.parent}."
        )
    name, expected = header["agent"]["name"], header["episodes"] * len(header["seeds"])
    by_env: dict[str, list[Episode]] = {env["id"]: [] for env in header["envs"]}
    for episode in episodes:
        by_env[episode["env"]].append(episode)
    return [Cell(name, env_id, header, own, expected) for env_id, own in by_env.items() if own]


# ---------------------------------------------------------------------- one scale for all tasks


class References(NamedTuple):
    """Expected discounted returns that 0 and 1 stand for."""

    random: float
    oracle: float


def references_of(env_id: str) -> References | None:
    """Return references of an id as registered; None where none are committed.

    Exact where actions are listed; on DataSciCoding random is the random coder, sampled.
    """
    return _references().get(env_id)


@cache
def _references() -> dict[str, References]:
    found = {}
    for name in ("env_scores", "datasci_scores", "datasci_generated"):
        scores = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["scores"]
        for env_id, both in scores.items():
            if name == "env_scores":
                ends = [both[agent]["returns"][f"{discount_of(env_id):g}"] for agent in ("random", "oracle")]
            else:
                ends = [both[agent]["mean_return"] for agent in ("random_coder", "oracle")]
            found[env_id] = References(*ends)
    return found


def normalised(cell: Cell) -> NDArray[np.float64] | None:
    """Return the discounted returns by seed, with 0 for random and 1 for optimal play, `[n_seeds]`.

    None where there are no references: the id has no committed scores, or it has other arguments than registered.
    """
    references = references_of(cell.env)
    if references is None or cell.header["env_settings"]:
        return None
    return (cell.scores("discounted_return") - references.random) / (references.oracle - references.random)
