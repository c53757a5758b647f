"""From tables to arrays: rows, columns, and the number for every value."""

from __future__ import annotations

import io
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
    ordinals,
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
        ["1", "2", "13", "14", "14+"],
        ["-1", "0", "0.25", "0.5", "1"],
        ["C3", "C26"],
        ["False", "True"],
        ["7", "7a", "8"],
        ["-5 to 0", "0 to 5", "5 to 10"],
        ["", "1", "a"],
        ["1e3", "2e3", "1e10"],
        ["9007199254740992", "9007199254740993"],
        ["1" * 250, "2" * 250, "1" * 5000],
        ["B/0/P", "B/2/P", "B/10/P", "B/10/S"],
        ["nan", "ä", "ö"],
        ["2020-01-31", "2020-02-01", "2020-11-01"],
    ],
)
def test_natural_order(ordered: list[str]) -> None:
    assert sorted(ordered[::-1], key=natural_key) == ordered


@given(st.lists(st.text(max_size=6) | st.integers().map(str) | st.floats(allow_nan=False).map(str), max_size=12))
def test_natural_order_is_total(texts: list[str]) -> None:
    ordered = sorted(texts, key=natural_key)
    assert ordered == sorted(texts[::-1], key=natural_key)
    assert all(natural_key(a) < natural_key(b) for a, b in pairwise(sorted(set(texts), key=natural_key)))


@given(st.lists(st.integers() | st.floats(allow_nan=False, allow_infinity=False).map(lambda x: x + 0.0)))
def test_natural_order_of_numbers_is_their_order(numbers: list[float]) -> None:
    ordered = sorted((str(number) for number in numbers), key=natural_key)
    assert [float(text) for text in ordered] == sorted(map(float, numbers))


# ---------------------------------------------------------------------- categories


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([10, 9, 2, 10]),
        pd.Series([10.0, 9.0, 2.0, 10.0]),
        pd.Series([10, 9, 2, 10], dtype="uint8"),
        pd.Series([10, 9, 2, 10], dtype="Int64"),
        pd.Series(["10", "9", "2", "10"]),
        pd.Series(["10", "9", "2", "10"], dtype=object),
        pd.Series(["10", "9", "2", "10"], dtype="category"),
        pd.Series([10, 9, 2, 10], dtype="category"),
        pd.Series([10.0, 9.0, 2.0, 10.0], dtype="category"),
        pd.Categorical.from_codes([2, 1, 0, 2], ["2", "9", "10", "11"], ordered=True),
        pd.Series([10, "9", 2.0, "10.0"], dtype=object),
        pd.Series([Decimal(10), 9, "2.0", np.float32(10)], dtype=object),
        pd.Series(["10.0", "9", "2.00", "10"]),
    ],
)
def test_categories_however_they_are_typed(column: Any) -> None:
    codes, labels = ordinals(pd.Series(column))
    assert codes.dtype == np.int64
    assert codes.tolist() == [2, 1, 0, 2]
    assert labels == ["2", "9", "10"]


@pytest.mark.parametrize("dtype", ["bool", "boolean", object, "category", "str"])
def test_categories_of_truth_values(dtype: Any) -> None:
    codes, labels = ordinals(pd.Series([True, False, True]).astype(dtype))
    assert codes.tolist() == [1, 0, 1]
    assert labels == ["False", "True"]


@pytest.mark.parametrize(
    ("values", "labels", "codes"),
    [
        ([True, 1, "True", 1.0], ["1", "True"], [1, 0, 1, 0]),
        ([2**53 + 1, 2**53, 10**400], [str(2**53), str(2**53 + 1), str(10**400)], [1, 0, 2]),
        ([[1, 2], [1], [1, 2]], ["[1, 2]", "[1]"], [0, 1, 0]),
        (["01", 1, "1"], ["01", "1"], [0, 1, 1]),
        (["größer", "Ω", "größer"], ["größer", "Ω"], [0, 1, 0]),
        (["a"], ["a"], [0]),
        ([], [], []),
    ],
)
def test_odd_categories(values: list[Any], labels: list[str], codes: list[int]) -> None:
    found, names = ordinals(pd.Series(values, dtype=object))
    assert (found.tolist(), names) == (codes, labels)


def test_large_integers_stay_apart() -> None:
    assert ordinals(pd.Series([2**53 + 1, 2**53]))[0].tolist() == [1, 0]


@pytest.mark.parametrize("dtype", ["string[python]", "string[pyarrow]", "str", "category", object])
def test_text_of_every_storage(dtype: Any) -> None:
    pytest.importorskip("pyarrow")
    column = pd.Series(["b", "a10", "a9"]).astype(dtype)
    assert ordinals(column)[0].tolist() == [2, 1, 0]
    assert ranks(column).tolist() == [2.0, 0.0, 1.0]


# ---------------------------------------------------------------------- numbers


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([1.5, 2, -3]),
        pd.Series(["1.5", "2", "-3"]),
        pd.Series(["1.5", "2", "-3"], dtype=object),
        pd.Series(["1.5", "2", "-3"], dtype="category"),
        pd.Series([1.5, 2, -3], dtype="category"),
        pd.Series([1.5, 2, -3], dtype="Float64"),
        pd.Series([Decimal("1.5"), 2, "-3e0"], dtype=object),
    ],
)
def test_numbers_however_they_are_typed(column: Any) -> None:
    values = as_numbers(column)
    assert values.dtype == np.float64
    assert values.tolist() == [1.5, 2.0, -3.0]


def test_truth_values_are_numbers() -> None:
    for dtype in ("bool", "boolean", object):
        assert as_numbers(pd.Series([True, False]).astype(dtype)).tolist() == [1.0, 0.0]


def test_large_integers_are_rounded() -> None:
    assert as_numbers(pd.Series([2**53 + 1])).tolist() == [2.0**53]
    assert as_numbers(pd.Series([2**70, 1], dtype=object)).tolist() == [2.0**70, 1.0]


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([1.0, np.inf], "inf"),
        (["1", "x"], "'x'"),
        (["1", "?"], "'?'"),
        (["1", "-inf"], "'-inf'"),
        ([1, 10**400], "1000"),
        ([1j, 1.0], "1j"),
        ([1, pd.Timestamp("2020-01-01")], "Timestamp"),
        ([1, [2]], r"\[2\]"),
        (["1", "y" * 1000], "'yyyy"),
    ],
)
def test_what_is_no_number_is_refused_by_name(values: list[Any], shown: str) -> None:
    with pytest.raises(TableError, match=rf"finite numbers in column 'Größe'; got .*{shown}.{{0,80}}\. Fix: replace"):
        as_numbers(pd.Series(values, dtype=object, name="Größe"))


def test_times_are_no_numbers() -> None:
    with pytest.raises(TableError, match="finite numbers in column 'when'; got Timestamp"):
        as_numbers(pd.Series(pd.to_datetime(["2020-01-01"]), name="when"))
    with pytest.raises(TableError, match="finite numbers in column 'z'"):
        as_numbers(pd.Series([1j], name="z"))


# ---------------------------------------------------------------------- ranks


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["10.0", "2.0", "14+", "1.0"], [1, 3, 2, 0]),
        ([True, False, True], [1, 0, 1]),
        ([30.5, -2, 30.5, 7], [2, 0, 2, 1]),
        (["b", "B", "ä", "語"], [1, 0, 2, 3]),
        ([7], [0]),
        ([], []),
    ],
)
def test_ranks(values: list[Any], expected: list[float]) -> None:
    for dtype in (None, object, "category"):
        column = pd.Series(values, dtype=dtype) if values else pd.Series([], dtype=object)
        assert ranks(column).tolist() == expected
    if values:
        assert LabelEncoder().fit_transform(np.array(values, dtype=object)).tolist() == expected


def test_ranks_of_a_mixture_are_refused() -> None:
    with pytest.raises(TableError, match="values of one kind in column 'm'; got a mixture"):
        ranks(pd.Series([1, "a"], dtype=object, name="m"))


def as_published(table: Any, n_rows: int) -> tuple[Any, Any]:
    """The processing of Kaggle's tables in the paper's code, word for word."""
    array = table.dropna(axis=0)[:n_rows].to_numpy()
    assert array.dtype == object
    x, y = array[:, 1:-1], array[:, -1]
    encoded = np.stack([LabelEncoder().fit_transform(x[:, at]) for at in range(x.shape[1])], axis=1)
    return encoded.astype(np.float64), LabelEncoder().fit_transform(y).astype(np.int64)


def spaceship(seed: int, n: int, missing: float) -> Any:
    """A made-up file with the columns and types of the spaceship table, as pandas reads it."""
    rng = np.random.RandomState(seed)

    def some(values: Any) -> list[str]:
        return ["" if rng.rand() < missing else str(value) for value in values]

    def money() -> list[str]:
        return some((rng.randint(0, 3000, n) * (rng.rand(n) < 0.4)).astype(float))

    content = {
        "PassengerId": [f"{at // 2 + 1:04}_{at % 2 + 1:02}" for at in range(n)],
        "HomePlanet": some(rng.choice(["Europa", "Earth", "Mars"], n)),
        "CryoSleep": some(rng.rand(n) < 0.3),
        "Cabin": some([f"{rng.choice(list('ABF'))}/{rng.randint(0, 300)}/{rng.choice(list('PS'))}" for _ in range(n)]),
        "Destination": some(rng.choice(["TRAPPIST-1e", "PSO J318.5-22", "55 Cancri e"], n)),
        "Age": some(rng.randint(0, 80, n).astype(float)),
        "VIP": some(rng.rand(n) < 0.1),
        **{name: money() for name in ("RoomService", "FoodCourt", "ShoppingMall", "Spa", "VRDeck")},
        "Name": some([f"{rng.choice(list('ÄBCd'))}ax {rng.randint(0, 900)}" for _ in range(n)]),
        "Transported": rng.permutation(np.arange(n) % 2 == 0),
    }
    return pd.read_csv(io.StringIO(pd.DataFrame(content).to_csv(index=False)))


@pytest.mark.parametrize("missing", [0.0, 0.02, 0.05])
@pytest.mark.parametrize("seed", range(8))
def test_ranks_are_those_of_the_published_pipeline(seed: int, missing: float) -> None:
    table = spaceship(seed, 300, missing)
    assert table["Transported"].dtype == bool
    assert table["CryoSleep"].dtype == (object if missing else bool)
    described = manifest("spaceship-titanic")._replace(shape=(300, 14), rows=RowChoice(first=100), arrays=(100, 12))
    x, y = arrays(table, described, RANKS)
    for found, expected in zip((x, y), as_published(table, 100), strict=True):
        assert found.dtype == expected.dtype
        assert found.tobytes() == expected.tobytes()


def test_a_look_alike_of_full_size() -> None:
    table, described = spaceship(0, 8693, 0.02), manifest("spaceship-titanic")
    x, y = arrays(table, described, described.recipes["published"])
    expected = as_published(table, 2000)
    assert (x.tobytes(), y.tobytes()) == (expected[0].tobytes(), expected[1].tobytes())
    plain, classes = arrays(table, described, described.recipes["default"])
    chosen = table.dropna()[:2000]
    assert np.array_equal(classes, y)
    assert np.array_equal(plain[:, 4], chosen["Age"])  # numbers stay
    assert np.array_equal(plain[:, 1], chosen["CryoSleep"].astype(float))
    assert np.array_equal(plain[:, 0], x[:, 0])  # three planets, in the same order


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


def test_kinds() -> None:
    x, y = arrays(frame(), small(drop=("id",), arrays=(4, 2)), KINDS)
    assert x.tolist() == [[2, 0.5], [1, 2], [0, 2], [1, -1]]
    assert y.tolist() == [0, 1, 1, 0]
    assert (x.dtype, y.dtype) == (np.float64, np.int64)


def test_ranks_of_all_columns() -> None:
    x, _ = arrays(frame(), small(), RANKS)
    assert x.tolist() == [[0, 1, 1], [1, 2, 2], [2, 0, 2], [3, 2, 0]]


def test_the_input_is_left_alone() -> None:
    table, before = frame(), frame()
    arrays(table, small(), KINDS)
    pd.testing.assert_frame_equal(table, before)


@pytest.mark.parametrize("gap", [None, np.nan, pd.NA, pd.NaT])
def test_incomplete_rows_are_left_out(gap: Any) -> None:
    table = frame(kind=pd.Series(["b", gap, "a", "b"], dtype=object))
    x, y = arrays(table, small(arrays=(3, 3)), KINDS)
    assert x[:, 1].tolist() == [1, 0, 1]
    assert y.tolist() == [0, 1, 0]


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


def test_the_breast_tumour_rows() -> None:
    described = manifest("breast-w")
    rng = np.random.RandomState(0)
    table = pd.DataFrame(rng.randint(1, 11, (699, 9)).astype(float)).assign(
        Class=["benign", "malignant", "benign"] * 233
    )
    table.iloc[0, 5] = np.nan  # not among the rows
    table["Class"] = table["Class"].astype("category")
    x, y = arrays(table, described, described.recipes["published"])
    rows = list(described.rows.at)
    assert np.array_equal(x, table.iloc[rows, :9].to_numpy())
    assert y.tolist() == (table["Class"].iloc[rows] == "malignant").astype(int).tolist()
    table.iloc[rows[3], 5] = np.nan
    with pytest.raises(TableError, match=r"features of shape \(69, 9\) from breast-w\.arff; got \(68, 9\)"):
        arrays(table, described, described.recipes["published"])


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
    [[0, 1, 1, 0], [0.0, 1.0, 1.0, 0.0], ["0", "1", "1", "0"], pd.Categorical(["0", "1", "1", "0"], ["1", "0"])],
)
def test_the_target_however_it_is_typed(values: Any) -> None:
    assert arrays(frame(good=values), small(), KINDS)[1].tolist() == [0, 1, 1, 0]
    assert arrays(frame(good=values), small(), RANKS)[1].tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("values", [[False, True, True, False], ["false", "true", "true", "false"]])
def test_truth_values_as_target(values: Any) -> None:
    assert arrays(frame(good=values), small(classes=("False", "True")), KINDS)[1].tolist() == [0, 1, 1, 0]


def test_case_does_not_move_a_class() -> None:
    table = frame(good=["benign", "MALIGNANT", "Malignant", "benign"])
    assert arrays(table, small(classes=("benign", "malignant")), KINDS)[1].tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize(
    ("table", "changes", "match"),
    [
        (frame().iloc[:3], {}, r"4 rows and 4 columns in pharyngitis\.csv; got 3 rows and 4 columns\. Fix: download"),
        (frame().iloc[:, :3], {}, "got 4 rows and 3 columns"),
        (frame().iloc[:0], {}, "got 0 rows and 4 columns"),
        (frame().rename(columns={"good": "bad"}), {}, "column 'good' in pharyngitis.csv; got id, kind, size, bad"),
        (frame().set_axis(["Good", "GOOD", "a", "b"], axis=1), {}, "column 'good' in .*; got Good, GOOD, a, b"),
        (frame()[["good", "id", "kind", "size"]], {}, "'good' as column 4 of .*; got it as column 1"),
        (frame(good=[0, 1, 2, 0]), {}, "exactly 0, 1 as values of 'good' in .*; got 0, 1, 2"),
        (frame(good=[1, 1, 1, 1]), {}, "exactly 0, 1 as values of 'good' in .*; got 1"),
        (frame(good=[True, False, True, False]), {}, "got False, True"),
        (frame(good=[np.nan] * 4), {}, "exactly 0, 1 as values of 'good' in .*; got none"),
        (frame(size=["1", "2", "?", "3"]), {}, r"finite numbers in column 'size'; got '\?'"),
        (frame(size=[1, 2, np.inf, 3]), {}, "finite numbers in column 'size'; got np.float64.inf"),
        (frame(), {"arrays": (5, 3)}, r"features of shape \(5, 3\) from pharyngitis.csv; got \(4, 3\)"),
    ],
)
def test_another_file_is_refused(table: Any, changes: dict[str, Any], match: str) -> None:
    with pytest.raises(TableError, match=match) as caught:
        arrays(table, small(**changes), KINDS)
    assert isinstance(caught.value, ValueError)


def test_a_sample_of_a_large_table() -> None:
    described = manifest("airlines")._replace(shape=(50_000, 8))
    rng = np.random.RandomState(3)
    content = [
        rng.randint(0, column.levels, 50_000) if column.levels else rng.randint(column.low, column.high, 50_000)
        for column in described.columns
    ]
    table = pd.DataFrame({column.name: values for column, values in zip(described.columns, content, strict=True)})
    rows = np.sort(np.random.RandomState(0).permutation(50_000)[:2000])
    found = {}
    for name, typed in (("int", table), ("str", table.astype(str)), ("category", table.astype("category"))):
        found[name] = arrays(typed, described, described.recipes["default"])
        assert np.array_equal(found[name][0][:, 1], table["Flight"].iloc[rows])
        assert found[name][0].tobytes() == found["int"][0].tobytes()
        assert np.array_equal(found[name][1], table["Delay"].iloc[rows])
