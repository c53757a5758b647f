"""The real tables, where somebody has them: `LANG_ENVS_TEST_DATA=folder pytest FILE`.

The folder is one that `lang-envs data fetch` filled (its `LANG_ENVS_DATA`). This repository has no copy of them, so
everywhere else these tests are skipped.
"""

from __future__ import annotations

import os

import pytest

from lang_envs.datasets import load, store
from lang_envs.datasets.manifest import MANIFEST_NAMES, manifest


@pytest.fixture(autouse=True)
def _data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANG_ENVS_DATA", os.environ.get("LANG_ENVS_TEST_DATA", "nowhere"))


@pytest.mark.parametrize("name", MANIFEST_NAMES)
def test_a_table_is_what_its_manifest_says(name: str) -> None:
    if store.read_receipt(name) is None:
        pytest.skip(f"{name} is not in LANG_ENVS_TEST_DATA")
    receipt = store.verify(manifest(name))
    assert receipt.sha256.startswith(manifest(name).sha256)
    for recipe in manifest(name).recipes:
        dataset = load(name, preprocessing=recipe)
        assert dataset.digest.startswith(manifest(name).recipes[recipe].digest)
        assert dataset.x.shape == manifest(name).arrays
