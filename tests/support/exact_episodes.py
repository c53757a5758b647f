"""All episodes of a small problem, with their probabilities."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from benchmarks.exact.gradients import Floats, TimedMDP


class Episode(NamedTuple):
    """An episode and its probability.

    Attributes:
        probability: Under the policy.
        steps: Clock, state and action of each decision.
    """

    probability: float
    steps: tuple[tuple[int, int, int], ...]


def enumerate_episodes(problem: TimedMDP, policy: Floats) -> Iterator[Episode]:
    """Yield all episodes of positive probability. Their number grows exponentially with the time limit."""
    mdp, chances = problem.mdp, problem.action_probabilities(policy)
    open_ones: list[tuple[float, int, int, tuple[tuple[int, int, int], ...]]] = [
        (float(problem.start[state]), 0, state, ()) for state in np.flatnonzero(problem.start).tolist()
    ]  # probability, clock, state, steps so far
    while open_ones:
        probability, clock, state, steps = open_ones.pop()
        if mdp.terminal[state] or clock >= problem.limit:
            yield Episode(probability, steps)
            continue
        for action in np.flatnonzero(chances[state]).tolist():
            here = (*steps, (clock, state, action))
            later = clock + int(problem.durations[state, action])
            chance = probability * float(chances[state, action])
            if later >= problem.limit:
                yield Episode(chance, here)
                continue
            for after in np.flatnonzero(mdp.transitions[state, action]).tolist():
                open_ones.append((chance * float(mdp.transitions[state, action, after]), later, after, here))
