"""`critic-noise`: tables of a policy and its critic, and estimators compared along a training."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from benchmarks.studies.credit_truth.problems import independent
from benchmarks.studies.credit_truth.trainings import (
    NoiseWatch,
    critic_table,
    policy_table,
    shrunk_towards_state,
)
from poad_sb3 import POAD
from poad_sb3.distributions.base import TokenPath
from poad_sb3.prompts import Question

SIZE = {"k": 1, "d": 1, "horizon": 2}


@pytest.fixture(scope="module")
def trained() -> tuple[POAD, NoiseWatch]:
    watch = NoiseWatch(
        independent("MultiKey-v0", share=False, **SIZE), ("action level", "BAD 1", "BAD 0.8", "BAD 1, shrunk"), 64
    )
    model = POAD("LLMPolicy", gym.make("MultiKey-v0", **SIZE), n_steps=64, learning_rate=5e-3, seed=0)
    return model.learn(128, callback=watch), watch


def test_tables_are_of_the_policy_and_its_critic(trained: tuple[POAD, NoiseWatch]) -> None:
    model, watch = trained
    timed = watch.problem.timed
    chances = timed.action_probabilities(policy_table(model.policy, watch.problem))
    values, (nodes, _) = critic_table(model.policy, watch.problem), timed.paths
    assert np.ptp(values[0, 0]) > 1e-3
    for state, (text, actions) in enumerate(watch.problem.texts):
        expected = model.policy.action_probabilities(text, list(actions))
        assert chances[state] == pytest.approx([expected[action] for action in actions], rel=1e-6)
        for number, action in enumerate(actions):
            prompt = model.policy.distribution.prompt(Question(text, actions))
            path = TokenPath(prompt, model.policy.lm.action_ids(action), ())
            before = timed.mdp.trie.parents[nodes[number]]
            alone = model.policy.token_values([path]).values[0]
            assert values[0, state, before] == pytest.approx(alone, abs=1e-5)


def test_estimators_are_compared_along_a_training(trained: tuple[POAD, NoiseWatch]) -> None:
    _, watch = trained
    assert watch.steps == [0, 64, 128]
    nsr, cosine = watch.nsr, watch.cosine
    # The critic begins with 0 everywhere: both rules are the return to go.
    assert nsr["BAD 1 | critic"][0] == pytest.approx(nsr["action level | critic"][0], rel=1e-5)
    assert nsr["BAD 1 | critic"][2] != pytest.approx(nsr["action level | critic"][2], rel=1e-3)
    for name in ("action level | critic", "BAD 1 | critic", "BAD 1 | critic inside", "BAD 0.8 | exact"):
        assert cosine[name] == pytest.approx([1.0] * 3, abs=1e-9), "unbiased with any critic, or with exact values"
    assert np.max(cosine["BAD 0.8 | critic"]) < 1 - 1e-6
    assert np.all(np.array(nsr["BAD 0.8 | exact"]) < nsr["action level | exact"])
    assert nsr["BAD 1 | critic before"] != nsr["BAD 1 | critic inside"] != nsr["BAD 1 | critic"]
    shrunk, flat = np.array(nsr["BAD 1, shrunk | critic"]), np.array(nsr["action level | critic"])
    assert np.all(shrunk <= flat * 1.01)
    assert 0 < watch.success[0] < 1


def test_an_episode_of_right_actions_is_kept_with_both_values(trained: tuple[POAD, NoiseWatch]) -> None:
    model, watch = trained
    text, actions = watch.problem.texts[0]
    right = model.policy.lm.action_ids(actions[int(watch.problem.successes[0].argmax())])
    path = TokenPath(model.policy.distribution.prompt(Question(text, actions)), right, ())
    episode = watch.episodes[-1]
    assert episode["critic"][0] == pytest.approx(model.policy.token_values([path]).values[0], abs=1e-4)
    _, before_key, after_key = episode["exact"][-1]
    assert before_key < after_key == 0.5, "the last reward is certain once the key, the second word, is right"


def test_values_inside_the_action_are_shrunk_as_far_as_they_do_not_predict() -> None:
    rng = np.random.default_rng(0)
    exact, weights = rng.normal(size=(3, 2, 5)), rng.random((3, 2, 5))
    assert shrunk_towards_state(exact, exact, weights) == pytest.approx(exact)
    first = exact[:1, :, :1]
    doubled = first + 2 * (exact[:1] - first)
    assert shrunk_towards_state(doubled, exact[:1], weights[:1]) == pytest.approx(exact[:1])
    halved = first + 0.5 * (exact[:1] - first)
    assert shrunk_towards_state(halved, exact[:1], weights[:1]) == pytest.approx(halved)
    opposed = first - (exact[:1] - first)
    assert shrunk_towards_state(opposed, exact[:1], weights[:1]) == pytest.approx(np.broadcast_to(first, (1, 2, 5)))
    assert shrunk_towards_state(np.zeros((1, 2, 5)), exact, weights) == pytest.approx(np.zeros((3, 2, 5)))
