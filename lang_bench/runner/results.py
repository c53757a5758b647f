"""Results files as numbers: scores of every agent on every task, by seed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from lang_bench.runner.errors import ResultFileError
from lang_bench.runner.plan import without_incidental
from lang_envs.report import Metric, read_results
from poad_sb3.common.episode_lines import discount_of

Episode = Mapping[str, Any]
SCORES = Path(__file__).parents[1] / "scores"
"""Scores of random and of optimal play, written by `python -m benchmarks measure env-scores` and `datasci-scores`."""

METRICS = {
    metric.name: metric
    for metric in (
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
        arguments = ", ".join(f"{name}={value}" for name, value in sorted(settings.items()))
        return f"{self.env} ({arguments})" if settings else self.env

    @property
    def is_complete(self) -> bool:
        """Whether no episode is missing."""
        return len(self.episodes) == self.expected

    def of_whole_seeds(self) -> Cell:
        """Return the cell without seeds that lack episodes: their means are less certain."""
        counts = Counter(episode["seed"] for episode in self.episodes)
        whole = [episode for episode in self.episodes if counts[episode["seed"]] == self.header["episodes"]]
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
    """Return the cells of some results files, in their order; further seeds of an agent on a task join its cell.

    Raises:
        ReportError: If a file cannot be read or is not a valid results file.
        ResultFileError: If a file is of a training, or two files hold the same agent on the same task with common seeds
            or another measurement, or different agents of one name.
    """
    cells: list[Cell] = []
    for path in paths:
        cells = _with_file(cells, path)
    return cells


def _with_file(cells: Sequence[Cell], path: Path) -> list[Cell]:
    joined = list(cells)
    for cell in _cells_of(path):
        namesakes = [other.header["agent"] for other in cells if other.agent == cell.agent]
        if not all(is_same_agent(cell.header["agent"], agent) for agent in namesakes):
            raise ResultFileError(
                f"Expected one agent of each name; {cell.agent} of {path} has other settings than in another file. "
                "Fix: leave one of the files out, or run the other with --label."
            )
        places = [index for index, other in enumerate(cells) if (other.agent, other.task) == (cell.agent, cell.task)]
        if not places:
            joined.append(cell)
            continue
        before = cells[places[0]]
        differ = [name for name in _OF_TASK if before.header.get(name) != cell.header.get(name)]
        differ += ["arguments"] if _env_of(before) != _env_of(cell) else []
        worlds = [one.header.get("worlds", {}).get(one.env) for one in (before, cell)]
        differ += ["worlds"] if None not in worlds and worlds[0] != worlds[1] else []
        if set(before.header["seeds"]) & set(cell.header["seeds"]) or differ:
            raise ResultFileError(
                f"Expected every agent once on every task, or with further seeds; got {cell.agent} on {cell.task} "
                f"again in {path}, with {f'other {differ[0]}' if differ else 'some of the same seeds'}. "
                "Fix: leave one of the files out, or run the other with --first-seed or --label."
            )
        joined[places[0]] = _joined(before, cell)
    return joined


_OF_TASK = ("episodes", "python", "versions", "env_settings")
"""Fields of the header that are equal in files whose seeds are joined."""


def is_same_agent(agent: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether agents of two headers are the same; where every seed has its own, on the seeds that both have."""
    first, second = (dict(without_incidental({"agent": agent_facts})["agent"]) for agent_facts in (agent, other))
    by_seed, second_by_seed = (facts.pop("settings_by_seed", {}) for facts in (first, second))
    return first == second and all(
        by_seed[seed] == second_by_seed[seed] for seed in by_seed.keys() & second_by_seed.keys()
    )


def _env_of(cell: Cell) -> Mapping[str, Any]:
    return next(env for env in cell.header["envs"] if env["id"] == cell.env)


def _joined(first: Cell, second: Cell) -> Cell:
    left, right = first.header, second.header
    header = {**left, "seeds": [*left["seeds"], *right["seeds"]]}
    for name, between in (("command", " && "), ("cpu", " and ")):
        if name in left and name in right:
            header[name] = between.join(dict.fromkeys((*left[name].split(between), right[name])))
    if "settings_by_seed" in left["agent"]:
        by_seed = {**left["agent"]["settings_by_seed"], **right["agent"]["settings_by_seed"]}
        header["agent"] = {**left["agent"], "settings_by_seed": by_seed}
    return first._replace(
        header=header, episodes=[*first.episodes, *second.episodes], expected=first.expected + second.expected
    )


def _cells_of(path: Path) -> list[Cell]:
    header, episodes, *_ = read_results(path, with_steps=False)
    if header.get("training"):
        raise ResultFileError(
            f"Expected a file that `lang-bench run` has written; got {path}, of a training. "
            f"Fix: poad report {path.parent}."
        )
    name, expected = header["agent"]["name"], header["episodes"] * len(header["seeds"])
    by_env: dict[str, list[Episode]] = {env["id"]: [] for env in header["envs"]}
    for episode in episodes:
        by_env[episode["env"]].append(episode)
    return [Cell(name, env_id, header, chosen, expected) for env_id, chosen in by_env.items() if chosen]


# ---------------------------------------------------------------------- one scale for all tasks


class References(NamedTuple):
    """Expected discounted returns that 0 and 1 stand for."""

    random: float
    oracle: float


def references_of(env_id: str) -> References | None:
    """Return references of an id as registered; None where none are committed.

    Exact where actions are listed; on DataSciCoding random is the random coder, sampled.
    """
    return _references().get(env_id.rpartition(":")[2])


@cache
def _references() -> dict[str, References]:
    references = {}
    for name in ("env_scores", "datasci_scores"):
        scores = json.loads((SCORES / f"{name}.json").read_text(encoding="utf-8"))["scores"]
        for env_id, both in scores.items():
            if name == "env_scores":
                ends = [both[agent]["returns"][f"{discount_of(env_id):g}"] for agent in ("random", "oracle")]
            else:
                ends = [both[agent]["mean_return"] for agent in ("random_coder", "oracle")]
            references[env_id] = References(*ends)
    for env_id in ("KeyToken-v0", "MultiKey-v0", "Parity-v0"):  # of the length trap, noise is larger than the range
        env: Any = gym.make(env_id, disable_env_checker=True).unwrapped
        references[env_id] = References(env.random_return, env.optimal_return)
    return references


def normalised(cell: Cell) -> NDArray[np.float64] | None:
    """Return the discounted returns by seed, with 0 for random and 1 for optimal play, `[n_seeds]`.

    None where there are no references: the id has no committed scores, or it has other arguments than registered.
    """
    references = references_of(cell.env)
    if references is None or cell.header["env_settings"]:
        return None
    return (cell.scores("discounted_return") - references.random) / (references.oracle - references.random)
