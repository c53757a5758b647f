"""Sampled episodes of a finite problem, many at a time, as the rollouts that the strategies take."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.exact.gradients import Floats, TimedMDP
from poad_sb3.credit.estimators import Rollout

Integers = NDArray[np.integer]


class Sample(NamedTuple):
    """Episodes, one in each column.

    Attributes:
        pairs: Index of the pair of state and action, as in `TimedMDP.pairs`; 0 after the end, `[steps, episodes]`.
        counted: Whether the step was taken, `[steps, episodes]`.
        ends: Whether the episode ended with the step, `[steps, episodes]`.
    """

    pairs: Integers
    counted: NDArray[np.bool_]
    ends: NDArray[np.bool_]

    def rollout(self, problem: TimedMDP, group_size: int = 1) -> Rollout:
        """Return the rollout of a batch without a critic; groups are neighbouring columns."""
        states, actions = problem.pairs
        shape, n = self.pairs.shape, self.pairs.shape[1]
        rewards = np.where(self.counted, problem.mdp.rewards[states, actions][self.pairs], 0.0)
        lengths = np.where(self.counted, problem.paths[1][actions][self.pairs], 1)
        observations = problem.observations[states][self.pairs]
        return Rollout(
            rewards=rewards,
            lengths=lengths,
            episode_ends=self.ends | ~self.counted,
            counted=self.counted,
            values=np.zeros((*shape, 0)),
            last_values=np.zeros(n),
            final_values=np.zeros(shape),
            durations=np.ones(shape),
            groups=np.broadcast_to(np.arange(n) // group_size, shape),
            states=observations,
        )


def sample_episodes(problem: TimedMDP, chances: Floats, n: int, rng: np.random.Generator, *, shared: int = 1) -> Sample:
    """Draw episodes.

    Args:
        problem: Finite problem.
        chances: Probability of each action, `[states, actions]`.
        n: Number of episodes.
        rng: Source of randomness.
        shared: Size of the blocks of neighbouring episodes that share all randomness but that of the policy, like
            environments that are reset with one seed.
    """
    states, actions = problem.pairs
    pair_of = np.zeros(chances.shape, dtype=np.int64)
    pair_of[states, actions] = np.arange(len(states))
    cumulated = np.cumsum(chances, axis=1)
    cumulated[:, -1] = 1.0
    following = problem.mdp.transitions[states, actions]
    certain = (following.max(axis=1) == 1.0).all()
    likely = following.argmax(axis=1)
    ways = np.cumsum(following, axis=1)
    ways[:, -1] = 1.0
    blocks = -(-n // shared)
    first = np.cumsum(problem.start)
    state = np.repeat(np.searchsorted(first / first[-1], rng.random(blocks), side="right"), shared)[:n]
    clock = np.zeros(n, dtype=np.int64)
    alive = np.ones(n, dtype=bool)
    pairs, counted, ends = [], [], []
    while alive.any():
        action = (rng.random(n)[:, None] >= cumulated[state]).sum(axis=1)
        pair = np.where(alive, pair_of[state, action], 0)
        if certain:
            after = likely[pair]
        else:
            world = np.repeat(rng.random(blocks), shared)[:n]
            after = (world[:, None] >= ways[pair]).sum(axis=1)
        clock = clock + problem.durations[state, action]
        ended = alive & (problem.mdp.terminal[after] | (clock >= problem.limit))
        pairs.append(pair)
        counted.append(alive)
        ends.append(ended)
        alive = alive & ~ended
        state = np.where(alive, after, state)
    return Sample(np.array(pairs), np.array(counted), np.array(ends))
