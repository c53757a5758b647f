"""`RandomCoder`: sound bodies run, and spoiled ones do not."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from lang_envs.envs.datascicoding.coder import MISTAKES, RandomCoder, random_body, spoil
from lang_envs.sandbox.extraction import banned_use, extract

datasets = pytest.importorskip("sklearn.datasets")
TABLES = [load(return_X_y=True) for load in (datasets.load_wine, datasets.load_iris, datasets.load_breast_cancer)]
START, FAILURE = "Write the body.", "Write the body.\nAttempt 1 of 5: ValueError: no."


def evaluate(body: str, x, y, seed: int = 0) -> None:
    """Run a body as the environment does: raises if it fails there."""
    code = extract(body)
    if banned_use(code, ("GridSearchCV", "SVC")) is not None:
        raise ValueError("banned")
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[: len(y) // 2], order[len(y) // 2 :]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = {"__name__": "agent"}
        exec(compile(code.tree, "<agent>", "exec", dont_inherit=True), module)
        probabilities = module["build_model"](x[train], y[train]).predict_proba(x[test])
    assert probabilities.shape == (len(test), len(set(y)))
    assert np.isfinite(probabilities).all()


@pytest.mark.matrix
def test_sound_bodies_run():
    rng = np.random.default_rng(1)
    for i in range(60):
        evaluate(random_body(rng), *TABLES[i % len(TABLES)])


@pytest.mark.parametrize(
    "mistake",
    [*[*MISTAKES][:5], *(pytest.param(mistake, marks=pytest.mark.matrix) for mistake in [*MISTAKES][5:])],
)
def test_each_mistake_can_be_made_and_fails(mistake):
    rng = np.random.default_rng(3)
    n_spoiled = 0
    for _ in range(400):
        body = random_body(rng)
        spoiled = spoil(body, rng)
        if spoiled.mistake != mistake:
            continue
        n_spoiled += 1
        assert spoiled.code != body
        with pytest.raises(Exception):  # noqa: B017 - each mistake has its own
            evaluate(spoiled.code, *TABLES[n_spoiled % 2])
    assert n_spoiled >= 5


def transcript(seed: int, observations) -> list[str]:
    coder = RandomCoder(seed)
    return [coder(None, observation, None) for observation in observations]


def test_a_seed_gives_the_same_texts():
    observations = [START, FAILURE, FAILURE, START, FAILURE] * 4
    assert transcript(5, observations) == transcript(5, observations)
    assert transcript(5, observations) != transcript(6, observations)
