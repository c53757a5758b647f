"""Exact policy gradients of a token problem with a time limit, for softmax policies.

The time limit ends an episode like any other end: the value after it is 0, so values depend on the time that has
passed (the clock), while the policy need not see it. With d(c, o) the expected visits of state o at clock c, rho(p | o)
the probability of prefix p, and values of the policy, the gradients that "the policy gradient" may mean are

    g = sum_c,o d(c, o) sum_p rho(p | o) sum_w pi(w | o, p) Q(c, o, p, w) s(o, p, w),   s = grad log pi(w | o, p)

    g_disc   visits and values discounted: the gradient of E[sum_t gamma^t r_t]
    g_run    visits not discounted, values discounted: the target of the algorithms, as they drop gamma^t
    g_one    neither: the gradient of E[sum_t r_t], the target of trajectory-level methods

All in float64; see `benchmarks.exact` for the notation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.exact.problems import TokenMDP

__all__ = [
    "PolicyGradients",
    "TimedMDP",
    "TimedValues",
    "ascend",
    "policy_gradients",
    "scores",
    "timed_values",
    "visits",
]

Floats = NDArray[np.float64]
Integers = NDArray[np.integer]


@dataclass(frozen=True, eq=False)
class TimedMDP:
    """A token problem with a start, a time limit, and a softmax policy over tokens.

    Attributes:
        mdp: Token problem; its `gamma` is not used here.
        start: Probabilities of the first state, `[states]`.
        limit: Time limit; an action that ends at it or later ends the episode.
        durations: Time that each action takes, at least 1, `[states, actions]`.
        observations: Number of the observation of each state, `[states]`; states with equal ones list the same actions
            and share their logits.
        shared: Number of the logit of each token, `[states, nodes]`, where several observations or prefixes share
            one; None for one logit for each observation, prefix and token.
    """

    mdp: TokenMDP
    start: Floats
    limit: int
    durations: Integers
    observations: Integers
    shared: Integers | None = None

    @cached_property
    def branching(self) -> NDArray[np.bool_]:
        """Whether the token that leads to a node has alternatives, `[states, nodes]`."""
        possible = self.mdp.n_below > 0
        siblings = np.zeros(possible.shape, dtype=np.int64)
        for node in self.mdp.trie.inner:
            children = list(self.mdp.trie.children[node])
            siblings[:, children] = possible[:, children].sum(axis=1, keepdims=True)
        several: NDArray[np.bool_] = possible & (siblings > 1)
        return several

    @cached_property
    def logit_numbers(self) -> Integers:
        """Number of the logit of the token that leads to each node, `[states, nodes]`; -1 for forced tokens."""
        if self.shared is not None:
            return np.where(self.branching, self.shared, -1)
        first = np.unique(self.observations, return_index=True)[1]
        numbers = np.full(self.branching.shape, -1)
        places = self.branching[first]
        numbers_of = np.full(places.shape, -1)
        numbers_of[places] = np.arange(int(places.sum()))
        numbers[:] = numbers_of[np.searchsorted(self.observations[first], self.observations)]
        return numbers

    @property
    def n_logits(self) -> int:
        """Number of logits."""
        return int(self.logit_numbers.max()) + 1

    @cached_property
    def pairs(self) -> tuple[Integers, Integers]:
        """Arrays of the states and the actions of all admissible pairs, in the order of `scores`."""
        states, actions = np.nonzero(self.mdp.admissible)
        return states, actions

    @cached_property
    def paths(self) -> tuple[Integers, Integers]:
        """Nodes after each token of the actions, `[actions, tokens]`, -1 in the padding; and numbers of tokens."""
        lengths = np.array([len(action) for action in self.mdp.actions])
        nodes = np.full((len(lengths), int(lengths.max())), -1)
        for number, (end, n) in enumerate(zip(self.mdp.trie.ends.tolist(), lengths.tolist(), strict=True)):
            node = end
            for position in reversed(range(n)):
                nodes[number, position] = node
                node = int(self.mdp.trie.parents[node])
        return nodes, lengths

    def policy(self, logits: Floats) -> Floats:
        """Compute the probability of the token leading to each node, `[states, nodes]`; 1 in column 0 and if forced."""
        weights = np.where(self.branching, np.exp(logits[self.logit_numbers]), 0.0)
        table = np.where(self.mdp.n_below > 0, 1.0, 0.0)
        for node in self.mdp.trie.inner:
            children = list(self.mdp.trie.children[node])
            totals = weights[:, children].sum(axis=1, keepdims=True)
            shares = weights[:, children] / np.where(totals > 0, totals, 1.0)
            table[:, children] = np.where(self.branching[:, children], shares, table[:, children])
        return table

    def reached(self, policy: Floats) -> Floats:
        """Compute the probability of each prefix in its state, rho(p | o), `[states, nodes]`."""
        reached = policy.copy()
        for node in range(1, len(self.mdp.trie.prefixes)):  # every prefix stands before those that extend it
            reached[:, node] *= reached[:, self.mdp.trie.parents[node]]
        return reached

    def action_probabilities(self, policy: Floats) -> Floats:
        """Compute the probability of each action, `[states, actions]`; 0 where not admissible."""
        chances: Floats = np.where(self.mdp.admissible, self.reached(policy)[:, self.mdp.trie.ends], 0.0)
        return chances


class TimedValues(NamedTuple):
    """Values of a policy at every clock.

    Attributes:
        values: Values V(c, o, p), `[limit, states, nodes]`; 0 where no token can follow.
        q: Values Q(c, o, p, w) of the token that leads to each node, `[limit, states, nodes]`.
    """

    values: Floats
    q: Floats


class PolicyGradients(NamedTuple):
    """The three gradients, `[logits]`; see the docstring of the module."""

    run: Floats
    disc: Floats
    one: Floats


def timed_values(
    problem: TimedMDP, policy: Floats, *, gamma: float, gamma_token: float = 1.0, from_last_token: bool = False
) -> TimedValues:
    """Compute the values of a policy backwards from the time limit.

    Args:
        problem: Problem to evaluate the policy in.
        policy: Probabilities of tokens, see `TimedMDP.policy`.
        gamma: Discount between actions.
        gamma_token: Discount inside an action: 1 for BAD, gamma for NTPO.
        from_last_token: Whether to bootstrap from the value before the last token of the next action (ARCHER), not
            before its first.
    """
    trie = problem.mdp.trie
    shape = (problem.limit, *policy.shape)
    values, q = np.zeros(shape), np.zeros(shape)
    following = np.zeros(shape[:2])  # bootstrapped from by the action before
    before_last = trie.parents[trie.ends]
    chances = problem.action_probabilities(policy)
    for clock in reversed(range(problem.limit)):
        q[clock][:, trie.ends] = _action_q(problem, following, clock, gamma)
        for node in trie.inner:
            children = list(trie.children[node])
            values[clock][:, node] = (policy[:, children] * q[clock][:, children]).sum(axis=1)
            q[clock][:, node] = gamma_token * values[clock][:, node]
        if from_last_token:
            following[clock] = (chances * values[clock][:, before_last]).sum(axis=1)
        else:
            following[clock] = values[clock][:, 0]
    return TimedValues(values, q)


def _action_q(problem: TimedMDP, following: Floats, clock: int, gamma: float) -> Floats:
    """Compute Q(c, o, a) from the values after each time, `[states, actions]`."""
    mdp = problem.mdp
    q = np.where(mdp.admissible, mdp.rewards, 0.0)
    for duration in np.unique(problem.durations[mdp.admissible]).tolist():
        if clock + duration < problem.limit:
            rows = (problem.durations == duration) & mdp.admissible
            q[rows] += gamma * (mdp.transitions[rows] @ following[clock + duration])
    return q


def visits(problem: TimedMDP, policy: Floats, *, gamma: float = 1.0) -> Floats:
    """Compute expected visits of each state at each clock, `[limit, states]`; gamma counts once an action before."""
    mdp = problem.mdp
    chances = problem.action_probabilities(policy)
    expected = np.zeros((problem.limit, len(mdp.rewards)))
    expected[0] = np.where(mdp.terminal, 0.0, problem.start)
    durations = np.unique(problem.durations[mdp.admissible]).tolist()
    for clock in range(problem.limit):
        flow = expected[clock][:, None] * chances
        for duration in durations:
            if clock + duration < problem.limit:
                moving = np.where(problem.durations == duration, flow, 0.0)
                after = np.einsum("oa,oan->n", moving, mdp.transitions)
                expected[clock + duration] += gamma * np.where(mdp.terminal, 0.0, after)
    return expected


def policy_gradients(problem: TimedMDP, policy: Floats, gamma: float) -> PolicyGradients:
    """Compute the exact gradients with respect to the logits."""
    discounted, plain = (timed_values(problem, policy, gamma=discount) for discount in (gamma, 1.0))
    every, early = visits(problem, policy), visits(problem, policy, gamma=gamma)
    return PolicyGradients(
        _gradient(problem, policy, every, discounted),
        _gradient(problem, policy, early, discounted),
        _gradient(problem, policy, every, plain),
    )


def _gradient(problem: TimedMDP, policy: Floats, weights: Floats, solution: TimedValues) -> Floats:
    above = problem.mdp.trie.parents
    advantages = solution.q - solution.values[:, :, above]  # sum_w' pi Q s = pi (Q - V) at each logit
    each = problem.reached(policy) * np.einsum("co,con->on", weights, advantages)
    gradient = np.zeros(problem.n_logits)
    np.add.at(gradient, problem.logit_numbers[problem.branching], each[problem.branching])
    return gradient


def scores(problem: TimedMDP, policy: Floats) -> Floats:
    """Return s(o, p, w), the gradient of the log-probability of each token of each admissible pair.

    Returns:
        Gradients, `[pairs, tokens, logits]`; nonzero only at the logits of a token and its siblings, and 0 for
        forced tokens and padding.
    """
    states, actions = problem.pairs
    nodes, _ = problem.paths
    table = np.zeros((len(states), nodes.shape[1], problem.n_logits))
    trie, numbers = problem.mdp.trie, problem.logit_numbers
    for position in range(nodes.shape[1]):
        node = nodes[actions, position]
        for row in np.flatnonzero((node >= 0) & problem.branching[states, node]).tolist():
            state, chosen = states[row], node[row]
            siblings = [sibling for sibling in trie.children[trie.parents[chosen]] if problem.branching[state, sibling]]
            np.add.at(table[row, position], numbers[state, siblings], -policy[state, siblings])
            table[row, position, numbers[state, chosen]] += 1.0
    return table


def ascend(problem: TimedMDP, logits: Floats, *, gamma: float, rate: float, steps: int = 1) -> Floats:
    """Take exact gradient steps of length `rate` on the discounted return, g_disc."""
    for _ in range(steps):
        gradient = policy_gradients(problem, problem.policy(logits), gamma).disc
        logits = logits + rate * gradient / np.linalg.norm(gradient)
    return logits
