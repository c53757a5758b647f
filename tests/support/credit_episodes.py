"""Episodes for the tests of credit: golden and random ones, in the padded layout."""

from __future__ import annotations

import json
from collections.abc import Sequence
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
