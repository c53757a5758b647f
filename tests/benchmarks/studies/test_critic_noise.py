"""`critic-noise`: tables of a policy and its critic, and estimators compared along a training."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from studies_users import fill

from benchmarks.studies import critic_noise
from benchmarks.studies.credit_truth.problems import independent
from benchmarks.studies.critic_noise import CRITIC_NOISE, NoiseWatch, critic_table, policy_table
from benchmarks.studies.engine.pieces import Pieces
from benchmarks.studies.engine.study import Options
from poad_sb3 import POAD
from poad_sb3.distributions.base import TokenPath
from poad_sb3.prompts import Question

SIZE = {"k": 1, "d": 1, "horizon": 2}


@pytest.fixture(scope="module")
def trained() -> tuple[POAD, NoiseWatch]:
    watch = NoiseWatch(independent("MultiKey-v0", share=False, **SIZE), (1.0, 0.8), 64)
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
            alone = model.policy.token_values([path]).values.numpy()
            assert values[0, state, before] == pytest.approx(alone, abs=1e-5)


def test_estimators_are_compared_along_a_training(trained: tuple[POAD, NoiseWatch]) -> None:
    _, watch = trained
    assert watch.steps == [0, 64, 128]
    nsr, bias = watch.found["nsr"], watch.found["bias"]
    # The critic begins with 0 everywhere: both rules are the return to go.
    assert nsr["BAD 1 | trained"][0] == pytest.approx(nsr["action level | trained"][0], rel=1e-5)
    assert nsr["BAD 1 | trained"][2] != pytest.approx(nsr["action level | trained"][2], rel=1e-3)
    for name in ("action level", "BAD 1"):  # unbiased whatever the critic says
        assert np.max(bias[f"{name} | trained"]) < 1e-10
    assert np.min(bias["BAD 0.8 | trained"]) > 1e-3
    assert np.max(bias["BAD 0.8 | exact"]) < 1e-10
    assert np.all(np.array(nsr["BAD 0.8 | exact"]) < nsr["action level | exact"])


def test_a_report_shows_the_medians_of_the_seeds(tmp_path: Path) -> None:
    pieces, options = Pieces(tmp_path), Options(seeds=critic_noise.SEEDS)
    jobs = list(CRITIC_NOISE.jobs(options, pieces))
    assert len({job.name for job in jobs}) == 2 * len(critic_noise.SEEDS)

    def made(job: critic_noise.CriticNoiseJob) -> dict[str, object]:
        rows = [f"{name} | {kind}" for name in ("action level", "BAD 1", "BAD 0.8") for kind in ("exact", "trained")]
        numbers = {key: [float(job.seed), None if job.seed == 401 else 1.0] for key in rows}
        return {"steps": [0, 1024], "success": [0.1, 0.2], "nsr": numbers, "bias": numbers}

    assert "POAD 1: seed 400" in CRITIC_NOISE.report(options, pieces).content["missing"]
    fill(pieces, jobs, made)
    report = CRITIC_NOISE.report(options, pieces)
    assert report.content["missing"] == []
    assert report.content["trainings"]["POAD 1"]["nsr"]["BAD 1 | trained"] == [401.5, None]
    assert set(report.pictures) == {""}
