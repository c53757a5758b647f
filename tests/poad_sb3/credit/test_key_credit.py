"""Where credit sits on KeyToken, whose actions differ in one token: by exact values, and after training."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.exact import evaluate_tokens, token_reference
from benchmarks.performance.theory import keytoken_table
from lang_envs.envs.keytoken.env import KeyTokenEnv


@pytest.mark.parametrize("n_tokens", [1, 2, 7, 64])
@pytest.mark.parametrize("gamma_token", [1.0, 0.9])
def test_exact_credit_sits_on_the_key_token_alone(n_tokens: int, gamma_token: float) -> None:
    """The advantage of a token, Q(o, p, w) - V(o, p), under the uniform policy."""
    env = KeyTokenEnv(n_tokens=n_tokens, key_position=0, n_actions=3, horizon=2)
    mdp = keytoken_table(env, 0.95)
    solution = evaluate_tokens(mdp, token_reference(mdp, mdp.admissible.astype(float)), gamma_token)
    credit = np.zeros(max(map(len, mdp.actions)))
    alive = mdp.admissible.any(axis=1)
    for node, (prefix, parent) in enumerate(zip(mdp.trie.prefixes, mdp.trie.parents, strict=True)):
        if prefix:
            advantages = solution.q[alive, node] - solution.values[alive, parent]
            credit[len(prefix) - 1] = max(credit[len(prefix) - 1], float(np.abs(advantages).max()))
    assert credit[0] > 0.1 * gamma_token**n_tokens  # under the naive backup little of it is left at the key
    assert np.abs(credit[1:]).max(initial=0.0) < 1e-12
