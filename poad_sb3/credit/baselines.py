"""Baselines without a critic: pure functions on flat numpy arrays with one entry for each episode, action or token.

Entries with the same number in `cells` are compared with each other: the episodes of a group (GRPO, RLOO), the
actions taken in the same state of a group (GiGPO), or all actions of a batch (ReBN).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import numpy as np
from numpy.typing import NDArray

from poad_sb3.credit.advantages import Floats

__all__ = ["cell_numbers", "centred", "state_leave_one_out", "step_leave_one_out", "whitened"]

Integers = NDArray[np.integer]


def cell_numbers(keys: Iterable[Hashable]) -> NDArray[np.int64]:
    """Map keys to numbers in the order of first appearance, `[n]`; for example pairs of group and state."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


def centred(
    returns: Floats, cells: Integers, *, leave_one_out: bool = False, eps: float | None = None, ddof: int = 1
) -> Floats:
    """Subtract the mean of the cell from each return.

    By `cells` and the options: Dr. GRPO (groups of episodes), GRPO (`eps`), RLOO (`leave_one_out`), the step part of
    GiGPO (states) and ReBN (all actions, `eps`).

    Args:
        returns: Return of each episode or action, `[n]`.
        cells: Number of the cell of each return, `[n]`.
        leave_one_out: Whether to subtract the mean of the other members of the cell instead.
        eps: Number added to the standard deviation of the cell before dividing by it; None: no division.
        ddof: Degrees of freedom that the standard deviation gives up: 1 for a sample, 0 for a population.

    Returns:
        Centred returns, `[n]`, float64. Exactly 0 in cells of one member and in cells whose returns are all equal:
        rounding would leave a tiny deviation there, and divided by it large advantages.
    """
    returns = np.asarray(returns, dtype=np.float64)
    _, first, members, counts = np.unique(cells, return_index=True, return_inverse=True, return_counts=True)
    n = counts[members]
    totals = np.bincount(members, weights=returns)[members]
    differing = np.bincount(members, weights=returns != returns[first][members])
    varied = (differing > 0)[members]  # also where a return is NaN, which must not pass for 0

    differences = returns - totals / n
    advantages = returns - (totals - returns) / np.maximum(n - 1, 1) if leave_one_out else differences
    if eps is not None:
        squares = np.bincount(members, weights=differences**2)[members]
        deviations = np.sqrt(squares / np.maximum(n - ddof, 1)) + eps
        advantages = advantages / np.where(varied, deviations, 1.0)
    return np.where(varied, advantages, 0.0)


def whitened(values: Floats, eps: float) -> Floats:
    """Compute (x - mean) / sqrt(variance + eps) with the sample variance, as REINFORCE++ does over action tokens.

    Args:
        values: Values to whiten, `[n]`.
        eps: Number added to the variance.

    Returns:
        Whitened values, `[n]`, float64; 0 for fewer than two values and for equal ones.
    """
    values = np.asarray(values, dtype=np.float64)
    if values.size < 2 or values.min() == values.max():
        return np.zeros_like(values)
    white: Floats = (values - values.mean()) / np.sqrt(values.var(ddof=1) + eps)
    return white


def state_leave_one_out(returns: Floats, cells: Integers, episodes: Integers) -> Floats:
    """Subtract the mean return of the *other* episodes at their first visit of the same state of the same group.

    Unlike the cells of GiGPO, this baseline holds no return that depends on the own action, so the policy gradient
    stays unbiased. The baseline is 0 where no other episode of the group visits the state.

    Args:
        returns: Return to go of each action, in the order of time within an episode, `[n]`.
        cells: Number of the pair of group and state of each action, `[n]`.
        episodes: Number of the episode of each action, `[n]`.

    Returns:
        Advantages, `[n]`, float64.
    """
    returns = np.asarray(returns, dtype=np.float64)
    _, members = np.unique(cells, return_inverse=True)
    visits, first, of_visit = np.unique(
        np.stack([members, episodes], axis=1), axis=0, return_index=True, return_inverse=True
    )
    totals = np.bincount(visits[:, 0], weights=returns[first])[members]
    n_others = np.bincount(visits[:, 0])[members] - 1
    baselines = (totals - returns[first][of_visit.ravel()]) / np.maximum(n_others, 1)
    return returns - np.where(n_others > 0, baselines, 0.0)


def step_leave_one_out(returns: Floats, groups: Integers, episodes: Integers, steps: Integers) -> Floats:
    """Subtract the mean return to go of the *other* episodes of the group at the same step.

    An episode that has ended counts as 0, so that the group size does not depend on when the policy stops and
    the policy gradient stays unbiased.

    Args:
        returns: Return to go of each action, `[n]`.
        groups: Number of the group of each action, `[n]`.
        episodes: Number of the episode of each action, `[n]`.
        steps: Number of steps since the start of the episode, `[n]`.

    Returns:
        Advantages, `[n]`, float64; the return itself in a group of one episode.
    """
    returns = np.asarray(returns, dtype=np.float64)
    _, members = np.unique(groups, return_inverse=True)
    pairs = np.unique(np.stack([members, episodes], axis=1), axis=0)
    n_others = np.bincount(pairs[:, 0])[members] - 1
    _, cells = np.unique(np.stack([members, steps], axis=1), axis=0, return_inverse=True)
    totals = np.bincount(cells.ravel(), weights=returns)[cells.ravel()]
    return returns - np.where(n_others > 0, (totals - returns) / np.maximum(n_others, 1), 0.0)
