"""From tables to arrays: rows, columns, and the number for every value."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import LabelEncoder

from lang_envs.datasets.errors import TableError
from lang_envs.datasets.manifest import Column, Encoding, Manifest, Recipe, RowChoice, manifest
from lang_envs.datasets.preprocessing import (
    arrays,
    as_numbers,
    choose_rows,
    natural_key,
    ranks,
    split_columns,
)

pd = pytest.importorskip("pandas")

KINDS, RANKS = Recipe(Encoding.KINDS, "", ""), Recipe(Encoding.RANKS, "", "")


def small(**changes: Any) -> Manifest:
    """The manifest of `frame()`: columns, with their numbers of categories, and the rest."""
    columns = {"id": 0, "kind": 3, "size": 0, "good": 2}
    entry: dict[str, Any] = {
        "columns": tuple(Column(name, levels) for name, levels in columns.items()),
        "target": "good",
        "classes": ("0", "1"),
        "shape": (4, 4),
        "arrays": (4, 3),
        "drop": (),
    }
    return manifest("pharyngitis")._replace(**{**entry, **changes})


def frame(**columns: Any) -> Any:
    content = {"id": [1, 2, 3, 4], "kind": ["C26", "C3", "A", "C3"], "size": [0.5, 2, 2, -1], "good": [0, 1, 1, 0]}
    return pd.DataFrame({**content, **columns})


# ---------------------------------------------------------------------- natural order


@pytest.mark.parametrize(
    "ordered",
    [
        ["9", "10", "14+"],
        ["-1", "0", "0.25", "0.5", "1"],
        ["9007199254740992", "9007199254740993"],
        ["B/0/P", "B/2/P", "B/10/P", "B/10/S"],
    ],
)
def test_natural_order(ordered: list[str]) -> None:
    assert sorted(ordered[::-1], key=natural_key) == ordered


@given(st.lists(st.text(max_size=6) | st.integers().map(str) | st.floats(allow_nan=False).map(str), max_size=12))
def test_natural_order_is_total(texts: list[str]) -> None:
    ordered = sorted(texts, key=natural_key)
    assert ordered == sorted(texts[::-1], key=natural_key)
    assert all(natural_key(a) < natural_key(b) for a, b in pairwise(sorted(set(texts), key=natural_key)))


# ---------------------------------------------------------------------- numbers


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(["1.5", "2", "-3"], dtype=object),
        pd.Series([1.5, 2, -3], dtype="category"),
        pd.Series([1.5, 2, -3], dtype="Float64"),
        pd.Series([Decimal("1.5"), 2, "-3e0"], dtype=object),
    ],
)
def test_numbers_however_they_are_typed(column: Any) -> None:
    values = as_numbers(column)
    assert values.dtype == np.float64
    assert values.tolist() == [1.5, 2.0, -3.0]


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        (["1", "?"], "'?'"),
        ([1j, 1.0], "1j"),
    ],
)
def test_what_is_no_number_is_refused_by_name(values: list[Any], shown: str) -> None:
    with pytest.raises(TableError, match=rf"finite numbers in column 'Größe'; got .*{shown}.{{0,80}}\. Fix: replace"):
        as_numbers(pd.Series(values, dtype=object, name="Größe"))


# ---------------------------------------------------------------------- ranks


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_ranks_are_those_of_label_encoders(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 12))
    kinds: list[st.SearchStrategy[Any]] = [
        st.integers(-(2**62), 2**62),
        st.floats(allow_nan=False, allow_infinity=False),
        st.booleans(),
        st.text(st.characters(codec="utf-8"), max_size=3),
    ]
    columns = [data.draw(st.lists(data.draw(st.sampled_from(kinds)), min_size=n, max_size=n)) for _ in range(3)]
    table = pd.DataFrame({str(at): pd.Series(values) for at, values in enumerate(columns)})
    objects = table.astype(object).to_numpy()
    for at in range(3):
        expected = LabelEncoder().fit_transform(objects[:, at])
        assert ranks(table.iloc[:, at]).tolist() == expected.tolist()


# ---------------------------------------------------------------------- rows and columns


def test_first_and_sample_count_complete_rows() -> None:
    table = pd.DataFrame({"a": [np.nan, 1, 2, np.nan, 4, 5, 6, 7]})
    complete = np.array([1, 2, 4, 5, 6, 7])
    assert choose_rows(table, RowChoice()).tolist() == complete.tolist()
    assert choose_rows(table, RowChoice(first=3)).tolist() == [1, 2, 4]
    for seed in range(5):
        drawn = np.random.RandomState(seed).permutation(6)[:4]
        rows = choose_rows(table, RowChoice(sample=4, seed=seed))
        assert rows.tolist() == complete[np.sort(drawn)].tolist()
        assert rows.dtype == np.int64
    assert choose_rows(table, RowChoice(first=100)).tolist() == complete.tolist()


def test_positions_count_all_rows_and_keep_their_order() -> None:
    table = pd.DataFrame({"a": [0, 1, np.nan, 3, 4]}, index=[9, 9, 8, 7, 7])
    assert choose_rows(table, RowChoice(at=(4, 2, 0))).tolist() == [4, 0]
    assert choose_rows(table, RowChoice(at=(2,))).tolist() == []


def test_names_may_differ_but_for_the_target() -> None:
    table = frame().set_axis(["x", "x", "z", "GOOD"], axis=1)
    expected = arrays(frame(), small(drop=("id",), arrays=(4, 2)), KINDS)[0]
    assert np.array_equal(arrays(table, small(drop=("id",), arrays=(4, 2)), KINDS)[0], expected)
    exact = frame().set_axis(["Good", "kind", "size", "good"], axis=1)
    assert split_columns(exact, small()) == (3, [0, 1, 2])
    renamed = frame().set_axis(["kind", "ID", "size", "good"], axis=1)
    assert split_columns(renamed, small(drop=("id",))) == (3, [0, 2])


@pytest.mark.parametrize(
    "values",
    [[0.0, 1.0, 1.0, 0.0], pd.Categorical(["0", "1", "1", "0"], ["1", "0"])],
)
def test_the_target_however_it_is_typed(values: Any) -> None:
    assert arrays(frame(good=values), small(), KINDS)[1].tolist() == [0, 1, 1, 0]
    assert arrays(frame(good=values), small(), RANKS)[1].tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize(
    ("table", "changes", "match"),
    [
        (frame().iloc[:, :3], {}, "got 4 rows and 3 columns"),
        (frame().set_axis(["Good", "GOOD", "a", "b"], axis=1), {}, "column 'good' in .*; got Good, GOOD, a, b"),
        (frame(good=[1, 1, 1, 1]), {}, "exactly 0, 1 as values of 'good' in .*; got 1"),
        (frame(size=["1", "2", "?", "3"]), {}, r"finite numbers in column 'size'; got '\?'"),
        (frame(), {"arrays": (5, 3)}, r"features of shape \(5, 3\) from pharyngitis.csv; got \(4, 3\)"),
    ],
)
def test_another_file_is_refused(table: Any, changes: dict[str, Any], match: str) -> None:
    with pytest.raises(TableError, match=match) as caught:
        arrays(table, small(**changes), KINDS)
    assert isinstance(caught.value, ValueError)
