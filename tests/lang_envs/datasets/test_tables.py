"""Tables from files, and tables of the user's own: reading, inferred types, refusals with their reason."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from ast import literal_eval
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lang_envs.datasets import Dataset
from lang_envs.datasets.errors import DataMissingError, TableError
from lang_envs.datasets.files import read_table
from lang_envs.datasets.tables import MAX_CLASSES, MAX_DESCRIPTION, MIN_CLASS_ROWS, own_table
from lang_envs.envs.datascicoding.scoring import splits
from lang_envs.errors import LangEnvsError, MissingExtraError

pd = pytest.importorskip("pandas")

ARFF = """\
% a comment
@RELATION "made up"

@ATTRIBUTE size REAL
@ATTRIBUTE 'a kind' {C26, C3, 'two words', "it's", never}
@ATTRIBUTE n INTEGER
@ATTRIBUTE note STRING
@ATTRIBUTE class {yes,no}

@DATA
1.5,C3,3,first,yes
?,C26,?,'with, comma',no
-2e1,'two words',7,?,yes
% another comment
4, "it's", 0, größer, no
0,?,1,x,?
"""


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def table(n: int = 40, **columns: Any) -> dict[str, Any]:
    """Columns of a small table; `y` is a fine target."""
    content = {"a": np.arange(n) / 4, "b": ["x", "z10", "z9", "x"] * (n // 4), "y": ["no", "yes"] * (n // 2)}
    return {**content, **columns}


# ---------------------------------------------------------------------- files


def test_parquet(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame(table()).assign(c=pd.Categorical(["u", "v"] * 20), größe=pd.array([1, None] * 20, "Int64"))
    for name in ("t.parquet", "t.pq"):
        frame.to_parquet(tmp_path / name)
        pd.testing.assert_frame_equal(read_table(tmp_path / name), frame)
    frame.set_index("größe").to_parquet(tmp_path / "t.parquet")
    assert list(read_table(tmp_path / "t.parquet")) == ["größe", *frame.columns.drop("größe")]


@pytest.mark.parametrize("row", ["20,1000,1,0\n", "20,1000,1,\n", "row{},1000,1,\n"])
def test_rows_that_are_longer_than_the_header(tmp_path: Path, row: str) -> None:
    """Pandas would take the first columns for an index, and the target for a feature; rows may be numbered."""
    path = write(tmp_path, "t.csv", "age,income,bought\n" + "".join(row.format(number) for number in range(40)))
    with pytest.raises(TableError, match="Expected a name for every column; got 3 names and longer rows"):
        own_table(path, "bought")


@pytest.mark.parametrize(
    ("row", "fix"),
    [
        ('20, "a, b", 1', "skipinitialspace=True"),
        ("20,'a, b',1", 'quotechar="\'"'),
        ("20, 'a, b', 1", 'skipinitialspace=True, quotechar="\'"'),
        ("20,a,1 # one, two", "comment='#'"),
        ("20,a,b,1", None),
    ],
)
@pytest.mark.parametrize("place", [0, 5])
def test_advises_options_that_read_the_file(tmp_path: Path, row: str, fix: str | None, place: int) -> None:
    rows = [f"{age},c,0" for age in range(10)]
    rows[place] = row
    path = write(tmp_path, "t.csv", "\n".join(["age,name,bought", *rows]) + "\n")
    with pytest.raises(TableError, match="longer rows") as caught:
        read_table(path)
    advised = re.search(r"read_csv\(path, (.*)\)", str(caught.value))
    assert (advised and advised[1]) == fix
    if fix:
        options = dict(option.split("=") for option in fix.split(", "))
        assert pd.read_csv(path, **{name: literal_eval(value) for name, value in options.items()}).shape == (10, 3)


@pytest.mark.parametrize("text", ['a, "b,c", y\n0, "p,q", u\n', 'a,b\n0,1\n0, "p"\n'])
def test_rejects_spaces_before_quotation_marks(tmp_path: Path, text: str) -> None:
    with pytest.raises(TableError, match=r"a space before one, .* skipinitialspace=True"):
        read_table(write(tmp_path, "t.csv", text))


BIG = 2**53


@pytest.mark.parametrize(
    ("numbers", "gap"),
    [
        ([BIG + 1, BIG], ""),
        ([BIG + 1, BIG], ",1,u\n"),
        ([10**25 + 1, 10**25], ""),
        ([10**25 + 1, 10**25], ",1,u\n"),
    ],
)
def test_keeps_large_whole_numbers_apart(tmp_path: Path, numbers: list[int], gap: str) -> None:
    rows = "".join(f"{number},{at},{'uv'[at % 2]}\n" for at, number in enumerate(numbers * 4))
    x = own_table(write(tmp_path, "t.csv", f"a,b,c\n{rows}{gap}"), "c").x
    assert x[:, 0].tolist() == ([1, 0] if numbers[0] > numbers[1] else [0, 1]) * 4


@pytest.mark.parametrize("as_file", [False, True])
def test_keeps_large_whole_numbers_apart_beside_a_gap(tmp_path: Path, as_file: bool) -> None:
    columns: Any = {"a": [BIG + 1, BIG, None, *[BIG] * 16], "y": [*[BIG, BIG + 1, BIG + 2] * 6, None]}
    if as_file:
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pytest.importorskip("pyarrow").table(columns), tmp_path / "t.parquet")
    table = own_table(tmp_path / "t.parquet" if as_file else columns, "y")
    assert (table.classes, table.x[:2, 0].tolist()) == (3, [1, 0])


@pytest.mark.parametrize("declared", ["a integer [1,10]", "'a' NUMERIC [1;10]", '"a" Real {0.5}'])
def test_arff_numbers_may_have_bounds_and_weights(tmp_path: Path, declared: str) -> None:
    pytest.importorskip("arff")
    head = f"@relation t\n@attribute {declared}\n@attribute c{{u,v}}\n@data\n"
    frame = read_table(write(tmp_path, "t.arff", f"{head}1.5,u\n?,v\n"))
    assert frame["a"].dtype == np.float64
    assert (frame["a"].iloc[0], frame["a"].isna().tolist(), frame["c"].tolist()) == (1.5, [False, True], ["u", "v"])
    rows = "".join(f"{BIG + at % 2},{'uv'[at % 2]}\n" for at in range(8))
    assert own_table(write(tmp_path, "t.arff", head + rows + "?,u\n"), "c").x[:2, 0].tolist() == [0, 1]


@pytest.mark.parametrize("gap", ["", "?,u\n"])
def test_arff_of_whole_numbers_beyond_int64(tmp_path: Path, gap: str) -> None:
    pytest.importorskip("arff")
    rows = "".join(f"{2**63 + at},{'uv'[at % 2]}\n" for at in range(8))
    path = write(
        tmp_path, "t.arff", f"@relation t\n@attribute a'b numeric % of\n@attribute c {{u,v}}\n@data\n{rows}{gap}"
    )
    assert own_table(path, "c").x[:, 0].tolist() == list(range(8))


@pytest.mark.parametrize("declared", ["a{p,q}{0.5}", "a string {0.5}", "a {p,q} % kinds"])
def test_arff_types_may_have_weights_and_comments(tmp_path: Path, declared: str) -> None:
    pytest.importorskip("arff")
    path = write(tmp_path, "t.arff", f"@relation t\n@attribute {declared}\n@data\np\nq\n")
    assert read_table(path)["a"].tolist() == ["p", "q"]


@pytest.mark.parametrize("text", ["1_000", "\u0661\u0662"])
def test_rejects_arff_numbers_of_python_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.arff"
    path.write_text(f"@relation r\n@attribute a numeric\n@attribute y {{u,v}}\n@data\n1,u\n{text},v\n", "utf-8")
    with pytest.raises(TableError, match="Unable to parse string"):
        read_table(path)


def test_arff_of_large_whole_numbers_in_a_later_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("arff")
    monkeypatch.setattr("lang_envs.datasets.files._ARFF_BLOCK", 3)
    rows = "".join(f"{number},{'uv'[at % 2]}\n" for at, number in enumerate([1, 2, 3, 4, 5, 6, BIG + 1, BIG]))
    head = "@relation t\n@attribute 'it\\'s' integer\n@attribute c {u,v}\n@data\n"
    assert own_table(write(tmp_path, "t.arff", head + rows), "c").x[:, 0].tolist() == [0, 1, 2, 3, 4, 5, 7, 6]


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_arff(tmp_path: Path, mark: str) -> None:
    pytest.importorskip("arff")
    frame = read_table(write(tmp_path, "t.arff", mark + ARFF))
    assert frame.columns.tolist() == ["size", "a kind", "n", "note", "class"]
    assert frame["size"].dtype == frame["n"].dtype == np.float64
    assert frame["size"].tolist()[0::2] == [1.5, -20.0, 0.0]
    assert frame["a kind"].tolist()[:4] == ["C3", "C26", "two words", "it's"]
    assert isinstance(frame["class"].dtype, pd.CategoricalDtype)
    assert frame["note"].tolist()[:2] == ["first", "with, comma"]
    assert frame["note"].tolist()[3] == "größer"
    assert frame.isna().to_numpy().tolist() == [
        [False] * 5,
        [True, False, True, False, False],
        [False, False, False, True, False],
        [False] * 5,
        [False, True, False, False, True],
    ]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataMissingError, match=r"Expected a file; there is none at '.*none\.csv'\. Fix") as caught:
        read_table(tmp_path / "none.csv")
    assert isinstance(caught.value, FileNotFoundError)
    assert isinstance(caught.value, LangEnvsError)
    assert not isinstance(caught.value, TableError)


@pytest.mark.parametrize("address", ["https://example.org/t.csv", Path("https://example.org/t.csv")])
def test_an_address(address: str | Path) -> None:
    with pytest.raises(
        TableError, match=r"path of a file; got the address '.*', and addresses are not read\. Fix: down"
    ):
        read_table(address)


@pytest.mark.parametrize("name", ["t", "t.csv.gz", "csv"])
def test_another_kind_of_file(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, name, "a,b\n1,2\n")
    with pytest.raises(TableError, match=rf"ends in \.csv, \.parquet, \.pq, \.arff; got '.*{name}'"):
        read_table(path)


@pytest.mark.parametrize(
    ("separator", "shown", "written"), [(";", "';'", ";"), ("\t", r"'\t'", r"\t"), ("|", "'|'", "|")]
)
def test_another_separator(tmp_path: Path, separator: str, shown: str, written: str) -> None:
    rows = "".join(f"{at},5{separator}{at % 2}\n" for at in range(20))  # decimal commas: two fields of one
    path = write(tmp_path, "t.csv", f"a{separator}y\n{rows}")
    told = f'is the separator {shown}? Fix: pass a DataFrame: table=pandas.read_csv(path, sep="{written}").'
    with pytest.raises(TableError, match=f"got only one, .*: {re.escape(told)}$"):
        own_table(path, "y")
    assert own_table(pd.read_csv(path, sep=separator), "y").x.shape == (20, 1)
    assert read_table(write(tmp_path, "one.csv", "a b\n1\n")).shape == (1, 1)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", ""),
        ("t.csv", 'a,b\n1,"2\n'),
        ("t.parquet", b""),
        ("t.arff", "a,b\n1,2\n"),
        ("t.arff", "@RELATION t\n@ATTRIBUTE a {u,v}\n@DATA\nw\n"),
        ("t.arff", "@RELATION t\n@ATTRIBUTE a NUMERIC\n@DATA\nw\n"),
        ("t.arff", "@RELATION t\n@ATTRIBUTE a NUMERIC\n@DATA\n1,2\n"),
    ],
)
def test_a_damaged_file(tmp_path: Path, name: str, content: str | bytes) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("arff")
    path = write(tmp_path, name, content)
    with pytest.raises(
        TableError, match=rf"can be read as its name says, '.*{name}'; got: .+\. Fix: correct the file"
    ) as caught:
        read_table(path)
    assert isinstance(caught.value, ValueError)
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize(
    ("module", "name", "package"),
    [("pandas", "t.csv", "pandas"), ("pyarrow", "t.parquet", "pyarrow"), ("arff", "t.arff", "liac-arff")],
)
def test_without_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, name: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    path = write(tmp_path, name, "a,b\n1,2\n")
    for read in (read_table, lambda path: own_table(path, "a")):
        with pytest.raises(MissingExtraError, match=rf"Expected {package}, which reads tables.*\[data\]"):
            read(path)


def test_nothing_is_imported_early() -> None:
    modules = "preprocessing, tables"
    code = f"import sys; from lang_envs.datasets import {modules}; print('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


# ---------------------------------------------------------------------- arrays of a table


def test_a_table_of_ones_own() -> None:
    dataset = own_table(table(), "y", "Rows of things; to be predicted is which")
    assert isinstance(dataset, Dataset)
    assert dataset.x.tolist() == [[at / 4, [0, 2, 1, 0][at % 4]] for at in range(40)]
    assert dataset.y.tolist() == [0, 1] * 20
    assert (dataset.name, dataset.title, dataset.source) == (
        "own table",
        "the given table",
        "a mapping of names to columns",
    )
    assert dataset.about == "Rows of things; to be predicted is which."
    assert not dataset.published
    assert not dataset.synthetic
    frame = pd.DataFrame(table())
    assert own_table(frame, "y") == dataset
    assert own_table(frame, "y").source == "a DataFrame"
    pd.testing.assert_frame_equal(frame, pd.DataFrame(table()))


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ([3, 1, 2, 3], [3, 1, 2, 3]),
        (pd.arrays.SparseArray([0.0, 1.5, 0.0, 0.0]), [0, 1.5, 0, 0]),
        ([Decimal("3.5"), Decimal(1), Decimal(2), Decimal(3)], [3.5, 1, 2, 3]),
        (["C26", "C3", "A", "C3"], [2, 1, 0, 1]),
        (pd.Categorical(["low", "high", "high", "low"]), [1, 0, 0, 1]),
        (pd.Categorical(["low", "high", "high", "low"], ["low", "middle", "high"], ordered=True), [0, 1, 1, 0]),
        (pd.cut([-5.0, 0.3, 0.6, 30.0], [-10, 0.25, 0.5, 10, 100]), [0, 1, 2, 3]),
        (pd.to_datetime(["2020-03-01", "1969-01-01", "2020-03-01", "2020-03-01"]), [1, 0, 1, 1]),
        (np.array([timedelta(days=d) for d in (10, -1, 9, -1)], dtype=object), [2, 0, 1, 0]),
        ([7, 7, 7, 7], [7, 7, 7, 7]),
    ],
)
def test_types_of_columns(column: Any, expected: list[float]) -> None:
    frame = pd.DataFrame({"f": pd.Series(column), "y": [0, 1, 0, 1]})
    frame = pd.concat([frame] * 4, ignore_index=True)
    if frame["f"].dtype != pd.Series(column).dtype:
        frame["f"] = frame["f"].astype(pd.Series(column).dtype)
    assert own_table(frame, "y").x[:, 0].tolist() == expected * 4


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ([10, 9], [1, 0]),
        (["1.0", "0"], [1, 0]),
        ([True, False], [1, 0]),
        (pd.Categorical(["b", "a"], ["b", "a", "c"]), [1, 0]),
        (pd.Categorical(["b", "a"], ["c", "b", "a"], ordered=True), [0, 1]),
        (pd.to_datetime(["2021-01-01", "2020-01-01"]), [1, 0]),
        (np.array([True, "x"], dtype=object), [0, 1]),
    ],
)
def test_classes(target: Any, expected: list[int]) -> None:
    frame = pd.concat([pd.DataFrame({"y": pd.Series(target), "f": [1, 2]})] * 4)
    frame["y"] = frame["y"].astype(pd.Series(target).dtype)
    assert own_table(frame, "y").y.tolist() == expected * 4


@pytest.mark.parametrize("gap", [None, np.nan, pd.NA, pd.NaT])
def test_rows_with_gaps_are_left_out(gap: Any) -> None:
    frame = pd.DataFrame(table(), dtype=object)
    frame.loc[[1, 2], "a"] = gap
    frame.loc[3, "b"] = gap
    frame.loc[39, "y"] = gap
    dataset = own_table(frame, "y")
    kept = [at for at in range(40) if at not in (1, 2, 3, 39)]
    assert dataset.x[:, 0].tolist() == [at / 4 for at in kept]
    assert dataset.y.tolist() == [at % 2 for at in kept]


def test_the_smallest_table_can_be_halved() -> None:
    dataset = own_table({"a": range(8), "y": [0, 1] * MIN_CLASS_ROWS}, "y")
    for split in splits(dataset, range(50)):
        assert set(dataset.y[split.train]) == set(dataset.y[split.test]) == {0, 1}


# ---------------------------------------------------------------------- description


@pytest.mark.parametrize(
    ("content", "remarks"),
    [
        (table(b=["x", None, "z", "x"] * 10), "40 rows; 10 left out with missing values ('b': 10)"),
        (
            table(b=["x", None] + ["z", "w"] * 19, y=[None] * 3 + ["u", "v"] * 18 + ["v"]),
            "40 rows; 3 left out with missing values ('y': 3, 'b': 1)",
        ),
        (table(b=["10 %", "9 %"] * 20), "40 rows; numbers written as text: 'b' (2 categories, such as '9 %')"),
        (table(b=["1.200 €", "-2 €"] * 20), "40 rows; numbers written as text: 'b' (2 categories, such as '-2 €')"),
        (table(b=["1", "2", "5", "?"] * 10), "40 rows; numbers written as text: 'b' (4 categories, such as '?')"),
        (table(id=[f"n{at}" for at in range(40)]), "40 rows; different in every row: 'id'"),
        (table(ID=range(70, 110)), "40 rows; different in every row: 'ID'"),
        (
            table(i=range(1, 41), b=[None, *"xz" * 19, "x"]),
            "40 rows; 1 left out with missing values ('b': 1); different in every row: 'i'",
        ),
        ({"\n": [1] * 40, "y": [0, 1] * 20}, r"40 rows; constant: '\n'"),
    ],
)
def test_what_looks_like_a_mistake_is_said_in_one_line(
    content: dict[str, Any], remarks: str, caplog: pytest.LogCaptureFixture
) -> None:
    own_table(content, "y")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", f"the given table: {remarks}")
    ]


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"c": ["0", "1", "2", "3+"] * 10},
        {"c": ["C3", "C26", "1,5", "x"] * 10},
        {"c": range(2, 42)},
        {"c": np.linspace(1, 2, 40)},
        {"c": pd.date_range("2020-01-01", periods=40)},
        {"id": [1, 2] * 20},
    ],
)
def test_what_is_fine_is_passed_over_in_silence(columns: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        own_table(table(**columns), "y")
    assert caplog.records == []


# ---------------------------------------------------------------------- refused tables


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (table(y=[1] * 40), "at least two classes in 'y'; got only '1' in 40 complete rows. Fix: choose another"),
        (table(c=[None] * 40, d=[np.nan] * 40), "a value in every column; got none in 'c', 'd', so that no row"),
        (table(n=0), "at least 8 rows without missing values; got 0 of 0. Fix: fill in"),
        (table(y=[0] * 37 + [1] * 3), "at least 4 complete rows of every class in 'y', so .*; got 3 of '1'. Fix: drop"),
        (table(y=[f"id {at}" for at in range(40)]), "at most 30 distinct values, .* got 40 .*, 'id 0' to 'id 39'. Fix"),
        (table(y=["a" * 500] * 38 + ["b"] * 2), "got 2 of 'b'"),
        (table(n=124, y=[*range(MAX_CLASSES + 1)] * 4), "at most 30 distinct .* got 31 distinct ones, 0 to 30. Fix"),
        (table(y=[Decimal("0.5"), Decimal(1)] * 20), "got 2 distinct ones, 0.5 to 1"),
        (table(a=[0.0, np.inf] * 20), "finite numbers in column 'a'; got inf. Fix: replace"),
        (table(a=[1, 10**400] * 20), "finite numbers in column 'a'; got 1000"),
        ({"y": ["no", "yes"] * 20}, "columns beside 'y' to learn from; got none. Fix: add features"),
    ],
)
def test_what_nobody_could_learn(content: dict[str, Any], match: str) -> None:
    for given in (content, pd.DataFrame(content)):
        with pytest.raises(TableError, match=f"Expected .*{match}") as caught:
            own_table(given, "y")
        assert isinstance(caught.value, ValueError)
        assert len(str(caught.value)) < 700


@pytest.mark.parametrize(
    ("target", "match"),
    [
        ("Y", r"Expected a column 'Y' to predict; there is none\. Did you mean y\? Fix: name one of 'a', 'b', 'y'"),
        ("nothing like it", r"'nothing like it' to predict; there is none\. Fix: name one of 'a', 'b', 'y'"),
        (None, "name of the target as text; got None"),
        (2, "column '2' to predict; there is none"),
        (2.0, "name of the target as text; got 2.0"),
    ],
)
def test_no_such_target(target: Any, match: str) -> None:
    with pytest.raises(TableError, match=match):
        own_table(table(), target)


class Thing:
    """Its text is its place in memory."""


def objects(values: list[Any]) -> Any:
    return pd.Series(values, dtype=object)


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (objects([Thing() for _ in range(40)]), "objects of the type Thing, whose text is a place in memory"),
        (objects([lambda: 1] * 40), "objects of the type function, whose text is a place in memory"),
    ],
)
def test_columns_that_cannot_be_encoded(column: Any, why: str) -> None:
    frame = pd.DataFrame({"odd": column, "y": [0, 1] * 20})
    for target in ("odd", "y"):
        with pytest.raises(
            TableError, match=f"Expected numbers, texts, .* in column 'odd'; got {why}.* Fix: make text"
        ):
            own_table(frame, target)


def test_names_that_occur_twice(tmp_path: Path) -> None:
    frame = pd.DataFrame([[1, 2, 3, 4]] * 8, columns=["a", "b", "a", "y"])
    with pytest.raises(TableError, match=r"every column once; got 'a' more than once\. Fix: rename"):
        own_table(frame, "y")
    with pytest.raises(TableError, match="every column once; got '1' more than once"):
        own_table(pd.DataFrame([[1, 2, 3]], columns=[1, "1", "y"]), "y")
    frame.to_csv(tmp_path / "t.csv", index=False)  # pandas would read a, b, a.1
    with pytest.raises(TableError, match="every column once; got 'a' more than once"):
        own_table(tmp_path / "t.csv", "y")
    write(tmp_path, "t.csv", "NA,NA,y\n" + "1,2,p\n3,4,q\n" * 10)
    with pytest.raises(TableError, match="every column once; got 'NA' more than once"):
        own_table(tmp_path / "t.csv", "y")


@pytest.mark.parametrize("given", [None, [[1, 2], [3, 4]], np.zeros((8, 2)), pd.Series([1, 2])], ids=range(4))
def test_a_table_of_the_wrong_type(given: Any) -> None:
    with pytest.raises(TableError, match="Expected a path, a pandas DataFrame or a mapping of names to columns; got "):
        own_table(given, "y")


@pytest.mark.parametrize(
    ("description", "match"),
    [
        ("two\nlines", r"one printable line, at most 200 characters; got 9 characters, 'two\\nlines'"),
        ("a\x1b[2Jb", "one printable line"),
        ("a\u202eb", "one printable line"),
        ("w" * (MAX_DESCRIPTION + 1), "at most 200 characters; got 201 characters"),
        (None, "a description as text; got NoneType"),
    ],
)
def test_descriptions_that_fit_no_prompt(description: Any, match: str) -> None:
    with pytest.raises(TableError, match=match):
        own_table(table(), "y", description)
