"""Critics fitted to returns of sampled episodes: averages by observation and prefix, or by observation alone."""

from __future__ import annotations

import numpy as np

from benchmarks.exact.gradients import Floats, TimedMDP
from benchmarks.studies.credit_truth.rollouts import Sample
from poad_sb3.credit.returns import token_returns

EPISODES = 256
"""Number of episodes that a critic is fitted to."""


def fitted_values(problem: TimedMDP, sample: Sample, *, gamma: float, gamma_token: float, prefixes: bool) -> Floats:
    """Average the returns that followed each prefix of each observation.

    A prefix that was never met has the value of the longest of its beginnings that was, an observation that was never
    met the mean of all. The critic reads the observation, not the clock.

    Args:
        problem: Finite problem.
        sample: Sampled episodes.
        gamma: Discount between actions.
        gamma_token: Discount inside an action.
        prefixes: Whether to value every prefix; otherwise each observation has one value.

    Returns:
        Values, `[1, states, nodes]`.
    """
    rollout = sample.rollout(problem)
    returns = token_returns(
        rollout.rewards, rollout.lengths, rollout.episode_ends, gamma=gamma, gamma_token=gamma_token
    )
    states, actions = problem.pairs
    nodes, lengths = problem.paths
    step, env = np.nonzero(rollout.counted)
    pairs = sample.pairs[step, env]
    observation, action = problem.observations[states[pairs]], actions[pairs]
    n_nodes = len(problem.mdp.trie.prefixes)
    shape = (int(problem.observations.max()) + 1, n_nodes)
    totals, counts = np.zeros(shape), np.zeros(shape)
    for position in range(nodes.shape[1]):
        rows = position < lengths[action]
        before = problem.mdp.trie.parents[nodes[action[rows], position]]
        np.add.at(totals, (observation[rows], before), returns[step[rows], env[rows], position])
        np.add.at(counts, (observation[rows], before), 1.0)
    average = totals[:, 0].sum() / counts[:, 0].sum()
    values = np.where(counts > 0, totals / np.maximum(counts, 1.0), np.nan)
    values[:, 0] = np.where(counts[:, 0] > 0, values[:, 0], average)
    for node in range(1, n_nodes):
        visited = np.full(len(values), prefixes) & (counts[:, node] > 0)
        values[:, node] = np.where(visited, values[:, node], values[:, problem.mdp.trie.parents[node]])
    return values[problem.observations][None]
