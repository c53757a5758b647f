"""The real tables, where somebody has them: `LANG_ENVS_TEST_DATA=folder pytest FILE`.

The folder is one that `lang-envs data fetch` filled (its `LANG_ENVS_DATA`). This repository has no copy of them, so
everywhere else these tests are skipped.
"""

from __future__ import annotations

import os
import warnings

import numpy as np
import pytest

from lang_envs.datasets import load, store
from lang_envs.datasets.manifest import MANIFEST_NAMES, manifest
from lang_envs.envs.datascicoding.scoring import auc, splits

# Mean ROC AUC on halves 0 .. 4 of the published arrays, measured before this package existed.
BASELINES = {
    "pharyngitis": {"GaussianNB": 0.6943, "LogisticRegression": 0.7012, "LinearDiscriminantAnalysis": 0.6995},
    "health-insurance": {"GaussianNB": 0.5523, "LogisticRegression": 0.5594, "LinearDiscriminantAnalysis": 0.5579},
    "spaceship-titanic": {"GaussianNB": 0.8269, "LogisticRegression": 0.8560, "LinearDiscriminantAnalysis": 0.8538},
}


@pytest.fixture(autouse=True)
def _data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANG_ENVS_DATA", os.environ.get("LANG_ENVS_TEST_DATA", "nowhere"))


def here(name: str) -> None:
    if store.read_receipt(name) is None:
        pytest.skip(f"{name} is not in LANG_ENVS_TEST_DATA")


@pytest.mark.parametrize("name", MANIFEST_NAMES)
def test_a_table_is_what_its_manifest_says(name: str) -> None:
    here(name)
    receipt = store.verify(manifest(name))
    assert receipt.sha256.startswith(manifest(name).sha256)
    for recipe in manifest(name).recipes:
        dataset = load(name, preprocessing=recipe)
        assert dataset.digest.startswith(manifest(name).recipes[recipe].digest)
        assert dataset.x.shape == manifest(name).arrays


@pytest.mark.parametrize(("name", "model"), [(name, model) for name in BASELINES for model in BASELINES[name]])
def test_published_arrays_score_as_before(name: str, model: str) -> None:
    here(name)
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB

    made = {
        "GaussianNB": GaussianNB,
        "LogisticRegression": lambda: LogisticRegression(max_iter=1000),
        "LinearDiscriminantAnalysis": LinearDiscriminantAnalysis,
    }[model]
    dataset = load(name, preprocessing="published")
    areas = []
    for split in splits(dataset, range(5)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of convergence
            fitted = made().fit(dataset.x[split.train], dataset.y[split.train])
        areas.append(auc(dataset.y[split.test], fitted.predict_proba(dataset.x[split.test])))
    assert np.mean(areas) == pytest.approx(BASELINES[name][model], abs=1e-3)
