"""The theory of token-level backups as a small tool: finite problems whose actions are sequences of tokens.

A `TokenMDP` is an action-level problem. Its actions are prefix-free, so that they form a trie, and the token process is
deterministic: saying token w after prefix p leads to prefix p + w, and the reward comes with the last token. On it,
everything is exact: value iteration at the level of actions and of tokens, with and without a discount inside actions,
hard and soft (entropy- or KL-regularised).

Notation: o is a state (observation), a an action, w a token, p a prefix of an action (the empty one included);

    Q(o, a) = r(o, a) + gamma sum_o' P(o' | o, a) V(o')                                          of a whole action
    Q(o, p, w) = gamma_token V(o, p + w)   if p + w is not complete,   Q(o, a)   if p + w = a    of a token

Numbers are arrays `[states]`, `[states, actions]` or `[states, nodes]`, a node being a prefix of `TokenMDP.trie`.
"""

from benchmarks.exact.problems import TokenMDP, Trie, random_token_mdp
from benchmarks.exact.references import (
    action_reference,
    token_reference,
    uniform_over_actions,
    uniform_over_children,
)
from benchmarks.exact.solving import (
    ActionSolution,
    TokenSolution,
    evaluate_tokens,
    greedy_actions,
    solve_actions,
    solve_soft_actions,
    solve_soft_tokens,
    solve_tokens,
)

__all__ = [
    "ActionSolution",
    "TokenMDP",
    "TokenSolution",
    "Trie",
    "action_reference",
    "evaluate_tokens",
    "greedy_actions",
    "random_token_mdp",
    "solve_actions",
    "solve_soft_actions",
    "solve_soft_tokens",
    "solve_tokens",
    "token_reference",
    "uniform_over_actions",
    "uniform_over_children",
]
