"""Made-up tables: their exact content, a reward for code on them, and the notice to the agent."""

from __future__ import annotations

import ast
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lang_envs.datasets import Dataset, load
from lang_envs.datasets.manifest import MANIFEST_NAMES, manifest
from lang_envs.datasets.synthetic import stand_in
from lang_envs.envs.datascicoding.describe import max_length, observation

DIGESTS = {
    "airlines": ((2000, 7), "140e6e67ea8243d9"),
    "breast-w": ((69, 9), "2ec8f0052951a104"),
    "health-insurance": ((2000, 12), "54ef61592be0fac9"),
    "pharyngitis": ((512, 18), "0f9b60e60479cd8e"),
    "spaceship-titanic": ((2000, 12), "2f3ea2d0bee0a3f0"),
}
MANIFESTS = {name: manifest(name) for name in MANIFEST_NAMES}


def header(text: str) -> str:
    """The comment that an observation starts with, as one line."""
    told = text.partition("\n\nimport numpy as np\n")[0]
    assert all(line.startswith("#") for line in told.split("\n"))
    return told[2:].replace("\n# ", " ")


# ---------------------------------------------------------------------- content


@pytest.mark.parametrize("name", MANIFEST_NAMES)
def test_content(name: str) -> None:
    dataset = stand_in(MANIFESTS[name])
    assert (dataset.x.shape, dataset.digest) == DIGESTS[name]
    assert dataset.x.shape == MANIFESTS[name].arrays
    assert dataset.classes == len(MANIFESTS[name].classes)
    assert np.ptp(np.bincount(dataset.y)) <= 1


# ---------------------------------------------------------------------- tables with any name

ANYTHING = st.text(st.characters(), max_size=300) | st.text("ab \n\r\t'\"#\\{}\0\u202e\ud800漢\u2028\f", max_size=300)


def named(title: str, about: str, *, synthetic: bool) -> Dataset:
    return replace(load("balance-scale"), title=title, about=about, synthetic=synthetic)


@settings(deadline=None, max_examples=100)
@given(title=ANYTHING, about=ANYTHING, synthetic=st.booleans())
@example("", "", True)
@example("{n} %s\\", "'''\n\"\"\"\nimport os", False)
@example("x" * 10**5, "y z " * 10**5, True)
@example("\U000e0001" * 10**4, "\0" * 10**5, True)
@example("漢" * 10**4, "a " + "b" * 94 + " c" * 10**4, True)
@example("-*- coding: utf-7 -*-", "\n\n# coding: rot13", False)
def test_no_name_of_a_table_breaks_the_prompt(title: str, about: str, synthetic: bool) -> None:
    text = observation(named(title, about, synthetic=synthetic), "roc_auc", 5, [])
    assert header(text).startswith("SYNTHETIC DATA: ") == synthetic
    assert len(text) <= max_length(0)
    assert max(map(len, text.split("\n"))) <= 120
    text.encode()  # no lone surrogate
    with warnings.catch_warnings(action="error"):
        assert ast.parse(f"{text}pass").body[-1].name == "build_model"  # type: ignore[attr-defined]
