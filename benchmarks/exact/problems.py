"""Token-MDPs: finite problems whose actions are sequences of tokens, and random ones."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Prefix = tuple[Hashable, ...]


class Trie(NamedTuple):
    """The prefixes of a set of prefix-free actions.

    Attributes:
        prefixes: Prefixes, the empty one first, each before those that extend it.
        parents: Node of each prefix without its last token, `[nodes]`; -1 for the empty one.
        children: Nodes of the prefixes that are longer by one token; empty where an action is complete.
        ends: Node of each complete action, `[actions]`.
    """

    prefixes: tuple[Prefix, ...]
    parents: NDArray[np.intp]
    children: tuple[tuple[int, ...], ...]
    ends: NDArray[np.intp]

    @property
    def inner(self) -> list[int]:
        """Nodes that tokens can follow, every one after those below it."""
        return [node for node in reversed(range(len(self.prefixes))) if self.children[node]]


@dataclass(frozen=True, eq=False)
class TokenMDP:
    """A finite decision problem whose actions are token sequences.

    Attributes:
        actions: Tokens of each action; none is a prefix of another.
        admissible: Whether a state has an action, `[states, actions]`; a state without any is terminal, its value 0.
        rewards: Reward r(o, a), paid once for the whole action, `[states, actions]`.
        transitions: Probability P(o' | o, a), `[states, actions, states]`.
        gamma: Discount between actions, in (0, 1].

    Raises:
        ValueError: If shapes do not fit, actions are not prefix-free, or numbers are out of range.
    """

    actions: tuple[Prefix, ...]
    admissible: Bools
    rewards: Floats
    transitions: Floats
    gamma: float

    def __post_init__(self) -> None:
        """Refuse invalid problems."""
        shapes = (self.admissible.shape, self.rewards.shape, self.transitions.shape)
        n_states, n_actions = len(self.admissible), len(self.actions)
        if shapes != ((n_states, n_actions), (n_states, n_actions), (n_states, n_actions, n_states)):
            raise ValueError(
                "Expected admissible and rewards [states, actions], transitions [states, actions, states]; got "
                f"{shapes} with {n_actions} actions. Fix: give all of them the same states and actions."
            )
        if not 0 < self.gamma <= 1:
            raise ValueError(f"Expected gamma in (0, 1]; got {self.gamma}. Fix: gamma=1 for no discount.")
        sums = self.transitions.sum(axis=2)[self.admissible]
        if (self.transitions < 0).any() or not np.allclose(sums, 1, rtol=0, atol=1e-12):
            raise ValueError("Expected rows of transitions that are probabilities; got others. Fix: let them sum to 1.")
        prefixes = {action[:n] for action in self.actions for n in range(len(action))}
        if len(set(self.actions)) < n_actions or prefixes & set(self.actions) or () in self.actions:
            raise ValueError(
                f"Expected distinct actions, none a prefix of another; got {self.actions}. "
                "Fix: append the end-of-action token."
            )

    @cached_property
    def trie(self) -> Trie:
        """Prefixes of the actions."""
        longest = max(map(len, self.actions))
        prefixes = tuple(
            dict.fromkeys(action[:n] for n in range(longest + 1) for action in self.actions if n <= len(action))
        )
        node = {prefix: number for number, prefix in enumerate(prefixes)}
        parents = np.array([-1] + [node[prefix[:-1]] for prefix in prefixes[1:]])
        children = tuple(tuple(np.flatnonzero(parents == number).tolist()) for number in range(len(prefixes)))
        return Trie(prefixes, parents, children, np.array([node[action] for action in self.actions]))

    @cached_property
    def terminal(self) -> Bools:
        """Return whether a state is terminal (has no action), `[states]`."""
        return np.logical_not(self.admissible.any(axis=1))

    @cached_property
    def n_below(self) -> NDArray[np.intp]:
        """Number of admissible actions that begin with each prefix, `[states, nodes]`."""
        return self.add_up(self.admissible.astype(np.float64)).astype(np.intp)

    def add_up(self, weights: Floats) -> Floats:
        """Sum the weights of all actions that begin with each prefix: from `[states, actions]` to `[states, nodes]`."""
        mass = np.zeros((len(weights), len(self.trie.prefixes)))
        mass[:, self.trie.ends] = weights
        for node in self.trie.inner:
            mass[:, node] = mass[:, self.trie.children[node]].sum(axis=1)
        return mass


def random_token_mdp(
    rng: np.random.Generator,
    *,
    gamma: float,
    n_states: int = 4,
    n_splits: int = 6,
    n_tokens: int = 3,
    max_length: int = 6,
    end_probability: float = 0.25,
) -> TokenMDP:
    """Return a random problem: actions of different lengths with shared prefixes, different ones in every state.

    Every action ends the episode with at least `end_probability`, so that values exist for gamma = 1 too.

    Args:
        rng: Random generator.
        gamma: Discount between actions.
        n_states: Number of states, the last of them terminal; at least 2.
        n_splits: Number of times that a leaf of the trie, drawn at random, grows children; at least 1.
        n_tokens: Size of the vocabulary, and maximum number of children.
        max_length: Maximum number of tokens of an action.
        end_probability: Minimum probability of going to the terminal state.
    """
    actions = _random_actions(rng, n_splits, n_tokens, max_length)
    shape = (n_states, len(actions))
    admissible = rng.random(shape) < 0.7
    admissible[np.arange(n_states), rng.integers(len(actions), size=n_states)] = True  # at least one
    admissible[-1] = False
    transitions = (1 - end_probability) * rng.dirichlet(np.ones(n_states), size=shape)
    transitions[..., -1] += end_probability
    return TokenMDP(actions, admissible, rng.normal(size=shape), transitions, gamma)


def _random_actions(rng: np.random.Generator, n_splits: int, n_tokens: int, max_length: int) -> tuple[Prefix, ...]:
    """Return the leaves of a random tree; nodes with one child, so forced tokens, are among them."""
    leaves: list[Prefix] = [()]
    for _ in range(n_splits):
        growing = [leaf for leaf in leaves if len(leaf) < max_length]
        if not growing:
            break
        leaf = growing[int(rng.integers(len(growing)))]
        leaves.remove(leaf)
        tokens = rng.permutation(n_tokens)[: rng.integers(1, n_tokens + 1)]
        leaves += [(*leaf, int(token)) for token in tokens]
    return tuple(leaves)
