"""Episodes for the tests of credit: golden and random ones, in both layouts, and plain-loop references."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis
import numpy as np

GOLDEN = json.loads((Path(__file__).parents[2] / "data/golden/credit/estimators.json").read_text(encoding="utf-8"))

properties = hypothesis.settings(deadline=None, derandomize=True, database=None, max_examples=40)


class Step(NamedTuple):
    state: str
    reward: float
    values: Sequence[float]
    obs_values: Sequence[float] = ()
    """Of the tokens of the observation that follows, seen by streams only."""


class Episode(NamedTuple):
    steps: Sequence[Step]
    final_value: float = 0.0
    group: int = 0

    @property
    def lengths(self) -> list[int]:
        return [len(step.values) for step in self.steps]


class Batch(NamedTuple):
    """The padded layout `[batch, positions]`; NaN outside the mask, but for values of observation tokens."""

    rewards: np.ndarray
    values: np.ndarray
    mask: np.ndarray
    turn_ids: np.ndarray
    present: np.ndarray
    groups: list[int]
    keys: list[list[str]]
    bootstrap: np.ndarray


def golden_episodes(case: dict[str, Any]) -> list[Episode]:
    return [
        Episode([Step(**step) for step in episode["steps"]], episode["final_value"], episode["group"])
        for episode in case["episodes"]
    ]


def random_episodes(
    seed: int,
    *,
    n_episodes: int = 5,
    n_steps: int = 4,
    n_tokens: int = 5,
    n_observation: int = 3,
    truncates: bool = True,
) -> list[Episode]:
    """Draw ragged episodes of three states and two groups, with ties among rewards."""
    rng = np.random.default_rng(seed)
    return [
        Episode(
            [
                Step(
                    state=str(rng.choice(["a", "b", "c"])),
                    reward=float(rng.choice([-0.3, 0.0, 0.1, 1.0])),
                    values=rng.normal(size=rng.integers(1, n_tokens + 1)).tolist(),
                    obs_values=rng.normal(size=rng.integers(1, n_observation + 1)).tolist(),
                )
                for _ in range(rng.integers(1, n_steps + 1))
            ],
            final_value=float(rng.normal()) * (truncates and rng.random() < 0.5),
            group=int(rng.integers(2)),
        )
        for _ in range(rng.integers(1, n_episodes + 1))
    ]


def padded_batch(episodes: Sequence[Episode], *, observations: bool = True, seed: int | None = None) -> Batch:
    """Lay out episodes as rows.

    Args:
        episodes: One for each row.
        observations: Whether observation tokens stand between actions.
        seed: Of the padding on the left, and of the token that each reward stands on; None: no padding on the left,
            and rewards on the last token of their action.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for episode in episodes:
        row: list[tuple[float, float, bool, int, bool]] = []
        if seed is not None:
            row += [(np.nan, np.nan, False, -1, False)] * int(rng.integers(3))
        for turn, step in enumerate(episode.steps):
            paid = len(step.values) - 1 if seed is None else int(rng.integers(len(step.values)))
            row += [(step.reward * (j == paid), value, True, turn, True) for j, value in enumerate(step.values)]
            row += [(0.0, value, False, -1, True) for value in step.obs_values if observations]
        rows.append(row)
    width = max(len(row) for row in rows)
    filled = [row + [(np.nan, np.nan, False, -1, False)] * (width - len(row)) for row in rows]
    columns = [np.array([[entry[k] for entry in row] for row in filled]) for k in range(5)]
    return Batch(
        *columns,
        groups=[episode.group for episode in episodes],
        keys=[[step.state for step in episode.steps] for episode in episodes],
        bootstrap=np.array([episode.final_value for episode in episodes]),
    )


def by_token(expected: Sequence[Any], episodes: Sequence[Episode]) -> np.ndarray:
    """Flatten `[episode]`, `[episode][step]` or `[episode][step][token]` to one number for each action token."""
    flat: list[float] = []
    for entry, episode in zip(expected, episodes, strict=True):
        per_step = entry if isinstance(entry, list) else [entry] * len(episode.steps)
        for entry_of_step, length in zip(per_step, episode.lengths, strict=True):
            flat += entry_of_step if isinstance(entry_of_step, list) else [entry_of_step] * length
    return np.array(flat)


# ---------------------------------------------------------------------- plain loops over python floats


def slow_bad(episode: Episode, *, gamma: float, lam: float, gamma_token: float, lam_token: float, last: bool) -> Any:
    """Token GAE, with ARCHER's bootstrap if `last`."""
    later, result = 0.0, []
    following = episode.final_value
    for step in reversed(episode.steps):
        n, v = len(step.values), step.values
        row = [0.0] * n
        row[-1] = step.reward + gamma * following - v[-1] + gamma * lam * later
        for j in reversed(range(n - 1)):
            row[j] = gamma_token * v[j + 1] - v[j] + gamma_token * lam_token * row[j + 1]
        later, following = row[0], v[-1] if last else v[0]
        result.append(row)
    return result[::-1]


def slow_bilevel(episode: Episode, *, gamma: float, lam: float, lam_token: float, last: bool) -> Any:
    later, result = 0.0, []
    following = episode.final_value
    for step in reversed(episode.steps):
        n, v = len(step.values), step.values
        anchor = v[-1] if last else v[0]
        later = step.reward + gamma * following - anchor + gamma * lam * later
        row = [0.0] * n
        row[-1] = later + anchor - v[-1]
        for j in reversed(range(n - 1)):
            row[j] = v[j + 1] - v[j] + lam_token * row[j + 1]
        following = anchor
        result.append(row)
    return result[::-1]


def slow_action(episode: Episode, *, gamma: float, lam: float) -> list[float]:
    later, following, result = 0.0, episode.final_value, []
    for step in reversed(episode.steps):
        later = step.reward + gamma * following - step.values[0] + gamma * lam * later
        following = step.values[0]
        result.append(later)
    return result[::-1]


def slow_returns(episode: Episode, *, gamma: float) -> list[float]:
    total, result = 0.0, []
    for step in reversed(episode.steps):
        total = step.reward + gamma * total
        result.append(total)
    return result[::-1]


def slow_token_returns(episode: Episode, *, gamma: float) -> list[list[float]]:
    total, result = 0.0, []
    for step in reversed(episode.steps):
        row: list[float] = []
        for j in reversed(range(len(step.values))):
            total = (step.reward if j == len(step.values) - 1 else 0.0) + gamma * total
            row.insert(0, total)
        result.append(row)
    return result[::-1]


def slow_centred(value: float, cell: Sequence[float], *, eps: float | None = None, others: bool = False) -> float:
    if len(set(cell)) == 1:
        return 0.0
    mean = (sum(cell) - value) / (len(cell) - 1) if others else statistics.fmean(cell)
    return (value - mean) / (1.0 if eps is None else statistics.stdev(cell) + eps)


def slow_groups(episodes: Sequence[Episode], *, eps: float | None = None, others: bool = False) -> list[float]:
    totals = [sum(step.reward for step in episode.steps) for episode in episodes]
    return [
        slow_centred(
            total,
            [other for other, member in zip(totals, episodes, strict=True) if member.group == episode.group],
            eps=eps,
            others=others,
        )
        for total, episode in zip(totals, episodes, strict=True)
    ]


def slow_states(episodes: Sequence[Episode], *, gamma: float, eps: float | None = None) -> list[list[float]]:
    """Step part of GiGPO."""
    every = [slow_returns(episode, gamma=gamma) for episode in episodes]
    cells: dict[tuple[int, str], list[float]] = {}
    for episode, goes in zip(episodes, every, strict=True):
        for step, go in zip(episode.steps, goes, strict=True):
            cells.setdefault((episode.group, step.state), []).append(go)
    return [
        [
            slow_centred(go, cells[episode.group, step.state], eps=eps)
            for step, go in zip(episode.steps, goes, strict=True)
        ]
        for episode, goes in zip(episodes, every, strict=True)
    ]


def slow_leave_one_out(episodes: Sequence[Episode], *, gamma: float, by_state: bool) -> list[list[float]]:
    """Baselines of the other episodes: by their first visit of the state, or by the step with 0 after the end."""
    every = [slow_returns(episode, gamma=gamma) for episode in episodes]
    result = []
    for me, mine in enumerate(every):
        row = []
        for t, go in enumerate(mine):
            others = []
            for other, goes in enumerate(every):
                if other == me or episodes[other].group != episodes[me].group:
                    continue
                if by_state:
                    states = [step.state for step in episodes[other].steps]
                    if episodes[me].steps[t].state in states:
                        others.append(goes[states.index(episodes[me].steps[t].state)])
                else:
                    others.append(goes[t] if t < len(goes) else 0.0)
            row.append(go - (statistics.fmean(others) if others else 0.0))
        result.append(row)
    return result


def slow_whitened(rows: Sequence[Any], eps: float) -> Any:
    flat = [value for row in rows for step in row for value in step]
    if len(set(flat)) == 1:
        return [[[0.0] * len(step) for step in row] for row in rows]
    mean, scale = statistics.fmean(flat), (statistics.variance(flat) + eps) ** 0.5
    return [[[(value - mean) / scale for value in step] for step in row] for row in rows]


def slow_rebn(episodes: Sequence[Episode], *, gamma: float, eps: float) -> list[list[float]]:
    every = [slow_returns(episode, gamma=gamma) for episode in episodes]
    cell = [go for goes in every for go in goes]
    return [[slow_centred(go, cell, eps=eps) for go in goes] for goes in every]


def slow_rows(gamma: float, lam: float, lam_token: float, omega: float) -> dict[str, Callable[[Any], Any]]:
    """Plain loops by the names of `poad_sb3.credit.padded`, from a list of episodes."""
    discounts: dict[str, Any] = {"gamma": gamma, "lam": lam, "lam_token": lam_token}

    def each(loop: Callable[..., Any], **settings: Any) -> Callable[[Any], Any]:
        return lambda episodes: [loop(episode, **settings) for episode in episodes]

    return {
        "bad": each(slow_bad, **discounts, gamma_token=1.0, last=False),
        "ntpo": each(slow_bad, **discounts, gamma_token=gamma, last=False),
        "archer": each(slow_bad, **discounts, gamma_token=gamma, last=True),
        "bilevel": each(slow_bilevel, **discounts, last=False),
        "action_gae": each(slow_action, gamma=gamma, lam=lam),
        "returns_to_go": each(slow_returns, gamma=gamma),
        "reinforce_plus_plus": lambda eps: slow_whitened([slow_token_returns(e, gamma=gamma) for e in eps], 1e-8),
        "rebn": lambda eps: slow_rebn(eps, gamma=gamma, eps=1e-8),
        "grpo": lambda eps: slow_groups(eps, eps=1e-6),
        "dr_grpo": slow_groups,
        "rloo": lambda eps: slow_groups(eps, others=True),
        "gigpo": lambda eps: [
            [episode + omega * step for step in steps]
            for episode, steps in zip(slow_groups(eps), slow_states(eps, gamma=gamma), strict=True)
        ],
        "anchor_leave_one_out": lambda eps: slow_leave_one_out(eps, gamma=gamma, by_state=True),
        "step_leave_one_out": lambda eps: slow_leave_one_out(eps, gamma=gamma, by_state=False),
    }
