"""`RandomCoder`: sound bodies run, spoiled ones do not, and failures are often mended."""

from __future__ import annotations

import re
import warnings
from collections import Counter

import numpy as np
import pytest

from lang_envs.envs.datascicoding.coder import MISTAKES, RandomCoder, random_body, spoil
from lang_envs.sandbox.extraction import CodeSyntaxError, banned_use, extract

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


@pytest.mark.slow
def test_bodies_are_many_and_of_all_kinds():
    rng = np.random.default_rng(0)
    bodies = [random_body(rng) for _ in range(600)]
    assert len(set(bodies)) > 400
    words = Counter(
        word for body in bodies for word in re.findall(r"\w+(?:Classifier|NB|Regression|Analysis|Centroid)", body)
    )
    assert len(words) == 21  # 20 families and voting
    assert min(words.values()) >= 10
    assert all(len(body.encode()) < 1500 for body in bodies)


@pytest.mark.matrix_after(5)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_can_be_made_and_fails(mistake):
    rng = np.random.default_rng(3)
    found = 0
    for _ in range(400):
        body = random_body(rng)
        spoiled = spoil(body, rng)
        if spoiled.mistake != mistake:
            continue
        found += 1
        assert spoiled.code != body
        with pytest.raises(Exception):  # noqa: B017 - each mistake has its own
            evaluate(spoiled.code, *TABLES[found % 2])
    assert found >= 5


def test_mistakes_come_as_different_errors():
    rng = np.random.default_rng(4)
    errors = Counter()
    for _ in range(120):
        try:
            evaluate(spoil(random_body(rng), rng).code, *TABLES[1])
        except Exception as error:
            errors[type(error).__name__] += 1
    assert errors.total() == 120
    assert {"NameError", "ImportError", "TypeError", "AttributeError", "CodeSyntaxError"} < set(errors)
    assert len(errors) >= 8


def transcript(seed: int, observations) -> list[str]:
    coder = RandomCoder(seed)
    return [coder(None, observation, None) for observation in observations]


def test_a_seed_gives_the_same_texts():
    observations = [START, FAILURE, FAILURE, START, FAILURE] * 4
    assert transcript(5, observations) == transcript(5, observations)
    assert transcript(5, observations) != transcript(6, observations)


@pytest.mark.parametrize(("spoiled", "low", "high"), [(0.0, 0, 0), (0.5, 0.4, 0.6), (1.0, 1, 1)])
def test_the_share_of_spoiled_bodies_is_the_one_asked_for(spoiled, low, high):
    coder = RandomCoder(0, spoiled)
    wrong = 0
    for _ in range(300):
        coder(None, START)
        wrong += coder.mistake is not None
    assert low <= wrong / 300 <= high


@pytest.mark.parametrize("spoiled", [-0.1, 1.1, float("nan")])
def test_a_share_that_is_none_is_refused(spoiled):
    with pytest.raises(ValueError, match="probability"):
        RandomCoder(0, spoiled)


def test_failures_are_often_mended():
    outcomes = Counter()
    for seed in range(300):
        coder = RandomCoder(seed, spoiled=1.0)
        first = coder(None, START)
        body, mistake = coder._body, coder.mistake
        second = coder(None, FAILURE)
        outcomes["mended" if second == body else "again" if coder._body == body else "new"] += 1
        assert first != body
        assert mistake in MISTAKES
        assert (coder.mistake is None) == (second == coder._body)
    assert 180 < outcomes["mended"] < 240
    assert 20 < outcomes["again"] < 70
    assert 20 < outcomes["new"] < 70


def test_a_new_episode_or_a_success_gets_a_new_body():
    for seed in range(20):
        coder = RandomCoder(seed, spoiled=1.0)
        coder(None, START)
        body = coder._body
        coder(None, START)
        assert coder._body != body
        body = coder._body
        coder(None, START + "\nAttempt 1 of 5: it scored 0.7.")
        assert coder._body != body


def test_a_sound_body_that_failed_is_given_up():
    for seed in range(20):
        coder = RandomCoder(seed, spoiled=0.0)
        assert coder(None, START) != coder(None, FAILURE)


def test_every_text_is_code_or_a_syntax_error():
    coder, refused = RandomCoder(7), 0
    for i in range(300):
        try:
            extract(coder(None, START if i % 3 == 0 else FAILURE))
        except CodeSyntaxError:
            refused += 1
            assert coder.mistake == "syntax"
    assert 0 < refused < 60
