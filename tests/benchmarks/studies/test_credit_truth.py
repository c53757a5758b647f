"""`credit-truth`: exact moments against enumeration by the strategies, closed forms, samples, and the report."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from exact_episodes import enumerate_episodes

from benchmarks.exact.gradients import TimedMDP, policy_gradients, scores, timed_values, visits
from benchmarks.studies.credit_truth.cases import cases_of
from benchmarks.studies.credit_truth.critics import fitted_values
from benchmarks.studies.credit_truth.measuring import TruthJob, compared, exact_moments, problem_of, run_truth
from benchmarks.studies.credit_truth.moments import Moments, chain_of, path_values
from benchmarks.studies.credit_truth.predictions import PREDICTIONS, Check, grpo_factor
from benchmarks.studies.credit_truth.problems import Additive, Problem, explored, worked_example
from benchmarks.studies.credit_truth.rollouts import Sample, sample_episodes
from benchmarks.studies.credit_truth.rows import Anchored, Row, critic_free_rows, critic_rows, group_rows
from benchmarks.studies.credit_truth.sampling import sample_groups
from benchmarks.studies.credit_truth.study import CREDIT_TRUTH, FULL
from benchmarks.studies.engine.pieces import Pieces
from benchmarks.studies.engine.study import Options

TRUTH = json.loads((Path(__file__).parents[3] / "data/golden/credit/estimators.json").read_text())["truth"]
EXAMPLE = worked_example().timed
UNIFORM = EXAMPLE.policy(np.zeros(EXAMPLE.n_logits))
ROWS = {row.name: row for row in (*critic_rows(0.9), *critic_free_rows(0.9))}
GOLDEN = {
    "action GAE (TWOSOME, turn-PPO)": "action_gae lambda .95",
    "BAD, lambda_token 1": "bad lambda .95 lambda_token 1",
    "BAD, lambda_token 0.95": "bad lambda .95 lambda_token .95",
    "BAD, lambda_token 0.8": "bad lambda .95 lambda_token .8",
    "BAD, lambda_token 0": "bad lambda .95 lambda_token 0",
    "NTPO, lambda_token 1": "ntpo own exact values lambda .95 lambda_token 1",
    "ARCHER": "archer own exact values lambda .95 lambda_token 1",
    "bi-level GAE, lambda_token 0.8": "bilevel_corrected lambda .95 lambda_token .8",
    "bi-level GAE as published (last anchor)": "bilevel_last_anchor lambda .95 lambda_token .95",
    "turn GAE, anchor mean": "turn_gae anchor mean lambda .95",
    "turn GAE, anchor last": "turn_gae anchor last lambda .95",
    "return to go": "returns",
    "ReBN, infinite batch": "rebn infinite batch",
}


def exact_values(problem: TimedMDP, policy: np.ndarray, row: Row, gamma: float) -> np.ndarray:
    return timed_values(
        problem, policy, gamma=gamma, gamma_token=row.gamma_token, from_last_token=row.from_last_token
    ).values


def measured(problem: TimedMDP, policy: np.ndarray, row: Row, values: np.ndarray) -> Moments:
    chain = chain_of(problem, policy)
    return exact_moments(chain, row, path_values(chain, values))


def enumerated(problem: TimedMDP, policy: np.ndarray, row: Row, values: np.ndarray) -> Moments:
    """All episodes as one rollout of the strategy, one in each column."""
    episodes = list(enumerate_episodes(problem, policy))
    chances = np.array([episode.probability for episode in episodes])
    pair_of = {(int(o), int(a)): number for number, (o, a) in enumerate(zip(*problem.pairs, strict=True))}
    longest = max(len(episode.steps) for episode in episodes)
    pairs, counted = np.zeros((longest, len(episodes)), dtype=int), np.zeros((longest, len(episodes)), dtype=bool)
    nodes, lengths = problem.paths
    of_tokens = np.zeros((*pairs.shape, nodes.shape[1]))
    for column, (_, steps) in enumerate(episodes):
        for place, (clock, state, action) in enumerate(steps):
            pairs[place, column], counted[place, column] = pair_of[state, action], True
            before = problem.mdp.trie.parents[nodes[action, : lengths[action]]]
            of_tokens[place, column, : lengths[action]] = values[clock if len(values) > 1 else 0, state, before]
    ends = counted & ~np.vstack([counted[1:], np.zeros_like(counted[:1])])
    rollout = Sample(pairs, counted, ends).rollout(problem)
    strategy: Any = row.strategy
    if row.anchor != "first":
        strategy = Anchored(row.strategy, row.anchor)
        rollout = rollout._replace(values=of_tokens)
    else:
        rollout = rollout._replace(values=of_tokens[..., : row.strategy.n_values(nodes.shape[1])])
    advantages = np.broadcast_to(strategy.advantages(rollout), of_tokens.shape)
    inside = np.arange(nodes.shape[1]) < rollout.lengths[..., None]
    if row.per_token:
        advantages = advantages / rollout.lengths[..., None]
    weighted = np.where(inside & counted[..., None], advantages, 0.0)[..., None] * scores(problem, policy)[pairs]
    gradients = weighted.sum(axis=(0, 2))
    mean = chances @ gradients
    return Moments(mean, float(chances @ (gradients**2).sum(axis=1) - mean @ mean))


def skewed(problem: TimedMDP, seed: int) -> np.ndarray:
    return problem.policy(np.random.default_rng(seed).normal(size=problem.n_logits))


# ---------------------------------------------------------------------- exact moments


@pytest.mark.parametrize("name", GOLDEN)
def test_moments_are_those_of_the_golden_vectors(name: str) -> None:
    found = measured(EXAMPLE, UNIFORM, ROWS[name], exact_values(EXAMPLE, UNIFORM, ROWS[name], 0.9))
    expected = TRUTH["estimators"][GOLDEN[name]]
    np.testing.assert_allclose(np.sort(found.mean), np.sort(expected["mean"]), rtol=0, atol=1e-12)
    assert found.trace == pytest.approx(expected["trace_of_covariance"], rel=1e-10)


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if not row.whitened])
def test_moments_with_any_values_are_those_of_all_episodes(name: str) -> None:
    """The backward recursion against the strategy itself, on a policy that is not uniform and a critic that errs."""
    policy = skewed(EXAMPLE, 3)
    values = np.random.default_rng(4).normal(size=(1, *policy.shape))
    found = measured(EXAMPLE, policy, ROWS[name], values)
    expected = enumerated(EXAMPLE, policy, ROWS[name], values)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=0, atol=1e-12)
    assert found.trace == pytest.approx(expected.trace, rel=1e-11)


def test_moments_with_chance_in_the_world() -> None:
    problem = problem_of("key-token 3", share=True).timed
    problem = TimedMDP(
        problem.mdp, problem.start, 2, problem.durations, problem.observations, problem.shared
    )  # 5 keys and 5 actions, twice
    row, policy = critic_rows(0.95)[3], skewed(problem, 0)
    values = np.random.default_rng(4).normal(size=(1, *policy.shape))
    found, expected = measured(problem, policy, row, values), enumerated(problem, policy, row, values)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=0, atol=1e-12)
    assert found.trace == pytest.approx(expected.trace, rel=1e-11)


def test_undefined_ratios_are_none() -> None:
    none = dict.fromkeys(("bias", "scale", "cosine", "nsr", "snr_per_step"))
    assert compared(Moments(np.ones(2), 1.0), np.zeros(2), 3.0) == none
    still = compared(Moments(np.zeros(2), 1.0), np.ones(2), 3.0)
    assert still == {"bias": 1.0, "scale": 0.0, "cosine": None, "nsr": None, "snr_per_step": None}
    exact = compared(Moments(np.ones(2), 0.0), np.ones(2), 3.0)
    assert exact == pytest.approx({"bias": 0.0, "scale": 1.0, "cosine": 1.0, "nsr": 0.0, "snr_per_step": None})
    twice = compared(Moments(2 * np.ones(2), 4.0), np.ones(2), 3.0)
    assert twice == pytest.approx({"bias": 1.0, "scale": 2.0, "cosine": 1.0, "nsr": 0.5, "snr_per_step": 2 / 3})


# ---------------------------------------------------------------------- problems


def test_key_token_has_its_closed_form() -> None:
    problem = problem_of("key-token 4", share=True)
    logits = np.random.default_rng(0).normal(size=25)
    pi = np.exp(logits.reshape(5, 5))
    pi /= pi.sum(axis=1, keepdims=True)
    expected = pi * (np.eye(5) - np.diag(pi)[:, None]) / 5
    policy = problem.timed.policy(logits)
    for vector in policy_gradients(problem.timed, policy, 0.95)[::2]:
        np.testing.assert_allclose(vector.reshape(5, 5), expected, rtol=0, atol=1e-14)
    assert problem.success_rate(policy) == pytest.approx(np.diag(pi).mean() ** 4, abs=1e-14)


def test_multikey_has_its_closed_form() -> None:
    right = 0.75
    problem = problem_of("multikey 2 1 2 3", share=True)
    logits = np.tile([math.log(right / (1 - right)), 0.0], 3)
    policy = problem.timed.policy(logits)
    found = policy_gradients(problem.timed, policy, 0.95).run
    form = Additive(2, 1, 3, 2, right, 0.9025)
    assert found @ found == pytest.approx(form.squared_gradient, rel=1e-12)
    assert problem.success_rate(policy) == pytest.approx(right**6, rel=1e-12)


def played(problem: Problem, env_id: str, seed: int) -> None:
    """Compare an episode of random actions with the arrays, step by step."""
    env: Any = gym.make(env_id, disable_env_checker=True).unwrapped
    text, info = env.reset(seed=0)
    rng, timed_one, state = np.random.default_rng(seed), problem.timed, 0
    phrases = list(dict.fromkeys(action for _, actions in problem.texts for action in actions))
    ended = clock = 0
    while not ended:
        actions = info["admissible_actions"]
        assert problem.texts[timed_one.observations[state]] == (str(text), tuple(actions))
        action = phrases.index(actions[rng.integers(len(actions))])
        assert timed_one.mdp.admissible[state].sum() == len(actions)
        text, reward, terminated, truncated, info = env.step_text(phrases[action])
        assert reward == timed_one.mdp.rewards[state, action]
        assert info["success"] == problem.successes[state, action]
        clock += int(timed_one.durations[state, action])
        state = int(timed_one.mdp.transitions[state, action].argmax())
        assert timed_one.mdp.terminal[state] == terminated
        ended = terminated or truncated
        assert ended == (terminated or clock >= timed_one.limit)


@pytest.mark.parametrize(
    ("env_id", "states"), [("VirtualHome-FoodPreparation-v0", 45), ("Overcooked-TomatoSalad-v0", 24)]
)
def test_an_explored_environment_plays_like_the_environment(env_id: str, states: int) -> None:
    problem = explored(env_id)
    assert len(problem.timed.mdp.rewards) == states + 1
    for seed in range(4):
        played(problem, env_id, seed)


# ---------------------------------------------------------------------- samples and critics


def test_samples_have_the_probabilities_of_the_policy() -> None:
    problem = problem_of("key-token 2", share=True).timed
    policy = skewed(problem, 1)
    chances = problem.action_probabilities(policy)
    sample = sample_episodes(problem, chances, 20_000, np.random.default_rng(0), shared=4)
    assert (sample.counted.sum(axis=0) == 4).all()
    counts = np.bincount(sample.pairs[sample.counted], minlength=len(problem.pairs[0])) / 20_000
    expected = (visits(problem, policy).sum(axis=0)[:, None] * chances)[problem.pairs]
    np.testing.assert_allclose(counts, expected, rtol=0, atol=0.02)
    states = problem.pairs[0][sample.pairs]
    assert (states.reshape(4, -1, 4) == states.reshape(4, -1, 4)[..., :1]).all()  # a block shares the keys


def test_a_fitted_critic_is_the_mean_of_the_returns_that_followed() -> None:
    sample = sample_episodes(EXAMPLE, EXAMPLE.action_probabilities(UNIFORM), 40, np.random.default_rng(0))
    states, actions = EXAMPLE.pairs
    followed: dict[tuple[int, tuple[Any, ...]], list[float]] = {}
    for column in range(40):
        to_go = 0.0
        for place in reversed(range(int(sample.counted[:, column].sum()))):
            pair = sample.pairs[place, column]
            state, action = int(states[pair]), int(actions[pair])
            words = EXAMPLE.mdp.actions[action]
            to_go = EXAMPLE.mdp.rewards[state, action] + 0.9 * to_go
            for n in range(len(words)):
                followed.setdefault((state, words[:n]), []).append(0.9 ** (len(words) - 1 - n) * to_go)
            to_go *= 0.9 ** (len(words) - 1)
    found = fitted_values(EXAMPLE, sample, gamma=0.9, gamma_token=0.9, prefixes=True)[0]
    alone = fitted_values(EXAMPLE, sample, gamma=0.9, gamma_token=0.9, prefixes=False)[0]
    nodes = {prefix: node for node, prefix in enumerate(EXAMPLE.mdp.trie.prefixes)}
    for (state, prefix), seen in followed.items():
        assert found[state, nodes[prefix]] == pytest.approx(np.mean(seen), abs=1e-12)
        assert alone[state, nodes[prefix]] == pytest.approx(np.mean(followed[state, ()]), abs=1e-12)


def test_sampled_groups_of_two_are_those_of_all_pairs() -> None:
    basis, truth = scores(EXAMPLE, UNIFORM).sum(axis=1), policy_gradients(EXAMPLE, UNIFORM, 0.9)
    found = sample_groups(EXAMPLE, UNIFORM, basis, truth, gamma=0.9, chunks=3, seed=0)
    names = {
        "RLOO": "rloo",
        "Dr. GRPO": "dr_grpo",
        "GRPO": "grpo",
        "step leave-one-out": "step_index_loo",
        "anchor leave-one-out": "anchor_loo",
        "GiGPO step part, mean": "gigpo_step_mean",
        "GiGPO step part, mean and deviation": "gigpo_step_mean_std",
    }
    assert set(names.values()) <= set(TRUTH["groups_of_two"])
    for row, name in names.items():
        expected, one = TRUTH["groups_of_two"][name], found[row, 2]
        error = np.linalg.norm(np.sort(one.mean) - np.sort(expected["mean"]))
        assert error <= 3 * one.standard_error + 1e-5, row
        assert one.trace == pytest.approx(expected["trace_of_covariance"], rel=0.1)
    assert {name for name, _ in found} == {row.name for row in group_rows(0.9)}


# ---------------------------------------------------------------------- predictions and the report


def test_the_scale_of_grpo() -> None:
    eight = [grpo_factor(p, 8) for p in (0.01, 0.05, 0.1, 0.25, 0.5)]
    np.testing.assert_allclose(eight, [2.440, 2.313, 2.177, 1.895, 1.736], rtol=0, atol=6e-4)
    assert grpo_factor(0.3, 2) == pytest.approx(0.7071, abs=1e-4)


JOBS = (
    TruthJob("worked-example", ("worked-example",), "tabular", "start", (0.9, 1.0), 1),
    TruthJob("lengths", ("multikey 1 0 2 1", "multikey 2 1 2 2", "multikey 1 1 4 2"), "tabular", "0.75", (0.95,), 0),
)


def test_a_run_is_reproduced_bit_for_bit_and_its_predictions_hold() -> None:
    results = [run_truth(job) for job in JOBS]
    assert json.dumps(run_truth(JOBS[0])) == json.dumps(results[0])
    cases = [
        case for job, result in zip(JOBS, results, strict=True) for case in cases_of(job.parameters, job.policy, result)
    ]
    assert len(cases) == 5
    n_checks = 0
    for prediction in PREDICTIONS.values():
        checks = list(prediction(cases))
        n_checks += len(checks)
        assert [check for check in checks if not check.holds] == []
    assert n_checks > 120


def test_a_wrong_estimator_breaks_a_prediction() -> None:
    case = next(cases_of("tabular", "0.75", run_truth(JOBS[1])))
    key = "BAD, lambda_token 0.8 | exact"
    wrong = case._replace(rows={**case.rows, key: case.rows[key]._replace(bias=2e-10)})
    checks = list(PREDICTIONS["exact critic"]([wrong]))
    assert sum(not check.holds for check in checks) == 1
    assert Check("", None, None, 0.1).holds
    assert not Check("", None, 0.1, 0.1).holds


def test_jobs_differ_and_tasks_can_be_named() -> None:
    assert list(CREDIT_TRUTH.jobs(Options(), Pieces())) == list(FULL)
    assert len({job.name for job in FULL}) == len(FULL)
    assert {job.title for job in CREDIT_TRUTH.jobs(Options(tasks=("lengths",)), Pieces())} == {"lengths"}


def test_the_pocket_model_is_a_policy_with_an_exact_jacobian() -> None:
    from benchmarks.studies.credit_truth.lora import PocketPolicy, factor

    problem = problem_of("multikey 1 0 2 1", share=False)
    pocket = PocketPolicy(problem)
    before, jacobian = pocket.logits().detach().numpy(), pocket.jacobian()
    assert jacobian.shape == (problem.timed.n_logits, sum(parameter.numel() for parameter in pocket.parameters))
    assert before.dtype == np.float64
    basis = factor(jacobian)
    np.testing.assert_allclose(basis @ basis.T, jacobian @ jacobian.T, rtol=0, atol=1e-12)
    step = 1e-2  # the normalisation layers of transformers round to float32
    gradient = policy_gradients(problem.timed, problem.timed.policy(before), 0.95).disc @ jacobian
    pocket.ascend(gamma=0.95, rate=step)
    moved = pocket.logits().detach().numpy() - before
    expected = step * jacobian @ gradient / np.linalg.norm(gradient)
    np.testing.assert_allclose(moved, expected, rtol=0, atol=0.02 * np.abs(expected).max())
