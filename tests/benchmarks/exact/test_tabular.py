"""The theory of the backups: BAD and sBAD solve the action-level problem, the naive backup another one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy import properties

from benchmarks.exact import (
    TokenMDP,
    action_reference,
    evaluate_tokens,
    greedy_actions,
    random_token_mdp,
    solve_actions,
    solve_soft_actions,
    solve_soft_tokens,
    solve_tokens,
    token_reference,
    uniform_over_actions,
    uniform_over_children,
)

seeds = st.integers(0, 2**32 - 1)
gammas = st.one_of(st.just(1.0), st.floats(0.05, 1.0))
temperatures = st.floats(0.05, 5.0)


def random_problem(seed: int, gamma: float) -> TokenMDP:
    """Everything about it is random: number of states, actions, tokens, lengths."""
    rng = np.random.default_rng(seed)
    n_states, n_splits, n_tokens, max_length = (
        int(rng.integers(*bounds)) for bounds in ((2, 6), (1, 13), (2, 5), (1, 9))
    )
    return random_token_mdp(
        rng, gamma=gamma, n_states=n_states, n_splits=n_splits, n_tokens=n_tokens, max_length=max_length
    )


def one_step(lengths: Sequence[int], rewards: Sequence[float]) -> TokenMDP:
    """A single decision; action i has `lengths[i]` tokens, and its first token identifies it."""
    actions = tuple((number, *["and so on"] * (length - 1)) for number, length in enumerate(lengths))
    n = len(actions)
    transitions = np.zeros((2, n, 2))
    transitions[..., 1] = 1.0
    admissible = np.array([[True] * n, [False] * n])
    return TokenMDP(actions, admissible, np.array([rewards, [0.0] * n]), transitions, gamma=0.9)


def real_rows(mdp: TokenMDP) -> np.ndarray:
    return np.flatnonzero(~mdp.terminal)


# ---------------------------------------------------------------------- solutions and equations


def slow_tokens(mdp: TokenMDP, gamma_token: float, *, n_sweeps: int = 700) -> dict[tuple[int, tuple], float]:
    """Every prefix of every state in its own right, all backed up at once, from zero."""
    listed = {o: [a for a in range(len(mdp.actions)) if mdp.admissible[o, a]] for o in range(len(mdp.admissible))}
    prefixes = {(o, mdp.actions[a][:n]) for o, ones in listed.items() for a in ones for n in range(len(mdp.actions[a]))}
    values = dict.fromkeys(prefixes, 0.0)
    for _ in range(n_sweeps):
        values = {
            (o, p): max(
                [
                    mdp.rewards[o, a]
                    + mdp.gamma * sum(mdp.transitions[o, a, o2] * values.get((o2, ()), 0.0) for o2 in listed)
                    for a in listed[o]
                    if mdp.actions[a][:-1] == p
                ]
                + [
                    gamma_token * values[o, other[1]]
                    for other in prefixes
                    if other[0] == o and other[1][:-1] == p and other[1]
                ]
            )
            for o, p in prefixes
        }
    return values


@pytest.mark.parametrize("gamma_token", [1.0, 0.8])
@pytest.mark.parametrize("gamma", [1.0, 0.7])
def test_token_values_are_the_fixed_point_of_the_backup(gamma: float, gamma_token: float) -> None:
    mdp = random_token_mdp(
        np.random.default_rng(13), gamma=gamma, n_states=3, n_splits=4, max_length=3, end_probability=0.5
    )
    assert {len(action) for action in mdp.actions} == {1, 2, 3}
    values, slow = solve_tokens(mdp, gamma_token).values, slow_tokens(mdp, gamma_token, n_sweeps=200)
    for node, prefix in enumerate(mdp.trie.prefixes):
        for state in range(len(values)):
            expected = slow.get((state, prefix), 0.0 if not prefix else math.nan)
            assert values[state, node] == pytest.approx(expected, abs=1e-9, nan_ok=True), (state, prefix)


def test_a_trie_holds_every_prefix_once() -> None:
    mdp = one_step([3, 1, 2], [0.0, 0.0, 0.0])
    trie, more = mdp.trie, "and so on"
    assert trie.prefixes == ((), (0,), (1,), (2,), (0, more), (2, more), (0, more, more))
    assert trie.parents.tolist() == [-1, 0, 0, 0, 1, 3, 4]
    assert trie.children == ((1, 2, 3), (4,), (), (5,), (6,), (), ())
    assert trie.ends.tolist() == [6, 2, 5]


# ---------------------------------------------------------------------- BAD


@properties
@given(seed=seeds, gamma=gammas)
def test_bad_solves_the_action_level_problem(seed: int, gamma: float) -> None:
    mdp = random_problem(seed, gamma)
    actions, tokens = solve_actions(mdp), solve_tokens(mdp, gamma_token=1.0)
    rows = real_rows(mdp)
    np.testing.assert_allclose(tokens.values[rows, 0], actions.q[rows].max(axis=1), rtol=0, atol=1e-9)
    np.testing.assert_allclose(tokens.q[:, mdp.trie.ends], actions.q, rtol=0, atol=1e-9)
    chosen = greedy_actions(mdp, tokens)
    assert (chosen[mdp.terminal] == -1).all()
    np.testing.assert_allclose(actions.q[rows, chosen[rows]], actions.values[rows], rtol=0, atol=1e-9)


@properties
@given(seed=seeds, gamma=gammas)
def test_bad_values_of_a_policy_are_its_action_level_values(seed: int, gamma: float) -> None:
    mdp = random_problem(seed, gamma)
    policy = token_reference(mdp, np.random.default_rng(seed).random(mdp.rewards.shape) + 0.01)
    policy[:, 0] = 1.0
    weights = action_reference(mdp, policy)
    after = mdp.gamma * np.einsum("oa,oan->on", weights, mdp.transitions)
    expected = np.linalg.solve(np.eye(len(after)) - after, (weights * mdp.rewards).sum(axis=1))
    got = evaluate_tokens(mdp, policy, gamma_token=1.0).values[:, 0]
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-9)


# ---------------------------------------------------------------------- the naive backup


@properties
@given(seed=seeds, gamma=gammas, gamma_token=st.floats(0.05, 1.0))
def test_the_naive_backup_solves_a_problem_scaled_by_length(seed: int, gamma: float, gamma_token: float) -> None:
    """An action of n tokens has its reward and all that follows scaled by gamma_token^(n-1)."""
    mdp = random_problem(seed, gamma)
    scale = gamma_token ** (np.array([len(action) for action in mdp.actions]) - 1)
    values = np.zeros(len(mdp.rewards))
    for _ in range(150):  # an episode goes on with probability 0.75 at most
        q = np.where(mdp.admissible, scale * (mdp.rewards + gamma * mdp.transitions @ values), -np.inf)
        values = np.where(mdp.terminal, 0.0, q.max(axis=1))
    np.testing.assert_allclose(solve_tokens(mdp, gamma_token).values[:, 0], values, rtol=0, atol=1e-9)


@properties
@given(seed=seeds, gamma=gammas, sign=st.sampled_from([1.0, -1.0]))
def test_the_gap_has_the_sign_of_the_rewards_and_grows_as_gamma_token_falls(
    seed: int, gamma: float, sign: float
) -> None:
    """Positive returns are underestimated, negative ones too little counted; more so for a smaller gamma_token."""
    mdp = random_problem(seed, gamma)
    mdp = TokenMDP(mdp.actions, mdp.admissible, sign * (np.abs(mdp.rewards) + 0.1), mdp.transitions, gamma)
    optimum = solve_actions(mdp).values
    gaps = [sign * (optimum - solve_tokens(mdp, number).values[:, 0]) for number in (1.0, 0.95, 0.9, 0.8, 0.5)]
    np.testing.assert_allclose(gaps[0], 0.0, rtol=0, atol=1e-9)
    assert all((wider >= gap - 1e-9).all() for gap, wider in itertools.pairwise(gaps))
    forced = np.array(
        [min(len(a) for a, one in zip(mdp.actions, row, strict=True) if one) > 1 for row in mdp.admissible[:-1]]
    )
    assert (gaps[-1][:-1][forced] > 0.1 * (1 - 0.5) - 1e-9).all()  # where every action has several tokens


@pytest.mark.parametrize(
    ("lengths", "rewards"),
    [((1, 5), (0.5, 1.0)), ((2, 6), (-0.6, -1.0))],
    ids=["a short mediocre action", "a long bad action"],
)
def test_the_naive_greedy_policy_can_be_wrong(lengths: tuple[int, int], rewards: tuple[float, float]) -> None:
    mdp = one_step(lengths, rewards)
    best = int(np.argmax(rewards))
    assert greedy_actions(mdp, solve_tokens(mdp, 1.0)).tolist() == [best, -1]
    assert greedy_actions(mdp, solve_tokens(mdp, 0.8)).tolist() == [1 - best, -1]
    # where it turns: rewards[0] gamma_token^(n_0 - 1) = rewards[1] gamma_token^(n_1 - 1)
    turn = (rewards[0] / rewards[1]) ** (1 / (lengths[1] - lengths[0]))
    assert greedy_actions(mdp, solve_tokens(mdp, turn + 1e-6))[0] == best
    assert greedy_actions(mdp, solve_tokens(mdp, turn - 1e-6))[0] == 1 - best


# ---------------------------------------------------------------------- sBAD


def random_conditionals(mdp: TokenMDP, seed: int) -> np.ndarray:
    """A reference policy drawn token by token."""
    rng = np.random.default_rng((seed, 1))
    conditionals = np.where(mdp.n_below > 0, rng.random(mdp.n_below.shape) + 0.01, 0.0)
    for node in mdp.trie.inner:
        children = list(mdp.trie.children[node])
        conditionals[:, children] /= np.maximum(conditionals[:, children].sum(axis=1, keepdims=True), 1e-300)
    conditionals[:, 0] = ~mdp.terminal
    return conditionals


def slow_soft_actions(mdp: TokenMDP, weights: np.ndarray, beta: float) -> np.ndarray:
    """The action-level equation as it stands."""
    values = np.zeros(len(mdp.rewards))
    for _ in range(150):  # an episode goes on with probability 0.75 at most
        q = mdp.rewards + mdp.gamma * mdp.transitions @ values
        masses = (weights * np.exp(q / beta)).sum(axis=1)
        values = np.where(mdp.terminal, 0.0, beta * np.log(np.where(mdp.terminal, 1.0, masses)))
    return values


@properties
@given(seed=seeds, gamma=gammas, beta=st.floats(0.2, 5.0))
def test_sbad_solves_the_soft_action_level_problem(seed: int, gamma: float, beta: float) -> None:
    mdp = random_problem(seed, gamma)
    reference = random_conditionals(mdp, seed)
    weights = action_reference(mdp, reference)
    np.testing.assert_allclose(weights.sum(axis=1), ~mdp.terminal, rtol=0, atol=1e-12)
    tokens, actions = solve_soft_tokens(mdp, reference, beta), solve_soft_actions(mdp, weights, beta)
    np.testing.assert_allclose(tokens.values[:, 0], actions.values, rtol=0, atol=1e-9)
    np.testing.assert_allclose(tokens.q[:, mdp.trie.ends], actions.q, rtol=0, atol=1e-9)
    np.testing.assert_allclose(actions.values, slow_soft_actions(mdp, weights, beta), rtol=0, atol=1e-9)


@properties
@given(seed=seeds, gamma=gammas, beta=temperatures)
def test_the_soft_policies_of_tokens_and_actions_are_the_same(seed: int, gamma: float, beta: float) -> None:
    """pi(w | o, p) = pi_ref(w | o, p) exp((Q(o, p, w) - V(o, p)) / beta) multiplies to the action-level one."""
    mdp = random_problem(seed, gamma)
    reference = random_conditionals(mdp, seed)
    tokens, weights = solve_soft_tokens(mdp, reference, beta), action_reference(mdp, reference)
    policy = np.zeros_like(reference)
    policy[:, 0] = ~mdp.terminal
    for node in range(1, len(mdp.trie.prefixes)):
        rows = np.flatnonzero(mdp.n_below[:, node])
        advantage = tokens.q[rows, node] - tokens.values[rows, mdp.trie.parents[node]]
        policy[rows, node] = reference[rows, node] * np.exp(advantage / beta)
    actions = solve_soft_actions(mdp, weights, beta)
    expected = np.where(weights > 0, weights * np.exp((actions.q - actions.values[:, None]) / beta), 0.0)
    np.testing.assert_allclose(action_reference(mdp, policy), expected, rtol=0, atol=1e-8)


def lopsided() -> TokenMDP:
    """`a` leads to three actions, `b` is one."""
    actions = (("a", "x"), ("a", "y"), ("a", "z"), ("b",))
    transitions = np.zeros((2, 4, 2))
    transitions[..., 1] = 1.0
    admissible = np.array([[True] * 4, [False] * 4])
    return TokenMDP(actions, admissible, np.array([[0.0, 0.0, 0.0, 1.0], [0.0] * 4]), transitions, gamma=0.9)


def test_uniform_over_actions_counts_what_is_below_and_uniform_over_children_does_not() -> None:
    mdp = lopsided()
    assert dict(zip(mdp.trie.prefixes, uniform_over_actions(mdp)[0], strict=True)) == pytest.approx(
        {(): 1, ("a",): 3 / 4, ("b",): 1 / 4, ("a", "x"): 1 / 3, ("a", "y"): 1 / 3, ("a", "z"): 1 / 3}
    )
    children = uniform_over_children(mdp)
    assert action_reference(mdp, children)[0].tolist() == pytest.approx([1 / 6, 1 / 6, 1 / 6, 1 / 2])
    assert action_reference(mdp, uniform_over_actions(mdp))[0].tolist() == pytest.approx([1 / 4] * 4)


def test_the_sac_form_needs_the_reference_uniform_over_actions() -> None:
    mdp, beta = lopsided(), 0.5
    sac = beta * math.log(3 + math.exp(1 / beta))  # maximum entropy over the four actions
    counted = solve_soft_tokens(mdp, uniform_over_actions(mdp), beta).values[0, 0] + beta * math.log(4)
    walked = solve_soft_tokens(mdp, uniform_over_children(mdp), beta).values[0, 0] + beta * math.log(4)
    assert counted == pytest.approx(sac, abs=1e-12)
    assert walked == pytest.approx(beta * math.log(4 * (3 / 6 + math.exp(1 / beta) / 2)), abs=1e-12)
    assert walked - sac > 0.2


@properties
@given(seed=seeds, gamma=gammas, beta=st.floats(0.2, 5.0))
def test_sbad_in_the_sac_form_equals_maximum_entropy_over_actions(seed: int, gamma: float, beta: float) -> None:
    """The numbers of admissible actions below as weights; the constant beta log |A(o)| enters at every first token."""
    mdp = random_problem(seed, gamma)
    reference, n_actions = token_reference(mdp, mdp.admissible.astype(float)), mdp.admissible.sum(axis=1)
    np.testing.assert_allclose(reference[:, 1:], uniform_over_actions(mdp)[:, 1:], rtol=1e-12)
    np.testing.assert_array_equal(reference[:, 0], n_actions)
    expected = slow_soft_actions(mdp, mdp.admissible.astype(float), beta)
    got = solve_soft_tokens(mdp, reference, beta).values[:, 0]
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-9 * max(1.0, np.abs(expected).max()))


# ---------------------------------------------------------------------- misuse


def changed(**parts: object) -> TokenMDP:
    mdp = lopsided()
    fields = ("actions", "admissible", "rewards", "transitions", "gamma")
    return TokenMDP(**{name: getattr(mdp, name) for name in fields} | parts)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"rewards": np.zeros((2, 3))}, r"Expected admissible and rewards \[states, actions\].*Fix: give all"),
        ({"gamma": 1.1}, r"Expected gamma in \(0, 1\]; got 1.1"),
        ({"transitions": np.full((2, 4, 2), 0.4)}, "probabilities; got others. Fix: let them sum to 1"),
        ({"actions": (("a",), ("a", "y"), ("b",), ("c",))}, "none a prefix of another.*end-of-action token"),
        ({"actions": ((), ("a",), ("b",), ("c",))}, "Expected distinct actions"),
    ],
)
def test_what_is_no_token_mdp_is_refused(parts: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        changed(**parts)


@pytest.mark.parametrize("beta", [0.0, math.nan])
def test_an_impossible_temperature_is_refused(beta: float) -> None:
    mdp = lopsided()
    for solve, reference in (
        (solve_soft_tokens, uniform_over_actions(mdp)),
        (solve_soft_actions, mdp.admissible / 4),
    ):
        with pytest.raises(ValueError, match="Expected a temperature beta above 0"):
            solve(mdp, reference, beta)


def test_values_that_never_settle_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.exact.solving._MAX_SWEEPS", 50)
    endless = TokenMDP((("go",),), np.array([[True]]), np.array([[1.0]]), np.ones((1, 1, 1)), gamma=1.0)
    for solve in (solve_actions, lambda mdp: solve_tokens(mdp, 1.0)):
        with pytest.raises(ValueError, match=r"Expected values that settle within 50 sweeps.*Fix: gamma below 1"):
            solve(endless)
