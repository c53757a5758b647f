"""The tables: their exact content, and the conditions on a table."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import FrozenInstanceError
from hashlib import sha256
from typing import Any

import numpy as np
import pytest

from lang_envs.datasets import Dataset, load


def make(x: Any = ((0.0,), (1.0,)), y: Any = (0, 1), name: str = "mine") -> Dataset:
    return Dataset(name, "my table", "Rows.", np.array(x), np.array(y), published=False, source="here")


@pytest.mark.parametrize(
    ("name", "digest", "shape", "counts"),
    [
        ("balance-scale", "0e42365e6fa658cb", (125, 4), [56, 10, 59]),
        ("balance-scale-full", "e943506b035a29ed", (625, 4), [288, 49, 288]),
        ("wine", "3a28849ef2366c4b", (178, 13), [59, 71, 48]),
        ("iris", "aa06b8008ceba42e", (150, 4), [50, 50, 50]),
        ("breast-cancer", "25e2eb7b7a8745b1", (569, 30), [212, 357]),
        ("digits", "f6d9e39f37dc45d3", (1797, 64), [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]),
    ],
)
def test_content(name: str, digest: str, shape: tuple[int, int], counts: list[int]) -> None:
    dataset = load(name)
    assert dataset.digest == digest == sha256(dataset.x.tobytes() + dataset.y.tobytes()).hexdigest()[:16]
    assert (dataset.x.shape, dataset.x.dtype, dataset.y.dtype) == (shape, np.float64, np.int64)
    assert np.bincount(dataset.y).tolist() == counts
    assert dataset.classes == len(counts)
    assert dataset.name == name
    assert dataset.published == (name == "balance-scale")


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("iris", {"data": "synthetic"}, "Expected data='real' for 'iris', which is always here; got 'synthetic'"),
        ("iris", {"preprocessing": "published"}, "Expected preprocessing='default' for 'iris': the paper has no such"),
        ("airlines", {"preprocessing": "published"}, "cannot be reproduced .* compare with no published score"),
        ("airlines", {"data": "made up"}, r"Expected data to be one of \('real', 'synthetic'\); got 'made up'"),
    ],
)
def test_what_cannot_be_loaded(name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(name, **arguments)


def test_load_is_cached_and_knows_its_names() -> None:
    assert load("iris") is load("iris")
    with pytest.raises(ValueError, match=r"Expected one of balance-scale, .*spaceship-titanic; got 'irises'\. Fix"):
        load("irises")


def test_nobody_can_write_to_a_table() -> None:
    x = np.array([[0.0], [1.0]])
    dataset = make(x)
    x[0] = 5.0
    assert dataset.x[0] == 0.0
    for array in (dataset.x, dataset.y, load("wine").x, load("wine").y):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(FrozenInstanceError):
        dataset.name = "other"  # type: ignore[misc]


def test_equal_by_content() -> None:
    assert make(name="a") == make(name="b")
    assert len({make(name="a"), make(name="b")}) == 1
    assert make() != make(y=(1, 0))
    assert make() != make(x=((0.0,), (2.0,)))
    assert make() != "mine"
    assert make(np.asfortranarray([[1.0, 2.0], [3.0, 4.0]])) == make([[1.0, 2.0], [3.0, 4.0]])
    assert make([[1.0, 2.0], [3.0, 4.0]]) != make([[1.0, 3.0], [2.0, 4.0]])
    assert "array" not in repr(make())


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([1.0, 2.0], [0, 1], r"features \(n, d\) and classes \(n,\), not empty; got \(2,\) and \(2,\) for 'mine'"),
        ([[1.0], [np.nan]], [0, 1], "finite features; got NaN or infinity in 'mine'"),
        ([[1.0], [2.0]], [0, 2], r"all present; got \[0, 2\]"),
    ],
)
def test_what_is_no_table(x: Any, y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(x, y)


WITHOUT_SKLEARN = """
import sys
sys.modules["sklearn"] = None
from lang_envs.datasets import load
from lang_envs.errors import MissingExtraError
print(load("balance-scale").digest)
try:
    load("iris")
except MissingExtraError as error:
    print(error)
"""


def test_without_scikit_learn() -> None:
    """Importing is free of it; code that needs it names the extra; the balance table does not need it."""
    done = subprocess.run([sys.executable, "-c", WITHOUT_SKLEARN], capture_output=True, text=True, check=True)
    digest, message = done.stdout.splitlines()
    assert digest == "0e42365e6fa658cb"
    assert message.endswith('Fix: pip install -c constraints.txt -e ".[datasci]".')
