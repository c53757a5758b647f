"""The table of baselines: agreement with earlier measurements, the published figures, and the file."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.references.datasci_baselines import (
    BANNED_MODELS,
    MODELS,
    OUTPUT,
    Evaluate,
    Evaluation,
    Model,
    evaluate_in_process,
    measure,
    preprocessing_of,
    run,
    tables_here,
)
from benchmarks.references.published import published, read
from lang_envs.datasets import BUNDLED, DATASETS, Dataset, load, store
from lang_envs.datasets.manifest import manifest
from lang_envs.envs.datascicoding.oracle import oracle_code

BY_NAME = {model.name: model for model in MODELS}
FETCHED = ("health-insurance", "pharyngitis")
"""Tables that had to be fetched and were measured; their rows are not in this repository."""


@pytest.fixture
def real_tables(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of the tables that can be measured again, with those that somebody has in `LANG_ENVS_TEST_DATA`."""
    monkeypatch.setenv("LANG_ENVS_DATA", os.environ.get("LANG_ENVS_TEST_DATA", "nowhere"))
    return set(tables_here())


# Measured with two versions of scikit-learn, before any of this was written.
@pytest.mark.parametrize(
    ("name", "per_split"),
    [
        ("GaussianNB", (0.790562, 0.925984, 0.694912, 0.755664, 0.762026)),
        ("LogisticRegression(max_iter=1000)", (0.934608, 0.925984, 0.876723, 0.815764, 0.863741)),
        ("LDA", (0.881521, 0.912574, 0.851603, 0.816484, 0.880922)),
        ("KNeighborsClassifier", (0.757089, 0.816005, 0.72474, 0.831269, 0.833957)),
        ("Poly2+Scaler+LogisticRegression", (0.826125, 0.759491, 0.80633, 0.87404, 0.866721)),
    ],
)
def test_balance_scale_agrees_with_the_facts(name: str, per_split: tuple[float, ...]) -> None:
    evaluation = evaluate_in_process(BY_NAME[name].code, load("balance-scale"), range(5))
    assert evaluation.error is None
    assert evaluation.scores == pytest.approx(per_split, abs=1e-3)
    summary = evaluation.summary()
    assert summary["mean"] == pytest.approx(np.mean(per_split), abs=1e-3)
    assert summary["std"] == pytest.approx(np.std(per_split), abs=1e-3)


# Measured with two versions of scikit-learn, too, on the arrays that the paper's code builds.
@pytest.mark.parametrize(
    ("table", "model", "mean", "deviation"),
    [
        ("pharyngitis", "GaussianNB", 0.6943, 0.0107),
        ("pharyngitis", "LogisticRegression(max_iter=1000)", 0.7012, 0.0114),
        ("pharyngitis", "LDA", 0.6995, 0.0153),
        ("health-insurance", "GaussianNB", 0.5523, 0.0216),
        ("health-insurance", "LogisticRegression(max_iter=1000)", 0.5594, 0.0110),
        ("health-insurance", "LDA", 0.5579, 0.0123),
    ],
)
def test_fetched_tables_agree_with_the_facts(
    table: str, model: str, mean: float, deviation: float, real_tables: set[str]
) -> None:
    entry = committed()[table]
    assert entry["preprocessing"] == "published"
    found = entry["models"][model]
    assert (found["mean"], found["std"]) == pytest.approx((mean, deviation), abs=1e-3)
    if table in real_tables:
        evaluation = evaluate_in_process(BY_NAME[model].code, load(table, preprocessing="published"), range(5))
        assert np.mean(evaluation.scores) == pytest.approx(mean, abs=1e-3)


def committed() -> dict[str, Any]:
    return json.loads(OUTPUT.read_text(encoding="utf-8"))["datasets"]


def test_the_published_figures_are_complete() -> None:
    tables, methods = read("datasci")["tables"], read("datasci")["methods"]
    assert len(tables) == 6
    assert set(tables) <= set(DATASETS)
    for row in methods:
        assert len(row["scores"]) == len(tables)
        assert all(0.5 < score < 1 for score in row["scores"])
        assert "random halves" in row["protocol"] or "random_state" in row["protocol"]
    best = methods[0]
    assert best["method"].startswith("POAD-Best")
    assert "maximum" in best["protocol"]
    assert best["scores"] == [0.5939, 0.7282, 0.8628, 0.664, 0.9651, 0.9981]
    assert all("75 %" in row["protocol"] for row in methods[1:])
    assert published("balance-scale") == dict(
        zip([row["method"] for row in methods], (0.9651, 0.844, 0.882, 0.8444, 0.882), strict=True)
    )
    assert {name: published(name).get("POAD-Best (CodeLLaMA-7B)") for name in DATASETS} == {
        "balance-scale": 0.9651,
        "balance-scale-full": None,
        "wine": None,
        "iris": None,
        "breast-cancer": None,
        "digits": None,
        "airlines": 0.664,
        "breast-w": 0.9981,
        "health-insurance": 0.5939,
        "pharyngitis": 0.7282,
        "spaceship-titanic": 0.8628,
    }


def test_the_models() -> None:
    assert len(MODELS) == len(BY_NAME) == 22
    assert set(BANNED_MODELS) == {"SVC(probability=True)", "Scaler+SVC(probability=True)"}
    assert BY_NAME["GaussianNB"].code == (
        "from sklearn.naive_bayes import GaussianNB\nmodel = GaussianNB()\nmodel.fit(x_train, y_train)\n"
    )


def test_a_run_writes_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "new" / "found.json"
    models = [BY_NAME["GaussianNB"], BY_NAME["LDA"], BY_NAME["SVC(probability=True)"]]
    returned = run(["iris"], models, output=output)
    found = json.loads(output.read_text(encoding="utf-8"))
    assert found == json.loads(json.dumps(returned))
    of_torch = {"threads", "cpu_capability"}  # where an earlier test has loaded it
    always = {"command", "commit", "cpu", "cores", "python", "versions", "protocol", "published", "datasets"}
    assert set(found) - of_torch == always
    assert {"numpy", "scikit-learn"} <= set(found["versions"])
    iris = found["datasets"]["iris"]
    assert (iris["preprocessing"], iris["versions"], iris["published"]) == ("default", found["versions"], {})
    assert (iris["digest"], iris["rows"], iris["features"], iris["classes"]) == ("aa06b8008ceba42e", 150, 4, 3)
    assert list(iris["models"]) == ["GaussianNB", "LDA", "SVC(probability=True)"]
    for one in iris["models"].values():
        assert one["mean"] == pytest.approx(np.mean(one["splits"]))
        assert one["std"] == pytest.approx(np.std(one["splits"]))
        assert len(one["splits"]) == 5
        assert one["seconds"] > 0
        assert one["cpu_seconds"] > 0
    assert iris["winner"]["name"] == "LDA"
    assert len(iris["winner"]["fresh"]["splits"]) == len(iris["oracle"]["fresh"]["splits"]) == 20
    assert iris["winner"]["fresh"]["splits"] == iris["oracle"]["fresh"]["splits"]  # the same model
    text = capsys.readouterr().out
    assert "iris: GaussianNB: 0.99" in text
    assert "SVC(probability=True) (banned)" in text
    assert "LDA (banned)" not in text
    assert "POAD-Best (CodeLLaMA-7B), POAD paper, table 4" in text
    assert 'published, for preprocessing="published"' in text


def test_the_published_figures_stand_beside_published_arrays_only() -> None:
    assert {name: preprocessing_of(name) for name in DATASETS} == {
        "balance-scale": "published",
        "balance-scale-full": "default",
        "wine": "default",
        "iris": "default",
        "breast-cancer": "default",
        "digits": "default",
        "airlines": "default",  # published on, but on rows that cannot be drawn again
        "breast-w": "published",
        "health-insurance": "published",
        "pharyngitis": "published",
        "spaceship-titanic": "published",
    }
    stand_in = load("airlines", data="synthetic")
    assert measure(stand_in, MODELS[:1], always(0.6), [].append)["published"] == {}
    found = measure(load("balance-scale"), MODELS[:1], always(0.6), [].append)
    assert (found["preprocessing"], found["published"]) == ("published", published("balance-scale"))


def always(score: float) -> Evaluate:
    return lambda _, __, random_states: Evaluation((score,) * len(random_states), 1.0, 1.0)


def test_what_was_measured_on_tables_that_are_not_here_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANG_ENVS_DATA", str(tmp_path / "nothing"))
    assert tables_here() == list(BUNDLED)
    monkeypatch.setattr(store, "read_receipt", lambda name: object() if name == "pharyngitis" else None)
    assert tables_here() == [*BUNDLED, "pharyngitis"]
    output = tmp_path / "found.json"
    earlier = {"iris": {"old": 1}, "pharyngitis": {"old": 2}, "no table by now": {"old": 3}}
    output.write_text(json.dumps({"datasets": earlier}), encoding="utf-8")
    run(["wine", "iris"], MODELS[:1], output=output, evaluate=always(0.6))
    found = json.loads(output.read_text(encoding="utf-8"))["datasets"]
    assert list(found) == ["wine", "iris", "pharyngitis"]
    assert found["pharyngitis"] == {"old": 2}
    assert "old" not in found["iris"]


def test_the_winner_is_scored_where_it_was_not_chosen() -> None:
    """With a counting evaluation: the halves on which each code is run."""
    asked: list[tuple[str, tuple[int, ...]]] = []
    worth = {MODELS[0].code: 0.6, MODELS[1].code: 0.8, oracle_code("iris"): 1.0}

    def evaluate(code: str, dataset: Dataset, random_states: Sequence[int]) -> Evaluation:
        asked.append((code, tuple(random_states)))
        if code == MODELS[2].code:
            return Evaluation((), 1.0, 0.5, "ValueError: no")
        return Evaluation((worth[code],) * len(random_states), 2.0, 1.0)

    said: list[str] = []
    found = measure(load("iris"), MODELS[:3], evaluate, said.append)
    reported, fresh = tuple(range(5)), tuple(range(5, 25))
    assert asked[:3] == [(model.code, reported) for model in MODELS[:3]]
    assert sorted(asked[3:]) == sorted(
        [(MODELS[1].code, fresh), (oracle_code("iris"), reported), (oracle_code("iris"), fresh)]
    )
    assert found["winner"]["name"] == MODELS[1].name
    assert found["models"][MODELS[2].name] == {"error": "ValueError: no", "seconds": 1.0, "cpu_seconds": 0.5}
    assert "fails" in said[2]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("model = None", "AttributeError: 'NoneType' object has no attribute 'predict_proba'"),
        ("raise KeyError('k')", "KeyError: 'k'"),
        ("model = (", "SyntaxError"),
        (BY_NAME["QDA(reg=.1)"].code, "LinAlgError: The covariance matrix of class 1 is not full rank"),
        (
            "from sklearn.dummy import DummyClassifier\n"
            "model = DummyClassifier(strategy='constant', constant=0).fit(x_train, np.zeros_like(y_train))",
            r"ValueError: Expected probabilities of shape (63, 3); got (63, 1).",
        ),
    ],
)
def test_what_fails_is_a_row(code: str, error: str) -> None:
    evaluation = evaluate_in_process(code, load("balance-scale"), range(5))
    assert evaluation.scores == ()
    assert evaluation.error is not None
    assert evaluation.error.startswith(error)
    assert set(evaluation.summary()) == {"error", "seconds", "cpu_seconds"}


def test_the_committed_file() -> None:
    found = json.loads(OUTPUT.read_text(encoding="utf-8"))
    assert list(found["datasets"]) == [name for name in DATASETS if name in {*BUNDLED, *FETCHED}]
    for name, one in found["datasets"].items():
        arrays = manifest(name).recipes["published"] if name in FETCHED else load(name)
        assert one["digest"] == arrays.digest
        assert (one["preprocessing"], one["versions"]) == (preprocessing_of(name), found["versions"])
        assert list(one["models"]) == [model.name for model in MODELS]
        assert one["published"] == published(name)


@pytest.mark.parametrize("name", [*BUNDLED, *FETCHED])
def test_the_committed_scores_can_be_measured_again(name: str, real_tables: set[str]) -> None:
    if name not in real_tables:
        pytest.skip(f"{name} is not in LANG_ENVS_TEST_DATA")
    quick: Model = BY_NAME["GaussianNB"]
    scores = evaluate_in_process(quick.code, load(name, preprocessing=preprocessing_of(name)), range(5)).scores
    assert scores == pytest.approx(committed()[name]["models"][quick.name]["splits"], abs=1e-3)
