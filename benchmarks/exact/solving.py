"""Value iteration at the level of actions and of tokens; see `benchmarks.exact` for the notation."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.exact.problems import TokenMDP

Floats = NDArray[np.float64]
_Fold = Callable[[Floats, tuple[int, ...]], Floats]
"""Function from Q of the children of a node, `[states, children]`, and their nodes to V of the node, `[states]`."""

_TOLERANCE = 1e-13  # relative change of the values at convergence
_MAX_SWEEPS = 100_000


class ActionSolution(NamedTuple):
    """Fixed point of an action-level backup.

    Attributes:
        values: Values V(o), `[states]`; 0 where terminal.
        q: Values Q(o, a), `[states, actions]`; -inf where not admissible.
    """

    values: Floats
    q: Floats


class TokenSolution(NamedTuple):
    """Fixed point of a token-level backup.

    Attributes:
        values: Values V(o, p) of the prefix of each node, `[states, nodes]`; NaN where no token can follow. Column 0 is
            V(o), 0 where terminal.
        q: Values Q(o, p, w) of the token that leads to each node, `[states, nodes]`; -inf where not admissible, and in
            column 0, the root.
    """

    values: Floats
    q: Floats


def solve_actions(mdp: TokenMDP) -> ActionSolution:
    """Return the action-level optimum: V(o) = max_a Q(o, a)."""
    return _solve_actions(mdp, lambda q: q.max(axis=1))


def solve_tokens(mdp: TokenMDP, gamma_token: float) -> TokenSolution:
    """Return the token-level optimum: V(o, p) = max_w Q(o, p, w), at every prefix.

    With `gamma_token = 1` this is the Bellman backup with Action Decomposition (BAD); with `gamma_token = gamma` the
    naive token-level backup. An action of n tokens has its reward and all that follows scaled by gamma_token^(n-1).

    Raises:
        ValueError: If `gamma_token` is not in (0, 1], or the values do not converge.
    """
    return _solve_tokens(mdp, lambda q, _: q.max(axis=1), gamma_token)


def evaluate_tokens(mdp: TokenMDP, policy: Floats, gamma_token: float) -> TokenSolution:
    """Compute the values of a policy instead of the optimum: V(o, p) = sum_w pi(w | o, p) Q(o, p, w).

    Args:
        mdp: Problem to evaluate the policy in.
        policy: Probability pi of the token that leads to each node, `[states, nodes]`; see `token_reference`.
        gamma_token: Discount inside an action.

    Raises:
        ValueError: If `gamma_token` is not in (0, 1], or the values do not converge.
    """

    def expect(q: Floats, nodes: tuple[int, ...]) -> Floats:
        weights = policy[:, nodes]
        expected: Floats = (weights * np.where(weights > 0, q, 0.0)).sum(axis=1)
        return expected

    return _solve_tokens(mdp, expect, gamma_token)


def solve_soft_actions(mdp: TokenMDP, reference: Floats, beta: float) -> ActionSolution:
    """Return the soft action-level values: V(o) = beta log sum_a pi_ref(a | o) exp(Q(o, a) / beta).

    Args:
        mdp: Problem to solve.
        reference: Reference pi_ref(a | o), `[states, actions]`; 0 where not admissible. Weights need not sum to 1: with
            weight 1 for every action this is the maximum-entropy form of SAC, V(o) = beta log sum_a exp(Q(o, a) /
            beta).
        beta: Temperature, above 0.

    Raises:
        ValueError: If the temperature is not positive, or the values do not converge.
    """
    _check_temperature(beta)
    return _solve_actions(mdp, lambda q: _soft_maximum(q, reference, beta))


def solve_soft_tokens(mdp: TokenMDP, reference: Floats, beta: float) -> TokenSolution:
    """Return the soft token-level values of soft BAD (sBAD).

    V(o, p) = beta log sum_w pi_ref(w | o, p) exp(Q(o, p, w) / beta) at every prefix, with gamma_token 1. V(o) equals
    the soft action-level value with pi_ref(a | o) = prod_j pi_ref(w_j | o, w_<j).

    Args:
        mdp: Problem to solve.
        reference: Reference pi_ref of the token that leads to each node, `[states, nodes]`; column 0 is the total
            weight of the actions, 1 for a distribution. See `token_reference`.
        beta: Temperature, above 0.

    Raises:
        ValueError: If the temperature is not positive, or the values do not converge.
    """
    _check_temperature(beta)
    weights, first = reference.copy(), mdp.trie.children[0]
    weights[:, first] *= reference[:, :1]
    return _solve_tokens(mdp, lambda q, nodes: _soft_maximum(q, weights[:, nodes], beta), gamma_token=1.0)


def greedy_actions(mdp: TokenMDP, solution: TokenSolution) -> NDArray[np.intp]:
    """Return the action that the best token at every prefix spells, `[states]`; -1 where terminal."""
    trie, rows = mdp.trie, np.arange(len(mdp.rewards))
    spelled = np.full(solution.q.shape, -1, dtype=np.intp)
    spelled[:, trie.ends] = np.arange(len(mdp.actions))
    for node in trie.inner:
        nodes = np.array(trie.children[node])
        spelled[:, node] = spelled[rows, nodes[solution.q[:, nodes].argmax(axis=1)]]
    best: NDArray[np.intp] = np.where(mdp.terminal, -1, spelled[:, 0])
    return best


def _solve_actions(mdp: TokenMDP, fold: Callable[[Floats], Floats]) -> ActionSolution:
    values = _settle(mdp, fold)
    return ActionSolution(values, _action_q(mdp, values))


def _solve_tokens(mdp: TokenMDP, fold: _Fold, gamma_token: float) -> TokenSolution:
    if not 0 < gamma_token <= 1:
        raise ValueError(f"Expected gamma_token in (0, 1]; got {gamma_token}. Fix: 1 for BAD, gamma for the naive one.")
    values = _settle(mdp, lambda q: _sweep(mdp, q, fold, gamma_token).values[:, 0])
    return _sweep(mdp, _action_q(mdp, values), fold, gamma_token)


def _settle(mdp: TokenMDP, backup: Callable[[Floats], Floats]) -> Floats:
    """Iterate V <- backup(Q of V) until it converges."""
    values = np.zeros(len(mdp.rewards))
    for _ in range(_MAX_SWEEPS):
        updated = np.where(mdp.terminal, 0.0, backup(_action_q(mdp, values)))
        if np.abs(updated - values).max() <= _TOLERANCE * max(1.0, np.abs(updated).max()):
            return updated
        values = updated
    raise ValueError(
        f"Expected values that settle within {_MAX_SWEEPS:,} sweeps; they did not. "
        "Fix: gamma below 1, or states from which every policy comes to an end."
    )


def _action_q(mdp: TokenMDP, values: Floats) -> Floats:
    """Compute Q(o, a) from state values; -inf where not admissible."""
    return np.where(mdp.admissible, mdp.rewards + mdp.gamma * (mdp.transitions @ values), -np.inf)


def _sweep(mdp: TokenMDP, action_q: Floats, fold: _Fold, gamma_token: float) -> TokenSolution:
    """Back up every prefix once, the longest first."""
    trie = mdp.trie
    q = np.full((len(mdp.rewards), len(trie.prefixes)), -np.inf)
    values = np.full_like(q, np.nan)
    q[:, trie.ends] = action_q
    for node in trie.inner:
        open_here = mdp.n_below[:, node] > 0
        folded = fold(q[:, trie.children[node]], trie.children[node])
        values[:, node] = np.where(open_here, folded, np.nan)
        q[:, node] = np.where(open_here, gamma_token * folded, -np.inf)
    values[:, 0] = np.where(mdp.terminal, 0.0, values[:, 0])
    q[:, 0] = -np.inf
    return TokenSolution(values, q)


def _soft_maximum(q: Floats, weights: Floats, beta: float) -> Floats:
    """Compute the soft maximum, beta log sum_i weights_i exp(q_i / beta), along the last axis."""
    real = weights > 0
    terms = np.where(real, q, -np.inf) / beta + np.log(np.where(real, weights, 1.0))
    soft: Floats = beta * np.logaddexp.reduce(terms, axis=-1)
    return soft


def _check_temperature(beta: float) -> None:
    if not beta > 0:
        raise ValueError(f"Expected a temperature beta above 0; got {beta}. Fix: solve_tokens is the limit beta = 0.")
