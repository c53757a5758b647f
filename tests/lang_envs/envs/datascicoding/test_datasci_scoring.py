"""Halves and scores, each against another way to get them."""

from __future__ import annotations

import re
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import train_test_split

from lang_envs.datasets import BUNDLED, Dataset, load
from lang_envs.envs.datascicoding.scoring import SCORERS, accuracy, auc, balanced_accuracy, check_probabilities, splits


def table(y: Any, *, published: bool = False) -> Dataset:
    x = np.arange(len(y), dtype=float)[:, None]
    return Dataset("mine", "my table", "Rows.", x, np.array(y), published=published, source="here")


def is_complete(dataset: Dataset, rows: Any) -> bool:
    return set(dataset.y[rows].tolist()) == set(range(dataset.classes))


# ---------------------------------------------------------------------- halves


@pytest.mark.parametrize("name", BUNDLED)
def test_halves_are_those_of_scikit_learn(name: str) -> None:
    dataset = load(name)
    for random_state, split in enumerate(splits(dataset, range(5))):
        x_train, x_test, y_train, y_test = train_test_split(
            dataset.x, dataset.y, test_size=0.5, random_state=random_state, shuffle=True
        )
        np.testing.assert_array_equal(dataset.x[split.train], x_train)
        np.testing.assert_array_equal(dataset.x[split.test], x_test)
        np.testing.assert_array_equal(dataset.y[split.train], y_train)
        np.testing.assert_array_equal(dataset.y[split.test], y_test)
        assert split.train.dtype == split.test.dtype == np.int64
        assert sorted([*split.train, *split.test]) == list(range(len(dataset.y)))


def test_a_half_without_a_class_is_redrawn() -> None:
    """By hand: the first of i, i + 1000, i + 2000, ... that has every class on both sides."""
    dataset = table([0] * 14 + [1] * 3 + [2] * 2)
    redrawn = 0
    for random_state in range(20):
        for candidate in range(random_state, random_state + 1_000_001, 1000):
            train, test = train_test_split(np.arange(19), test_size=0.5, random_state=candidate, shuffle=True)
            if is_complete(dataset, train) and is_complete(dataset, test):
                break
        redrawn += candidate > random_state
        (split,) = splits(dataset, [random_state])
        np.testing.assert_array_equal(split.train, train)
        np.testing.assert_array_equal(split.test, test)
    assert 0 < redrawn < 20


def test_a_published_half_is_never_redrawn() -> None:
    y = [0] * 14 + [1] * 3 + [2] * 2
    bad = next(i for i in range(20) if not all(is_complete(table(y), rows) for rows in halves(19, i)))
    with pytest.raises(ValueError, match=rf"'mine' in both halves; got .* random_state {bad}\. Fix"):
        splits(table(y, published=True), [bad])
    good = next(i for i in range(20) if all(is_complete(table(y), rows) for rows in halves(19, i)))
    np.testing.assert_array_equal(splits(table(y, published=True), [good])[0].train, halves(19, good)[0])


def halves(n_rows: int, random_state: int) -> Any:
    return train_test_split(np.arange(n_rows), test_size=0.5, random_state=random_state, shuffle=True)


def test_a_class_with_one_row_is_hopeless() -> None:
    with pytest.raises(ValueError, match="random_state 3 and 1000 redraws"):
        splits(table([0, 0, 0, 1]), [3])


# ---------------------------------------------------------------------- the area under the curve


def pairs_won(positive: Any, negative: Any) -> float:
    """Share of (positive, negative) pairs in the right order; a tie is half a pair."""
    won = [1.0 if p > n else 0.5 if p == n else 0.0 for p in positive for n in negative]
    return sum(won) / len(won)


def auc_by_counting(y: Any, p: Any) -> float:
    if p.shape[1] == 2:
        return pairs_won(p[y == 1, 1], p[y == 0, 1])
    means = []
    for a, b in combinations(range(p.shape[1]), 2):
        means.append((pairs_won(p[y == a, a], p[y == b, a]) + pairs_won(p[y == b, b], p[y == a, b])) / 2)
    return sum(means) / len(means)


@st.composite
def predictions(draw: st.DrawFn) -> tuple[Any, Any]:
    """Labels with every class, and probabilities on a coarse grid, hence with many ties."""
    n_classes = draw(st.integers(2, 4))
    y = draw(st.permutations([*range(n_classes), *draw(st.lists(st.integers(0, n_classes - 1), max_size=12))]))
    raw = draw(hnp.arrays(float, (len(y), n_classes), elements=st.integers(1, 4).map(float)))
    return np.array(y), raw / raw.sum(axis=1, keepdims=True)


@given(predictions())
def test_auc_counts_pairs(case: tuple[Any, Any]) -> None:
    y, p = case
    assert auc(y, p) == pytest.approx(auc_by_counting(y, p), abs=1e-12)


@given(predictions())
def test_scores_are_python_floats_of_the_unit_interval(case: tuple[Any, Any]) -> None:
    y, p = case
    for dtype in (np.float64, np.float32):
        for scorer in SCORERS.values():
            score = scorer(y, p.astype(dtype))
            assert type(score) is float
            assert 0.0 <= score <= 1.0
    perfect = np.eye(p.shape[1])[y]
    assert [scorer(y, perfect) for scorer in SCORERS.values()] == [1.0, 1.0, 1.0]


@given(predictions())
def test_accuracies(case: tuple[Any, Any]) -> None:
    y, p = case
    guess = p.argmax(axis=1)
    assert accuracy(y, p) == pytest.approx(sum(map(int, guess == y)) / len(y))
    assert balanced_accuracy(y, p) == pytest.approx(balanced_accuracy_score(y, guess))


HUGE = float(np.finfo(float).max)
extremes = st.sampled_from([HUGE, -HUGE, 1.7e308, -1.7e308, 5e-324, -5e-324, 2.2e-308, 0.0, -0.0, 1.0, 1e-300])
finite = extremes | st.floats(allow_nan=False, allow_infinity=False)


@given(st.integers(2, 3), st.data())
def test_any_finite_numbers_are_scored_or_refused(n_classes: int, data: st.DataObject) -> None:
    """Without a warning: they are errors here."""
    y = np.arange(8) % n_classes
    p = data.draw(hnp.arrays(float, (8, n_classes), elements=finite))
    if n_classes == 3 and data.draw(st.booleans()):  # rows that cancel, and so add up to 1
        p[:, 1], p[:, 2] = -p[:, 0], 1.0
    problem = check_probabilities(p, 8, n_classes)
    if problem is not None:
        assert n_classes == 3
        assert "add up to 1" in problem
        return
    for scorer in SCORERS.values():
        assert 0.0 <= scorer(y, p) <= 1.0
    assert auc(y, p) == pytest.approx(auc_by_counting(y, p), abs=1e-12)


@pytest.mark.parametrize(("y", "n_classes"), [([0, 0, 2], 3), ([0, 0], 2), ([0, 1, 2], 2), ([1, 2], 3)])
def test_auc_needs_every_class(y: list[int], n_classes: int) -> None:
    with pytest.raises(ValueError, match=rf"every class 0 \.\. {n_classes - 1} among the rows"):
        auc(np.array(y), np.full((len(y), n_classes), 1 / n_classes))


# ---------------------------------------------------------------------- conditions on predictions

THIRD = np.full((4, 3), 1 / 3)


class Liar(np.ndarray):
    """Answers for itself."""

    def __array_function__(self, *args: Any, **kwargs: Any) -> Any:
        raise SystemExit


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (None, "numpy array of probabilities; got NoneType"),
        (THIRD.view(Liar), "got Liar"),
        (np.zeros((4, 3), dtype=int), "as floats; got an array of int64"),
        (THIRD[:, :2], r"of shape \(4, 3\); got \(4, 2\)"),
        (THIRD[:3], r"of shape \(4, 3\); got \(3, 3\)"),
        (np.full((4, 3), np.nan), "finite"),
        (THIRD * 1.001, "add up to 1"),
    ],
)
def test_problems(array: object, message: str) -> None:
    problem = check_probabilities(array, 4, 3)
    assert problem is not None
    assert problem.startswith("Expected ")
    assert re.search(message, problem), problem
