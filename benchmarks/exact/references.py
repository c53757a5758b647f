"""Reference policies of the soft backups: from distributions over actions to conditionals of tokens, and back."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.exact.problems import TokenMDP

Floats = NDArray[np.float64]


def token_reference(mdp: TokenMDP, weights: Floats) -> Floats:
    """Compute the token conditionals of a distribution over actions: pi(w | o, p) = mass below p + w / mass below p.

    With weight 1 for every admissible action these are the numbers of admissible actions below, as the SAC form needs.

    Args:
        mdp: Problem with the actions.
        weights: Weights of the actions, `[states, actions]`; 0 where not admissible.

    Returns:
        Conditionals, `[states, nodes]`; column 0 is the total weight, 1 for a distribution.
    """
    mass = mdp.add_up(np.where(mdp.admissible, weights, 0.0))
    above = mass[:, mdp.trie.parents]
    conditionals = np.divide(mass, above, out=np.zeros_like(mass), where=above > 0)
    conditionals[:, 0] = mass[:, 0]
    return conditionals


def action_reference(mdp: TokenMDP, conditionals: Floats) -> Floats:
    """Compute weights of actions from token conditionals: pi(a | o) = prod_j pi(w_j | o, w_<j), `[states, actions]`."""
    reached = conditionals.copy()
    for node in range(1, len(mdp.trie.prefixes)):
        reached[:, node] *= reached[:, mdp.trie.parents[node]]
    weights: Floats = reached[:, mdp.trie.ends]
    return weights


def uniform_over_actions(mdp: TokenMDP) -> Floats:
    """Return the conditionals of the uniform distribution over the admissible actions, `[states, nodes]`."""
    return token_reference(mdp, mdp.admissible / np.maximum(mdp.admissible.sum(axis=1, keepdims=True), 1))


def uniform_over_children(mdp: TokenMDP) -> Floats:
    """Return the conditionals of a walk that is uniform at every node of the trie, `[states, nodes]`.

    It differs from `uniform_over_actions` wherever some tokens have more actions below them than their siblings.
    """
    conditionals, reachable = np.zeros(mdp.n_below.shape), mdp.n_below > 0
    conditionals[:, 0] = reachable[:, 0]
    for node in mdp.trie.inner:
        real = reachable[:, mdp.trie.children[node]]
        conditionals[:, mdp.trie.children[node]] = real / np.maximum(real.sum(axis=1, keepdims=True), 1)
    return conditionals
