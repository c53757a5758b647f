"""Tables from files, and tables of the user's own: reading, inferred types, refusals with their reason."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from ast import literal_eval
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lang_envs.datasets import Dataset
from lang_envs.datasets.errors import DataMissingError, TableError
from lang_envs.datasets.files import read_table
from lang_envs.datasets.tables import MAX_CLASSES, MAX_DESCRIPTION, MIN_CLASS_ROWS, own_table
from lang_envs.envs.datascicoding.options import choose_dataset
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


def test_csv_is_read_as_pandas_does(tmp_path: Path) -> None:
    path = write(tmp_path, "T.CSV", "a,b,c,d\n1,x,True,2.5\n,y,False,\n3,,True,1e3\n")
    for found in (read_table(path), read_table(str(path))):
        pd.testing.assert_frame_equal(found, pd.read_csv(path))
        assert found.isna().sum().tolist() == [1, 1, 0, 1]


def test_a_long_csv_column_has_one_type(tmp_path: Path) -> None:
    rows = "".join(f"0{at % 7}\n" for at in range(400_000))
    path = write(tmp_path, "long.csv", f"code\n{rows}14+\n")
    codes = read_table(path)["code"]
    assert set(codes) == {*(f"0{digit}" for digit in range(7)), "14+"}


def test_parquet(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame(table()).assign(c=pd.Categorical(["u", "v"] * 20), größe=pd.array([1, None] * 20, "Int64"))
    for name in ("t.parquet", "t.pq"):
        frame.to_parquet(tmp_path / name)
        pd.testing.assert_frame_equal(read_table(tmp_path / name), frame)
    frame.set_index("größe").to_parquet(tmp_path / "t.parquet")
    assert list(read_table(tmp_path / "t.parquet")) == ["größe", *frame.columns.drop("größe")]


@pytest.mark.parametrize(
    "row", ["20,1000,1,0\n", "20,1000,1,\n", "20,1000,1,0,5\n", "{},1000,1,0\n", "row{},1000,1,\n"]
)
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


@pytest.mark.parametrize(
    "text",
    ['a, "b,c", y\n0, "p,q", u\n', 'a,b,c,y\n0, "p,q", u\n', 'a, b\n0, "p"\n', 'a,b\n0,1\n0, "p"\n'],
)
def test_rejects_spaces_before_quotation_marks(tmp_path: Path, text: str) -> None:
    with pytest.raises(TableError, match=r"a space before one, .* skipinitialspace=True"):
        read_table(write(tmp_path, "t.csv", text))


BIG = 2**53


@pytest.mark.parametrize(
    ("numbers", "gap"),
    [
        ([BIG + 1, BIG], ""),
        ([BIG + 1, BIG], ",1,u\n"),
        ([-BIG - 1, -BIG], ",1,u\n"),
        ([10**19 + 1, 10**19], ""),
        ([10**25 + 1, 10**25], ""),
        ([10**19 + 1, 10**19], ",1,u\n"),
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


@pytest.mark.parametrize("kind", [float, Decimal])
def test_ranks_keep_fractions(kind: Any) -> None:
    values = [kind(".25"), kind(".5"), kind(".75"), 1, 2, BIG, BIG + 1, BIG + 2]
    table = own_table({"a": pd.Series(values, dtype=object), "y": [0, 1] * 4}, "y")
    assert table.x[:, 0].tolist() == list(range(8))


def test_keeps_large_whole_numbers_that_float64_holds(tmp_path: Path) -> None:
    rows = "".join(f"{BIG * 2 ** (at % 3)},{'uv'[at % 2]}\n" for at in range(12))
    assert own_table(write(tmp_path, "t.csv", f"a,c\n{rows}"), "c").x[:3, 0].tolist() == [BIG, 2 * BIG, 4 * BIG]


@pytest.mark.parametrize(
    "declared", ["a integer [1,10]", "a real[0.5, 3e2]", "'a' NUMERIC [1;10]", '"a" Real {0.5}', "a integer"]
)
def test_arff_numbers_may_have_bounds_and_weights(tmp_path: Path, declared: str) -> None:
    pytest.importorskip("arff")
    head = f"@relation t\n@attribute {declared}\n@attribute c{{u,v}}\n@data\n"
    frame = read_table(write(tmp_path, "t.arff", f"{head}1.5,u\n?,v\n"))
    assert frame["a"].dtype == np.float64
    assert (frame["a"].iloc[0], frame["a"].isna().tolist(), frame["c"].tolist()) == (1.5, [False, True], ["u", "v"])
    rows = "".join(f"{BIG + at % 2},{'uv'[at % 2]}\n" for at in range(8))
    assert own_table(write(tmp_path, "t.arff", head + rows + "?,u\n"), "c").x[:2, 0].tolist() == [0, 1]


@pytest.mark.parametrize("start", [2**63, 2**70])
@pytest.mark.parametrize("gap", ["", "?,u\n"])
def test_arff_of_whole_numbers_beyond_int64(tmp_path: Path, start: int, gap: str) -> None:
    pytest.importorskip("arff")
    rows = "".join(f"{start + at},{'uv'[at % 2]}\n" for at in range(8))
    path = write(
        tmp_path, "t.arff", f"@relation t\n@attribute a'b numeric % of\n@attribute c {{u,v}}\n@data\n{rows}{gap}"
    )
    assert own_table(path, "c").x[:, 0].tolist() == list(range(8))


@pytest.mark.parametrize(
    "declared", ["a {p,q} {0.5}", "a{p,q}{0.5}", "a string {0.5}", "a {p,q} % kinds", "a string % of"]
)
def test_arff_types_may_have_weights_and_comments(tmp_path: Path, declared: str) -> None:
    pytest.importorskip("arff")
    path = write(tmp_path, "t.arff", f"@relation t\n@attribute {declared}\n@data\np\nq\n")
    assert read_table(path)["a"].tolist() == ["p", "q"]


def test_arff_of_large_whole_numbers_in_a_later_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("arff")
    monkeypatch.setattr("lang_envs.datasets.files._ARFF_BLOCK", 3)
    rows = "".join(f"{number},{'uv'[at % 2]}\n" for at, number in enumerate([1, 2, 3, 4, 5, 6, BIG + 1, BIG]))
    head = "@relation t\n@attribute 'it\\'s' integer\n@attribute c {u,v}\n@data\n"
    assert own_table(write(tmp_path, "t.arff", head + rows), "c").x[:, 0].tolist() == [0, 1, 2, 3, 4, 5, 7, 6]


@pytest.mark.parametrize("kind", ["date", "DATE 'yyyy-MM-dd'", "relational", "int", "numeric(1,10)"])
def test_names_the_line_of_an_arff_type_that_is_not_read(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("arff")
    path = write(tmp_path, "t.arff", f"@relation t\n@attribute a {kind}\n@data\n1\n")
    with pytest.raises(TableError, match=r"numeric, nominal or texts in 't.arff'; got another kind in line 2\."):
        read_table(path)


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


def test_arff_of_several_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("arff")
    rows = [f"{at},{'uv'[at % 2]}" for at in range(10)]
    head = "@RELATION t\n@ATTRIBUTE a NUMERIC\n@ATTRIBUTE b {u,v}\n@DATA\n"
    path = write(tmp_path, "t.arff", head + "\n".join(rows))
    for size in (1, 3, 5, 10, 11):
        monkeypatch.setattr("lang_envs.datasets.files._ARFF_BLOCK", size)
        frame = read_table(path)
        assert frame["a"].tolist() == list(range(10))
        assert frame["b"].tolist() == ["u", "v"] * 5
    assert read_table(write(tmp_path, "empty.arff", head)).shape == (0, 2)
    sparse = read_table(write(tmp_path, "sparse.arff", head + "{0 2.5}\n{1 v}\n{}\n"))
    assert sparse.to_numpy().tolist() == [[2.5, "u"], [0, "v"], [0, "u"]]


def test_one_table_in_three_formats(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("arff")
    frame = pd.DataFrame({"a": [1.5, 2.0, -3.0] * 8, "b": ["9", "10", "11"] * 8, "y": ["0", "1"] * 12})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.astype({"b": "category", "y": "category"}).to_parquet(tmp_path / "t.parquet")
    rows = "\n".join(",".join(map(str, row)) for row in frame.itertuples(index=False))
    head = "@RELATION t\n@ATTRIBUTE a NUMERIC\n@ATTRIBUTE b {9,10,11}\n@ATTRIBUTE y {0,1}\n@DATA\n"
    write(tmp_path, "t.arff", head + rows)
    found = {suffix: own_table(tmp_path / f"t.{suffix}", "y") for suffix in ("csv", "parquet", "arff")}
    assert found["parquet"] == found["arff"]
    assert found["csv"].x[:, 1].tolist() == [9, 10, 11] * 8  # CSV has no categories
    assert np.array_equal(found["csv"].y, found["arff"].y)
    assert {dataset.name for dataset in found.values()} == {"t"}


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataMissingError, match=r"Expected a file; there is none at '.*none\.csv'\. Fix") as caught:
        read_table(tmp_path / "none.csv")
    assert isinstance(caught.value, FileNotFoundError)
    assert isinstance(caught.value, LangEnvsError)
    assert not isinstance(caught.value, TableError)


@pytest.mark.parametrize(
    "address", ["https://example.org/t.csv", Path("https://example.org/t.csv"), "s3://t/t.parquet"]
)
def test_an_address(address: str | Path) -> None:
    with pytest.raises(
        TableError, match=r"path of a file; got the address '.*', and addresses are not read\. Fix: down"
    ):
        read_table(address)


def test_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    pd.DataFrame(table()).to_csv(tmp_path / "t.csv", index=False)
    for path in ("~/t.csv", Path("~/t.csv")):
        assert own_table(path, "y") == own_table(table(), "y")


@pytest.mark.parametrize("name", ["t.xlsx", "t", "t.csv.gz", ".csv", "csv"])
def test_another_kind_of_file(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, name, "a,b\n1,2\n")
    with pytest.raises(TableError, match=rf"ends in \.csv, \.parquet, \.pq, \.arff; got '.*{name}'\. Fix: convert"):
        read_table(path)


@pytest.mark.parametrize(
    ("name", "snippet"),
    [
        ("t.tsv", 'table=pandas.read_csv(path, sep="\\t").'),
        ("t.TXT", 'table=pandas.read_csv(path, sep="\\t").'),
        ("t.csv.gz", "table=pandas.read_csv(path)."),
        ("t.xlsx", "table=pandas.read_excel(path)."),
    ],
)
def test_how_other_files_are_read(name: str, snippet: str) -> None:
    with pytest.raises(TableError, match=f"or pass a DataFrame: {re.escape(snippet)}$"):
        read_table(name)


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


@pytest.mark.parametrize("name", ["t.csv", "t.arff"])
def test_text_that_is_not_utf_8(tmp_path: Path, name: str) -> None:
    pytest.importorskip("arff")
    path = write(tmp_path, name, "größe,y\n1,2\n".encode("latin-1"))
    with pytest.raises(TableError, match=r'text in UTF-8 in .* table=pandas\.read_csv\(path, encoding="latin-1"\)'):
        read_table(path)


def test_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "t.csv"
    folder.mkdir()
    for path in (folder, tmp_path):
        with pytest.raises(TableError, match="Expected a file; got the folder"):
            read_table(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", ""),
        ("t.csv", "\n\n"),
        ("t.csv", 'a,b\n1,"2\n'),
        ("t.parquet", "a,b\n1,2\n"),
        ("t.parquet", b""),
        ("t.pq", b"PAR1 and nothing more PAR1"),
        ("t.arff", ""),
        ("t.arff", "a,b\n1,2\n"),
        ("t.arff", "@RELATION t\n@ATTRIBUTE a {u,v}\n@DATA\nw\n"),
        ("t.arff", "@RELATION t\n@ATTRIBUTE a NUMERIC\n@DATA\nw\n"),
        ("t.arff", "@RELATION t\n@ATTRIBUTE a NUMERIC\n@DATA\n1,2\n"),
        ("t.arff", "@RELATION t\n@ATTRIBUTE a NUMERIC\n@ATTRIBUTE a NUMERIC\n@DATA\n1,2\n"),
        ("t.arff", "@RELATION t\n@ATTRIBUTE a NUMERIC\n@DATA\n{1 1}\n"),
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


def test_a_text_that_is_no_path() -> None:
    with pytest.raises(TableError, match=r"can be read as its name says, .*; got: .*too long"):
        read_table("a,b\n" + "1,2\n" * 5000 + ".csv")


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


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    pd.DataFrame(table()).to_csv(tmp_path / "my_wines.csv", index=False)
    for path in (tmp_path / "my_wines.csv", str(tmp_path / "my_wines.csv")):
        dataset = own_table(path, "y")
        assert dataset == own_table(table(), "y")
        assert (dataset.name, dataset.title, dataset.source) == ("my_wines", "the my_wines table", str(path))


def test_the_title_is_one_short_printable_line(tmp_path: Path) -> None:
    path = tmp_path / f"a\nb\u202e{'c' * 100}.csv"
    pd.DataFrame(table()).to_csv(path, index=False)
    title = own_table(path, "y").title
    assert title == f"the a b {'c' * 56} table"
    assert title.isprintable()


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ([True, False, False, True], [1, 0, 0, 1]),
        ([3, 1, 2, 3], [3, 1, 2, 3]),
        ([2**53 + 1, 1, 1, 1], [2**53, 1, 1, 1]),
        (pd.array([True, False, False, True], "boolean"), [1, 0, 0, 1]),
        (pd.array([3, 1, 2, 3], "Int64"), [3, 1, 2, 3]),
        (pd.array([3, 1, 2, 3], "Float32"), [3, 1, 2, 3]),
        (pd.arrays.SparseArray([0.0, 1.5, 0.0, 0.0]), [0, 1.5, 0, 0]),
        (np.array([True, False, False, True], dtype=object), [1, 0, 0, 1]),
        (np.array([3, 1.5, 2, 3], dtype=object), [3, 1.5, 2, 3]),
        ([Decimal("3.5"), Decimal(1), Decimal(2), Decimal(3)], [3.5, 1, 2, 3]),
        (["10", "9", "9", "10"], [1, 0, 0, 1]),
        (["C26", "C3", "A", "C3"], [2, 1, 0, 1]),
        (pd.array(["C26", "C3", "A", "C3"], "string[python]"), [2, 1, 0, 1]),
        (np.array([1, "a", True, 1.0], dtype=object), [0, 2, 1, 0]),
        (pd.Categorical([10, 9, 9, 10]), [1, 0, 0, 1]),
        (pd.Categorical(["low", "high", "high", "low"]), [1, 0, 0, 1]),
        (pd.Categorical(["low", "high", "high", "low"], ["low", "middle", "high"], ordered=True), [0, 1, 1, 0]),
        (pd.cut([-5.0, 0.3, 0.6, 30.0], [-10, 0.25, 0.5, 10, 100]), [0, 1, 2, 3]),
        (pd.to_datetime(["2020-03-01", "1969-01-01", "2020-03-01", "2020-03-01"]), [1, 0, 1, 1]),
        (pd.to_datetime(["2020-01-01", "2020-01-01", "2021-01-01", "2020-01-01"], utc=True), [0, 0, 1, 0]),
        (pd.to_timedelta([1, -1, 10, 1], unit="D"), [1, 0, 2, 1]),
        (pd.period_range("2020-01", periods=4, freq="M"), [0, 1, 2, 3]),
        (np.array([timedelta(days=d) for d in (10, -1, 9, -1)], dtype=object), [2, 0, 1, 0]),
        (np.array([date(2020, 1, d) for d in (10, 1, 9, 1)], dtype=object), [2, 0, 1, 0]),
        (["größer", "Ω", "größer", "Ω"], [0, 1, 0, 1]),
        ([7, 7, 7, 7], [7, 7, 7, 7]),
        ([[1], [2], [1], [1]], [0, 1, 0, 0]),
    ],
)
def test_types_of_columns(column: Any, expected: list[float]) -> None:
    frame = pd.DataFrame({"f": pd.Series(column), "y": [0, 1, 0, 1]})
    frame = pd.concat([frame] * 4, ignore_index=True)
    if frame["f"].dtype != pd.Series(column).dtype:
        frame["f"] = frame["f"].astype(pd.Series(column).dtype)
    assert own_table(frame, "y").x[:, 0].tolist() == expected * 4


@pytest.mark.parametrize("kind", ["int64", "double", "bool", "string", "timestamp[ns]", "decimal128(5, 2)"])
def test_columns_of_arrow(kind: str) -> None:
    arrow = pytest.importorskip("pyarrow")
    values: dict[str, list[Any]] = {"string": ["10", "9"], "timestamp[ns]": [2, 1], "bool": [True, False]}
    values["decimal128(5, 2)"] = [Decimal("2.50"), Decimal("1.00")]
    expected = {"string": [1, 0], "timestamp[ns]": [1, 0], "bool": [1, 0], "decimal128(5, 2)": [2.5, 1]}
    dtype = pd.ArrowDtype(arrow.decimal128(5, 2) if "(" in kind else arrow.type_for_alias(kind))
    column = pd.Series(arrow.array([*values.get(kind, [2, 1]), None] * 8, type=dtype.pyarrow_dtype), dtype=dtype)
    dataset = own_table(pd.DataFrame({"f": column, "y": ["a", "b", "c"] * 8}), "y")
    assert dataset.x[:, 0].tolist() == expected.get(kind, [2, 1]) * 8
    assert dataset.y.tolist() == [0, 1] * 8


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ([1, -1], [1, 0]),
        ([10, 9], [1, 0]),
        ([1.0, 0.0], [1, 0]),
        (["1.0", "0"], [1, 0]),
        ([True, False], [1, 0]),
        ([2**53 + 1, 2**53], [1, 0]),
        (pd.Categorical(["b", "a"], ["b", "a", "c"]), [1, 0]),
        (pd.Categorical(["b", "a"], ["c", "b", "a"], ordered=True), [0, 1]),
        (["1.25", "1.5"], [0, 1]),
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


def test_the_index_and_odd_names_do_not_matter() -> None:
    frame = pd.DataFrame({7: range(8), ("a", 1): range(8), "": range(8), "ÿ\n": [0, 1] * 4}, index=[0] * 8)
    assert own_table(frame, "ÿ\n").x.shape == (8, 3)
    assert own_table(frame.assign(y=[0, 1] * 4), "y").x.shape == (8, 4)
    for target in (0, np.int64(0), "0"):
        assert own_table(pd.DataFrame({0: [0, 1] * 4, 1: range(8)}), target).x[:, 0].tolist() == list(range(8))
    assert own_table(pd.DataFrame({"0": [0, 1] * 4, 1: range(8)}), 0).x[:, 0].tolist() == list(range(8))
    assert own_table(frame.drop(columns=["ÿ\n"]).assign(y=[1, 2] * 4), "y").y.tolist() == [0, 1] * 4


def test_all_categories() -> None:
    dataset = own_table({"a": ["u", "v"] * 8, "b": ["w"] * 16, "y": ["k", "l", "m", "l"] * 4}, "y")
    assert dataset.x.tolist() == [[0, 0], [1, 0]] * 8
    assert dataset.classes == 3


def test_a_large_table() -> None:
    rng, n = np.random.RandomState(0), 300_000
    content = {"a": rng.rand(n), "b": rng.choice(["x", "y10", "y9"], n), "c": rng.randint(0, 5000, n).astype(str)}
    dataset = own_table({**content, "y": rng.rand(n) < 0.5}, "y")
    assert np.array_equal(dataset.x[:, 0], content["a"])
    assert np.array_equal(dataset.x[:, 1], pd.Series(content["b"]).map({"x": 0, "y9": 1, "y10": 2}))
    assert np.array_equal(dataset.x[:, 2], content["c"].astype(float))


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
        (
            {**{f"c{at}": [None, *range(2, 41)] for at in range(7)}, "y": [0, 1] * 20},
            "40 rows; 1 left out with missing values ('c0': 1, 'c1': 1, 'c2': 1, 'c3': 1, 'c4': 1, ...)",
        ),
        (
            table(b=["999.50", "1,234.50"] * 20),
            "40 rows; numbers written as text: 'b' (2 categories, such as '1,234.50')",
        ),
        (table(b=["$1", "$2"] * 20), "40 rows; numbers written as text: 'b' (2 categories, such as '$1')"),
        (table(b=["10 %", "9 %"] * 20), "40 rows; numbers written as text: 'b' (2 categories, such as '9 %')"),
        (table(b=["1,5", "2,25"] * 20), "40 rows; numbers written as text: 'b' (2 categories, such as '1,5')"),
        (table(b=["1.200 €", "-2 €"] * 20), "40 rows; numbers written as text: 'b' (2 categories, such as '-2 €')"),
        (table(b=["1", "2", "5", "?"] * 10), "40 rows; numbers written as text: 'b' (4 categories, such as '?')"),
        (table(c=[7] * 40, d=["u"] * 40), "40 rows; constant: 'c', 'd'"),
        (table(id=[f"n{at}" for at in range(40)]), "40 rows; different in every row: 'id'"),
        (table(i=range(40), j=[*range(40, 0, -1)]), "40 rows; different in every row: 'i', 'j'"),
        (table(ID=range(70, 110)), "40 rows; different in every row: 'ID'"),
        (
            table(i=range(1, 41), b=[None, *"xz" * 19, "x"]),
            "40 rows; 1 left out with missing values ('b': 1); different in every row: 'i'",
        ),
        (
            table(y=["Ill ", "ill", "ILL", "well"] * 10),
            "40 rows; classes that differ only by case or spaces: 'ILL' (10), 'Ill ' (10), 'ill' (10)",
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
        {"c": ["1", "2"] * 20},
        {"c": ["0", "1", "2", "3+"] * 10},
        {"c": ["C3", "C26", "1,5", "x"] * 10},
        {"c": ["?", "unknown"] * 20},
        {"c": range(2, 42)},
        {"c": [*range(39), 40]},
        {"c": np.linspace(1, 2, 40)},
        {"c": pd.date_range("2020-01-01", periods=40)},
        {"c": pd.period_range("2020", periods=40, freq="Y")},
        {"id": [1, 2] * 20},
        {"y": ["a", "b", "a.", "b c"] * 10},
    ],
)
def test_what_is_fine_is_passed_over_in_silence(columns: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        own_table(table(**columns), "y")
    assert caplog.records == []


def test_an_index_that_was_written_to_csv(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pd.DataFrame(table(), index=range(100, 140)).to_csv(tmp_path / "t.csv")
    assert own_table(tmp_path / "t.csv", "y").x.shape == (40, 3)
    assert caplog.messages == ["the t table: 40 rows; different in every row: 'Unnamed: 0'"]


def test_words_that_stand_for_missing_values(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    words = ["None", "NA", "null", "n/a", "", "nan"]
    rows = "".join(f"{word},{at % 2}\n" for at, word in enumerate([*words, *"uv" * 5]))
    assert len(own_table(write(tmp_path, "t.csv", f"a,y\n{rows}"), "y").y) == 10
    assert caplog.messages == ["the t table: 16 rows; 6 left out with missing values ('a': 6)"]


# ---------------------------------------------------------------------- refused tables


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (table(y=[1] * 40), "at least two classes in 'y'; got only '1' in 40 complete rows. Fix: choose another"),
        (table(y=["no"] * 40, a=[1.0, np.nan] * 20), "at least two classes in 'y'; got only 'no' in 20 complete"),
        (table(y=["no"] * 20 + [None] * 20), "at least two classes in 'y'; got only 'no' in 20"),
        (table(c=[None] * 40, d=[np.nan] * 40), "a value in every column; got none in 'c', 'd', so that no row"),
        (table(y=[pd.NA] * 40), "got none in 'y'"),
        (table(y=[pd.NaT] * 40), "got none in 'y'"),
        (table(a=[1.0] * 7 + [np.nan] * 33), r"at least 8 rows without missing values; got 7 of 40 \(most .* 'a'\)"),
        ({"a": [1, None], "y": [None, 1]}, "at least 8 rows without missing values; got 0 of 2"),
        (table(n=0), "at least 8 rows without missing values; got 0 of 0. Fix: fill in"),
        ({"a": [1], "y": [0]}, "at least 8 rows without missing values; got 1 of 1. Fix"),
        (table(y=[0] * 37 + [1] * 3), "at least 4 complete rows of every class in 'y', so .*; got 3 of '1'. Fix: drop"),
        (table(y=["r"] * 4 + ["s"] * 33 + list("abc")), "got 1 of 'a', 1 of 'b', 1 of 'c'. Fix"),
        (table(y=[f"id {at // 2}" for at in range(40)]), "got 2 of 'id 0', 2 of 'id 1', .*2 of 'id 4', .... Fix"),
        (table(y=[f"id {at}" for at in range(40)]), "at most 30 distinct values, .* got 40 .*, 'id 0' to 'id 39'. Fix"),
        (table(y=pd.Categorical(range(40))), "at most 30 distinct values, .* got 40 distinct ones, '0' to '39'"),
        (table(y=pd.date_range("2020-01-01", periods=40)), "got 40 distinct ones, '2020-01-01 .*' to '2020-02-09 "),
        (table(y=["a" * 500] * 38 + ["b"] * 2), "got 2 of 'b'"),
        (table(y=["a" * 38 * 500] * 38 + ["b" * 500] * 2), "got 2 of 'b{60}'"),
        (
            table(y=np.linspace(0, 1, 40)),
            "classes in 'y': at most 30 distinct values, and whole ones if they are num.* 40",
        ),
        (
            table(y=[0.5, 1.0] * 20),
            "whole ones .* got 2 distinct ones, 0.5 to 1. Fix: make fewer classes of them, with",
        ),
        (table(n=124, y=[*range(MAX_CLASSES + 1)] * 4), "at most 30 distinct .* got 31 distinct ones, 0 to 30. Fix"),
        (table(y=[Decimal("0.5"), Decimal(1)] * 20), "got 2 distinct ones, 0.5 to 1"),
        (table(y=[0.0, np.inf] * 20), "finite numbers in column 'y'; got"),
        (table(a=[0.0, np.inf] * 20), "finite numbers in column 'a'; got inf. Fix: replace"),
        (
            table(a=np.array([-np.inf, 1], np.float32).repeat(20)),
            "finite numbers in column 'a'; got -inf. Fix: replace",
        ),
        (table(a=pd.Series([np.float64(np.inf), 1] * 20, dtype=object)), "in column 'a'; got inf. Fix: replace"),
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
        ("", "column '' to predict; there is none"),
        (None, "name of the target as text; got None"),
        (2, "column '2' to predict; there is none"),
        (True, "name of the target as text; got True"),
        (2.0, "name of the target as text; got 2.0"),
        (["y"], r"name of the target as text; got \['y'\]"),
    ],
)
def test_no_such_target(target: Any, match: str) -> None:
    with pytest.raises(TableError, match=match):
        own_table(table(), target)


class Thing:
    """Its text is its place in memory."""


class Mute:
    """It has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Word:
    """It cannot be hashed, and has a text."""

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return "word"


def objects(values: list[Any]) -> Any:
    return pd.Series(values, dtype=object)


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (objects([Thing() for _ in range(40)]), "objects of the type Thing, whose text is a place in memory"),
        (objects([[Thing()] for _ in range(40)]), "objects of the type list, whose text is a place in memory"),
        (pd.Categorical([Thing() for _ in range(40)]), "objects of the type Thing, whose text is a place in memory"),
        (objects([lambda: 1] * 40), "objects of the type function, whose text is a place in memory"),
        (objects([Mute()] * 40), r"values that cannot be numbered \(RuntimeError: no text\)"),
        (objects([datetime(2020, 1, 1), datetime(2020, 1, 1, tzinfo=UTC)] * 20), ".*TypeError: can't"),
    ],
)
def test_columns_that_cannot_be_encoded(column: Any, why: str) -> None:
    frame = pd.DataFrame({"odd": column, "y": [0, 1] * 20})
    for target in ("odd", "y"):
        with pytest.raises(
            TableError, match=f"Expected numbers, texts, .* in column 'odd'; got {why}.* Fix: make text"
        ):
            own_table(frame, target)


@pytest.mark.parametrize("kind", ["list", "struct"])
def test_nested_columns_of_arrow(kind: str) -> None:
    arrow = pytest.importorskip("pyarrow")
    values: list[Any] = [[1], [2]] * 20 if kind == "list" else [{"k": 1}, {"k": 2}] * 20
    column = pd.Series(values, dtype=pd.ArrowDtype(arrow.array(values).type))
    with pytest.raises(
        TableError, match=r"in column 'odd'; got values that cannot be numbered \(Arrow.*\)\. Fix: make"
    ):
        own_table(pd.DataFrame({"odd": column, "y": [0, 1] * 20}), "y")


def test_objects_with_a_text_are_categories() -> None:
    for column in (objects([Word(), "a"] * 20), objects([time(9), time(10)] * 20), objects([b"b", b"a"] * 20)):
        assert set(own_table(table(a=column), "y").x[:, 0]) == {0, 1}
    assert own_table(table(a=["<x at 0x1>", "b"] * 20), "y").x.shape == (40, 2)  # any text, also one like an object's


def test_many_columns_are_not_all_listed() -> None:
    with pytest.raises(TableError, match=r"'c19', \.\.\.\.$") as caught:
        own_table({f"c{at}": [1] for at in range(500)} | {"x" * 5000: [1]}, "none")
    assert len(str(caught.value)) < 400


def test_a_table_without_columns() -> None:
    with pytest.raises(TableError, match="Expected a column 'y' to predict; there is none"):
        own_table(pd.DataFrame(), "y")
    with pytest.raises(TableError, match="Expected a column 'y' to predict; there is none"):
        own_table({}, "y")


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


def test_values_of_any_size_are_no_constant() -> None:
    x = own_table({"a": [-1.7e308, 1.7e308] * 10, "y": ["p", "q", "q", "p"] * 5}, "y").x
    assert x[:, 0].tolist() == [-1.7e308, 1.7e308] * 10


@pytest.mark.parametrize(
    "make",
    [
        lambda: None,
        lambda: 7,
        lambda: [[1, 2], [3, 4]],
        lambda: np.zeros((8, 2)),
        lambda: b"t.csv",
        lambda: pd.Series([1, 2]),
    ],
)
def test_a_table_of_the_wrong_type(make: Callable[[], Any]) -> None:
    with pytest.raises(TableError, match="Expected a path, a pandas DataFrame or a mapping of names to columns; got "):
        own_table(make(), "y")


@pytest.mark.parametrize("make", [lambda: pd.DataFrame(table()), lambda: [[1, 2]], lambda: Path("t.csv"), lambda: 3])
def test_a_table_given_as_dataset(make: Callable[[], Any]) -> None:
    for given in (None, table()):
        with pytest.raises(TableError, match=r"dataset as the name of a table, .* got \w+\. Fix: .* goes into table="):
            choose_dataset(make(), "real", "default", given, "y", "")


def test_a_column_of_numbers_named_by_a_number() -> None:
    frame = pd.DataFrame({1: range(2, 42), 2: ["u", "v"] * 20})
    assert choose_dataset(None, "real", "default", frame, 2, "").y.tolist() == [0, 1] * 20


@pytest.mark.parametrize(
    "content", [{"a": [1, 2], "y": [1]}, {"a": 1, "y": 2}, {"a": np.zeros((2, 2)), "y": [1, 2]}, {"a": ["\ud800"]}]
)
def test_columns_that_make_no_table(content: Any) -> None:
    with pytest.raises(TableError, match=r"Expected columns that pandas makes a table of; got: .+ Fix"):
        own_table(content, "y")


@pytest.mark.parametrize(
    ("description", "about"),
    [
        ("", "Every row is an example. To be predicted is its class."),
        ("   ", "Every row is an example. To be predicted is its class."),
        ("Wines", "Wines."),
        (" Wines. ", "Wines."),
        ("Which wine?", "Which wine?"),
        ("größer {as} 100% 語", "größer {as} 100% 語."),
        ("w" * MAX_DESCRIPTION, "w" * MAX_DESCRIPTION + "."),
    ],
)
def test_descriptions(description: str, about: str) -> None:
    assert own_table(table(), "y", description).about == about


@pytest.mark.parametrize(
    ("description", "match"),
    [
        ("two\nlines", r"one printable line, at most 200 characters; got 9 characters, 'two\\nlines'"),
        ("a\rb", "one printable line"),
        ("a\u2028b", "one printable line"),
        ("a\x1b[2Jb", "one printable line"),
        ("a\u202eb", "one printable line"),
        ("a\ud800b", "one printable line"),
        ("w" * (MAX_DESCRIPTION + 1), "at most 200 characters; got 201 characters"),
        (None, "a description as text; got NoneType"),
        (b"wines", "a description as text; got bytes"),
    ],
)
def test_descriptions_that_fit_no_prompt(description: Any, match: str) -> None:
    with pytest.raises(TableError, match=match):
        own_table(table(), "y", description)
