"""Exact policy gradients against finite differences, the worked example of the golden vectors, and closed forms."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from exact_episodes import enumerate_episodes

from benchmarks.exact import TokenMDP, evaluate_tokens, random_token_mdp
from benchmarks.exact.gradients import (
    TimedMDP,
    ascend,
    policy_gradients,
    scores,
    timed_values,
    visits,
)

TRUTH = json.loads((Path(__file__).parents[3] / "data/golden/credit/estimators.json").read_text())["truth"]


def timed(mdp: TokenMDP, *, limit: int, seed: int = 0, observations: list[int] | None = None) -> TimedMDP:
    rng = np.random.default_rng(seed)
    start = np.where(mdp.terminal, 0.0, rng.random(len(mdp.rewards)))
    durations = rng.integers(1, 3, size=mdp.rewards.shape)
    known = np.arange(len(mdp.rewards)) if observations is None else np.array(observations)
    return TimedMDP(mdp, start / start.sum(), limit, durations, known)


def random_problem(seed: int) -> tuple[TimedMDP, np.ndarray]:
    rng = np.random.default_rng(seed)
    problem = timed(random_token_mdp(rng, gamma=0.9), limit=6, seed=seed)
    return problem, rng.normal(size=problem.n_logits)


def objective(problem: TimedMDP, logits: np.ndarray, gamma: float) -> float:
    values = timed_values(problem, problem.policy(logits), gamma=gamma).values
    return float(problem.start @ values[0][:, 0])


def shelf() -> TimedMDP:
    """The worked example: states A, B and the end."""
    names, rows = list(TRUTH["actions"]), TRUTH["actions"]
    texts = list(dict.fromkeys(text for some in rows.values() for text, _, _ in some))
    shape = (3, len(texts))
    admissible, rewards, transitions = np.zeros(shape, dtype=bool), np.zeros(shape), np.zeros((*shape, 3))
    for state, name in enumerate(names):
        for text, reward, after in rows[name]:
            at = (state, texts.index(text))
            admissible[at], rewards[at] = True, reward
            transitions[(*at, 2 if after is None else names.index(after))] = 1.0
    mdp = TokenMDP(tuple(tuple(text.split()) for text in texts), admissible, rewards, transitions, 0.9)
    return TimedMDP(mdp, np.array([1.0, 0.0, 0.0]), TRUTH["limit"], np.ones(shape, dtype=int), np.arange(3))


def in_order(problem: TimedMDP, vector: np.ndarray) -> np.ndarray:
    """Reorder a gradient as the parameters of the vectors."""
    trie, found = problem.mdp.trie, {}
    for state, name in enumerate("AB"):
        for node, prefix in enumerate(trie.prefixes):
            if (number := problem.logit_numbers[state, node]) >= 0:
                found[" ".join((name, *prefix))] = vector[number]
    return np.array([found[name] for name in TRUTH["parameters"]])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("gamma", [0.9, 1.0])
def test_the_discounted_gradient_is_that_of_finite_differences(seed: int, gamma: float) -> None:
    problem, logits = random_problem(seed)
    exact, step = policy_gradients(problem, problem.policy(logits), gamma), 1e-4
    numeric = np.empty_like(logits)
    for number in range(len(logits)):
        at = [objective(problem, logits + k * step * np.eye(len(logits))[number], gamma) for k in (-2, -1, 1, 2)]
        numeric[number] = (at[0] - 8 * at[1] + 8 * at[2] - at[3]) / (12 * step)
    np.testing.assert_allclose(exact.disc, numeric, rtol=0, atol=1e-9)
    if gamma == 1.0:
        np.testing.assert_allclose(exact.one, exact.disc, rtol=0, atol=1e-14)
        np.testing.assert_allclose(exact.run, exact.disc, rtol=0, atol=1e-14)


def test_the_worked_example_of_the_vectors() -> None:
    problem = shelf()
    policy = problem.policy(np.zeros(problem.n_logits))
    found = policy_gradients(problem, policy, TRUTH["gamma"])
    for name, vector in zip(("run", "discounted", "undiscounted"), found, strict=True):
        np.testing.assert_allclose(in_order(problem, vector), TRUTH[f"gradient_{name}"], rtol=0, atol=1e-12)
    assert visits(problem, policy).sum() == pytest.approx(TRUTH["objective"]["turns"], abs=1e-12)
    assert objective(problem, np.zeros(9), 0.9) == pytest.approx(TRUTH["objective"]["discounted"], abs=1e-12)
    for key, gamma_token in (("values_bad", 1.0), ("values_ntpo", 0.9)):
        values = timed_values(problem, policy, gamma=0.9, gamma_token=gamma_token).values
        nodes = {" ".join(prefix): node for node, prefix in enumerate(problem.mdp.trie.prefixes)}
        for place, expected in TRUTH[key].items():
            state, clock, prefix = place.split("|")
            assert values[int(clock), "AB".index(state), nodes[prefix]] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_the_running_gradient_is_the_mean_over_episodes(seed: int) -> None:
    problem, logits = random_problem(seed)
    problem = TimedMDP(problem.mdp, problem.start, 3, problem.durations, problem.observations)
    policy = problem.policy(logits)
    each = scores(problem, policy).sum(axis=1)
    pair_of = {(int(o), int(a)): number for number, (o, a) in enumerate(zip(*problem.pairs, strict=True))}
    mean = np.zeros(problem.n_logits)
    for probability, steps in enumerate_episodes(problem, policy):
        to_go = 0.0
        for _, state, action in reversed(steps):
            to_go = problem.mdp.rewards[state, action] + 0.9 * to_go
            mean += probability * to_go * each[pair_of[state, action]]
    np.testing.assert_allclose(mean, policy_gradients(problem, policy, 0.9).run, rtol=0, atol=1e-12)


def test_states_with_one_observation_share_logits() -> None:
    mdp = random_token_mdp(np.random.default_rng(5), gamma=0.9)
    same = TokenMDP(mdp.actions, np.tile(mdp.admissible[0], (4, 1)), mdp.rewards, mdp.transitions, 0.9)
    ended = same.admissible.copy()
    ended[-1] = False
    same = TokenMDP(mdp.actions, ended, mdp.rewards, mdp.transitions, 0.9)
    problem = timed(same, limit=4, observations=[0, 0, 1, 2])
    assert problem.n_logits * 3 == timed(same, limit=4).n_logits * 2
    policy = problem.policy(np.random.default_rng(0).normal(size=problem.n_logits))
    np.testing.assert_array_equal(policy[0], policy[1])
    assert (policy[0] != policy[2]).any()


def test_a_distant_limit_gives_the_values_without_limit() -> None:
    problem, logits = random_problem(2)
    far = TimedMDP(problem.mdp, problem.start, 400, np.ones_like(problem.durations), problem.observations)
    policy = far.policy(logits)
    for gamma_token in (1.0, 0.9):
        expected = evaluate_tokens(problem.mdp, policy, gamma_token).values
        found = timed_values(far, policy, gamma=0.9, gamma_token=gamma_token).values[0]
        open_here = np.isfinite(expected)
        np.testing.assert_allclose(found[open_here], expected[open_here], rtol=0, atol=1e-12)


def test_gradient_steps_raise_the_return() -> None:
    problem, logits = random_problem(0)
    better = ascend(problem, logits, gamma=0.9, rate=0.05, steps=5)
    assert objective(problem, better, 0.9) > objective(problem, logits, 0.9)
