"""Exact mean and variance of the gradient of one episode, for estimators whose future enters through one number.

With C[t+1] the number that flows back from the next action (for GAE, V'[t+1] + lambda A[t+1, 1]; for a return to go,
G[t+1]; 0 after the end), the advantages of an action are affine in it, and so is its own number:

    A[t, j] = alpha[j] + beta[j] C[t+1],     C[t] = c0 + c1 C[t+1]

The coefficients are read off the strategy that trains. It gets three actions: a first one of one token, value 0
and reward 0, whose advantage is gamma C; the action in question; and a last one worth 0 or 1. With the gradient of
the rest of an episode written D[t] = sum_j A[t, j] s[t, j] + D[t+1], the five expectations m1 = E C, m2 = E C^2,
G = E D, H = E C D and T = E |D|^2 follow backwards from the time limit, for every clock and state. No episode is
sampled or listed.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.exact.gradients import Floats, TimedMDP, scores, visits
from poad_sb3.credit.estimators import Rollout

Integers = NDArray[np.integer]


class Strategy(Protocol):
    """The method of `poad_sb3.credit.estimators.Estimator` that is needed here."""

    @property
    def gamma(self) -> float:
        """Discount between actions."""

    def advantages(self, rollout: Rollout) -> NDArray[np.floating]:
        """Compute advantages, `[steps, envs, tokens or 1]`."""


class Affine(NamedTuple):
    """Coefficients of actions; see the module.

    Attributes:
        alpha: Constant part of the advantages, `[rows, tokens]`.
        beta: Factor of C[t+1] in the advantages, `[rows, tokens]`.
        c0: Constant part of C[t], `[rows]`.
        c1: Factor of C[t+1] in C[t], `[rows]`.
    """

    alpha: Floats
    beta: Floats
    c0: Floats
    c1: Floats


class Moments(NamedTuple):
    """Mean, `[dimensions]`, and trace of the covariance of the gradient of one episode."""

    mean: Floats
    trace: float


def affine(strategy: Strategy, rewards: Floats, values: Floats, lengths: Integers, ends: NDArray[np.bool_]) -> Affine:
    """Read the coefficients off a strategy.

    Args:
        strategy: Estimator that trains.
        rewards: Reward of each action, `[rows]`.
        values: Values before the tokens, `[rows, tokens]`.
        lengths: Number of tokens of each action, `[rows]`.
        ends: Whether the episode ends with the action, `[rows]`.
    """
    n = len(rewards)
    parts = []
    for worth in (0.0, 1.0):
        every_value = np.zeros((3, n, values.shape[1]))
        every_value[1], every_value[2, :, :1] = values, worth
        ones = np.ones(n, dtype=np.int64)
        zero = np.zeros((3, n))
        rollout = Rollout(
            rewards=np.stack([np.zeros(n), rewards, np.full(n, worth)]),
            lengths=np.stack([ones, lengths, ones]),
            episode_ends=np.stack([np.zeros(n, dtype=bool), ends, np.ones(n, dtype=bool)]),
            counted=np.ones((3, n), dtype=bool),
            values=every_value,
            last_values=np.zeros(n),
            final_values=zero,
            durations=zero + 1,
            groups=np.zeros((3, n), dtype=np.int64),
            states=np.zeros((3, n), dtype=np.int64),
        )
        advantages = strategy.advantages(rollout)
        inside = np.arange(advantages.shape[2]) < lengths[:, None]
        of_first = np.asarray(advantages[0, :, 0] / strategy.gamma, dtype=np.float64)
        parts.append((np.where(inside, advantages[1], 0.0), of_first))
    (alpha, c0), (with_one, c_with_one) = parts
    return Affine(alpha, with_one - alpha, c0, c_with_one - c0)


class Decisions(NamedTuple):
    """All admissible actions at all clocks that can be reached, clock by clock.

    Attributes:
        clocks: Clock at the action, `[rows]`.
        pairs: Index of the pair of state and action, as in `TimedMDP.pairs`, `[rows]`.
        ends: Whether the episode ends, for any reason, `[rows]`.
    """

    clocks: Integers
    pairs: Integers
    ends: NDArray[np.bool_]


class Chain(NamedTuple):
    """A finite problem under a policy.

    Attributes:
        problem: Finite problem.
        chances: Probability of each action, `[states, actions]`.
        scores: Gradient of the log-probability of each token of each pair, `[pairs, tokens, dimensions]`.
        visits: Expected visits, `[clocks, states]`.
        decisions: Actions at the clocks and states that are visited.
    """

    problem: TimedMDP
    chances: Floats
    scores: Floats
    visits: Floats
    decisions: Decisions

    @property
    def length(self) -> float:
        """Expected number of actions of an episode."""
        return float(self.visits.sum())


def chain_of(problem: TimedMDP, policy: Floats, basis: Floats | None = None) -> Chain:
    """Return a problem under a policy, `[states, nodes]`; gradients in a basis of the parameters' directions."""
    each, reachable = scores(problem, policy), visits(problem, policy)
    states, actions = problem.pairs
    clocks, pairs = np.nonzero(reachable[:, states] > 0)
    out_of_time = clocks + problem.durations[states, actions][pairs] >= problem.limit
    live = problem.mdp.transitions[states, actions][:, ~problem.mdp.terminal].sum(axis=1) > 0
    decisions = Decisions(clocks, pairs, out_of_time | ~live[pairs])
    each = each if basis is None else each @ basis
    return Chain(problem, problem.action_probabilities(policy), each, reachable, decisions)


def path_values(chain: Chain, values: Floats) -> Floats:
    """Return the values before the tokens of each action, `[rows, tokens]`, from `[clocks or 1, states, nodes]`."""
    problem, decisions = chain.problem, chain.decisions
    states, actions = problem.pairs
    nodes, _ = problem.paths
    before = np.where(nodes >= 0, problem.mdp.trie.parents[nodes], 0)[actions[decisions.pairs]]
    clocks = decisions.clocks if len(values) > 1 else np.zeros_like(decisions.clocks)
    values_before: Floats = values[clocks[:, None], states[decisions.pairs][:, None], before]
    return np.where(nodes[actions[decisions.pairs]] >= 0, values_before, 0.0)


def moments(chain: Chain, coefficients: Affine) -> Moments:
    """Compute mean and variance of the gradient of one episode, given the coefficients of each action."""
    problem, decisions = chain.problem, chain.decisions
    states, actions = problem.pairs
    each, coefficients = _without_forced(chain.scores, decisions, coefficients)
    n_states, dim = len(problem.mdp.rewards), each.shape[2]
    later = problem.limit + int(problem.durations.max())
    first, second = carried(chain, coefficients)
    t = np.zeros((later, n_states))
    g, h = (np.zeros((later, n_states, dim)) for _ in range(2))
    live = ~problem.mdp.terminal
    bounds = np.searchsorted(decisions.clocks, np.arange(problem.limit + 1))
    for clock in reversed(range(problem.limit)):
        rows = slice(bounds[clock], bounds[clock + 1])
        pairs = decisions.pairs[rows]
        if not len(pairs):
            continue
        state, action = states[pairs], actions[pairs]
        alpha, beta, c0, c1 = (coefficient[rows] for coefficient in coefficients)
        after = clock + problem.durations[state, action]
        go = problem.mdp.transitions[state, action] * live * ~decisions.ends[rows][:, None]
        n1, n2 = first[rows], second[rows]
        nt, ng, nh = (_after(table, go, after) for table in (t, g, h))
        a = np.einsum("rj,rjd->rd", alpha, each[pairs])
        b = np.einsum("rj,rjd->rd", beta, each[pairs])
        d = a + b * n1[:, None] + ng
        row_h = c0[:, None] * d + c1[:, None] * (a * n1[:, None] + b * n2[:, None] + nh)
        dots = (a * a).sum(1) + 2 * (a * b).sum(1) * n1 + (b * b).sum(1) * n2
        dots += 2 * (a * ng).sum(1) + 2 * (b * nh).sum(1) + nt
        chance = chain.chances[state, action]
        for target, value in ((t, dots), (g, d), (h, row_h)):
            weighted = value * (chance if value.ndim == 1 else chance[:, None])
            np.add.at(target[clock], state, weighted)
    mean = problem.start @ g[0]
    return Moments(mean, float(problem.start @ t[0] - mean @ mean))


def _without_forced(each: Floats, decisions: Decisions, coefficients: Affine) -> tuple[Floats, Affine]:
    """Leave out tokens whose score is 0."""
    chosen = np.abs(each).sum(axis=2) > 0
    width = max(int(chosen.sum(axis=1).max()), 1)
    places = np.argsort(~chosen, axis=1, kind="stable")[:, :width]
    alpha, beta = (
        np.take_along_axis(coefficient, places[decisions.pairs], axis=1)
        for coefficient in (coefficients.alpha, coefficients.beta)
    )
    return np.take_along_axis(each, places[:, :, None], axis=1), coefficients._replace(alpha=alpha, beta=beta)


def carried(chain: Chain, coefficients: Affine) -> tuple[Floats, Floats]:
    """Return E C[t+1] and E C[t+1]^2 of each action, `[rows]` each."""
    problem, decisions = chain.problem, chain.decisions
    states, actions = problem.pairs
    later = problem.limit + int(problem.durations.max())
    m1, m2 = (np.zeros((later, len(problem.mdp.rewards))) for _ in range(2))
    first, second = (np.zeros(len(decisions.clocks)) for _ in range(2))
    bounds = np.searchsorted(decisions.clocks, np.arange(problem.limit + 1))
    for clock in reversed(range(problem.limit)):
        rows = slice(bounds[clock], bounds[clock + 1])
        pairs = decisions.pairs[rows]
        if not len(pairs):
            continue
        state, action = states[pairs], actions[pairs]
        go = problem.mdp.transitions[state, action] * ~problem.mdp.terminal * ~decisions.ends[rows][:, None]
        after = clock + problem.durations[state, action]
        first[rows], second[rows] = _after(m1, go, after), _after(m2, go, after)
        c0, c1, chance = coefficients.c0[rows], coefficients.c1[rows], chain.chances[state, action]
        np.add.at(m1[clock], state, chance * (c0 + c1 * first[rows]))
        np.add.at(m2[clock], state, chance * (c0**2 + 2 * c0 * c1 * first[rows] + c1**2 * second[rows]))
    return first, second


def whitened(chain: Chain, coefficients: Affine, counts: NDArray[np.integer]) -> Affine:
    """Subtract the mean over an infinite batch and divide by its deviation.

    Args:
        chain: Problem under a policy.
        coefficients: Coefficients of the returns.
        counts: Entries of each action in mean and deviation, from its first token on: 1, or all its tokens.
    """
    states, actions = chain.problem.pairs
    state, action = states[chain.decisions.pairs], actions[chain.decisions.pairs]
    weights = (chain.visits[chain.decisions.clocks, state] * chain.chances[state, action])[:, None]
    inside = np.arange(coefficients.alpha.shape[1]) < counts[:, None]
    first, second = (vector[:, None] for vector in carried(chain, coefficients))
    alpha, beta = coefficients.alpha, coefficients.beta
    total = float((weights * inside).sum())
    mean = float((weights * inside * (alpha + beta * first)).sum()) / total
    square = float((weights * inside * (alpha**2 + 2 * alpha * beta * first + beta**2 * second)).sum()) / total
    deviation = np.sqrt(square - mean**2)
    return coefficients._replace(alpha=(alpha - mean) / deviation, beta=beta / deviation)


def _after(table: Floats, go: Floats, after: Integers) -> Floats:
    """Average a table over the next states."""
    if (after == after[0]).all():
        carried_on: Floats = go @ table[after[0]]
        return carried_on
    carried_on = np.zeros((len(go), *table.shape[2:]))
    for clock in np.unique(after).tolist():
        carried_on[after == clock] = go[after == clock] @ table[clock]
    return carried_on
