"""`values-inside`: its ceiling has exact values, and no committed run of another study stands for one of its own."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from benchmarks.studies.credit_truth.problems import independent
from benchmarks.studies.engine.study import TUNING_SEEDS
from benchmarks.studies.tasks import GAMMA, MULTIKEY
from benchmarks.studies.values_inside import EXACT_8, VALUES_INSIDE, ExactValues, ExactValuesJob
from poad_sb3 import POAD
from poad_sb3.prompts import Question

USED = {101, 102, *range(200, 210), *range(300, 310), *range(400, 404), 700, *range(900, 904)}
"""Seeds of other studies and of trials."""


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


def test_seeds_are_fresh_and_arms_differ() -> None:
    assert not USED & set(VALUES_INSIDE.seeds)
    for task, arms in VALUES_INSIDE.arms:
        names = [arm.job(task, TUNING_SEEDS[0], {"learning_rate": 1e-3}).name for arm in arms]
        assert len(set(names)) == len(arms)
    assert isinstance(EXACT_8.job(MULTIKEY, 500, {}), ExactValuesJob)
