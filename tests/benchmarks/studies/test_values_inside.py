"""`values-inside`: its ceiling has exact values, and no committed run of another study stands for one of its own."""

from __future__ import annotations

import itertools

import gymnasium as gym
import numpy as np
import pytest
import torch

from benchmarks.studies.credit_truth.problems import independent
from benchmarks.studies.remedies import REMEDIES, DoublyRobustGAE, LongTargetsCritic
from benchmarks.studies.tasks import GAMMA
from benchmarks.studies.values_inside import OF_REMEDIES, ExactValues
from poad_sb3 import POAD
from poad_sb3.credit.estimators import GAE, Rollout
from poad_sb3.language_model.packing import TokenRow
from poad_sb3.prompts import Question


def test_exact_values_are_expected_returns_and_a_martingale() -> None:
    keys = {"k": 2, "d": 0, "horizon": 2}
    problem = independent("MultiKey-v0", share=False, **keys)
    model = POAD("LLMPolicy", gym.make("MultiKey-v0", **keys), n_steps=16, gamma=GAMMA, learning_rate=0.05, seed=0)
    model.learn(32)  # away from the uniform policy
    model.learn(16, callback=ExactValues(problem))
    text, actions = problem.texts[-1]  # at the last step: the value is the expected reward
    chances = model.policy.action_probabilities(text, actions)
    rewards = dict(zip(actions, problem.timed.mdp.rewards[len(problem.texts) - 1], strict=True))
    expected = sum(chances[action] * rewards[action] for action in actions)
    paths = [model.policy.distribution.path(Question(text, actions), action) for action in actions]
    values = model.policy.token_values(paths, [len(path.action) for path in paths]).values
    for path, row in zip(paths, values, strict=True):
        assert row[0] == pytest.approx(expected, rel=1e-5)
        below = [n for n, other in enumerate(paths) if other.action[:1] == path.action[:1]]
        mass = np.array([chances[actions[n]] for n in below])
        worth = np.array([rewards[actions[n]] for n in below])
        assert row[1] == pytest.approx(mass @ worth / mass.sum(), rel=1e-5)
    assert np.ptp([row[1] for row in values]) > 0.05


def test_doubly_robust_advantages_are_unbiased_with_any_values_that_are_a_martingale() -> None:
    """E[A_j | prefix] = E[G | prefix] - V_j over all actions of two decisions and a forced token."""
    rng = np.random.default_rng(0)
    actions = list(itertools.product(range(2), range(3)))
    n = len(actions)
    chances, paid, q = rng.dirichlet(np.ones(n)), rng.normal(size=n), rng.normal(size=n)  # Q is wrong
    values, decisions = np.zeros((1, n, 3)), np.ones((1, n, 3), dtype=bool)
    decisions[..., 2] = False
    below = [[number for number, other in enumerate(actions) if other[0] == action[0]] for action in actions]
    values[0, :, 0], values[0, :, 2] = chances @ q, q
    values[0, :, 1] = [chances[rows] @ q[rows] / chances[rows].sum() for rows in below]
    one, nothing = np.ones((1, n)), np.zeros((1, n))
    rollout = Rollout(
        paid[None], 3 * one.astype(int), one > 0, one > 0, values, nothing[0], nothing, one, 0 * one, 0 * one, decisions
    )
    advantages = DoublyRobustGAE(0.9, gae_lambda=1.0).advantages(rollout)[0]
    np.testing.assert_allclose(advantages[:, 0], values[0, :, 1] - values[0, :, 0] + paid - q, atol=1e-12)
    for number, rows in enumerate(below):
        share = chances[rows] / chances[rows].sum()
        assert share @ advantages[rows, 0] == pytest.approx(share @ paid[rows] - values[0, 0, 0], abs=1e-12)
        assert advantages[number, 1] == pytest.approx(paid[number] - values[0, number, 1], abs=1e-12)
    assert not advantages[:, 2].any()


def test_long_targets_have_a_trace_of_one_and_leave_the_advantages_alone() -> None:
    shape = (4, 1)
    rng = np.random.default_rng(0)
    ends = np.array([[False], [False], [True], [False]])
    rollout = Rollout(
        rng.normal(size=shape), np.full(shape, 2), ends, np.ones(shape, dtype=bool), rng.normal(size=(*shape, 2)),
        rng.normal(size=1), np.zeros(shape), np.ones(shape), np.zeros(shape, dtype=int), np.zeros(shape, dtype=int),
    )  # fmt: skip
    targets = LongTargetsCritic.targets(GAE(0.9, 0.5), rollout, np.zeros((*shape, 2)))
    r = rollout.rewards[:, 0]
    assert targets[:3, 0, 0] == pytest.approx([r[0] + 0.9 * r[1] + 0.81 * r[2], r[1] + 0.9 * r[2], r[2]])


@pytest.mark.parametrize("name", REMEDIES)
def test_a_remedy_trains(name: str) -> None:
    arm = OF_REMEDIES[name]
    env = gym.make("MultiKey-v0", k=1, d=1, horizon=2)
    arguments = {**arm.arguments, "n_steps": 16, "n_epochs": 1, "n_critic_epochs": 1}
    model = POAD("LLMPolicy", env, seed=0, **arguments)
    adapter = [parameter.clone() for parameter in model.policy.adapter_parameters()]
    model.learn(48, callback=REMEDIES[name]())
    moved = any(not torch.equal(new, old) for new, old in zip(model.policy.adapter_parameters(), adapter, strict=True))
    assert moved == (name != "warm-up")
    if name == "privileged":
        assert model.policy.critic.whitening.count > 0
        assert not torch.equal(*model.policy.lm.trunk_features([TokenRow((1, 2), None, (0, 1))])[0])
