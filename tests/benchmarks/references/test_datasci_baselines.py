"""The table of baselines: agreement with earlier measurements, the published figures, and the file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.references.datasci_baselines import (
    MODELS,
    OUTPUT,
    Evaluate,
    Evaluation,
    evaluate_in_process,
    measure,
    preprocessing_of,
    run,
    tables_here,
)
from lang_envs.datasets import BUNDLED, DATASETS, Dataset, load, store
from lang_envs.datasets.manifest import manifest
from lang_envs.envs.datascicoding.oracle import oracle_code

BY_NAME = {model.name: model for model in MODELS}
FETCHED = ("health-insurance", "pharyngitis")
"""Tables that had to be fetched and were measured; their rows are not in this repository."""


# Measured with two versions of scikit-learn, before any of this was written.
@pytest.mark.parametrize(
    ("name", "per_split"),
    [
        ("GaussianNB", (0.790562, 0.925984, 0.694912, 0.755664, 0.762026)),
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


def committed() -> dict[str, Any]:
    return json.loads(OUTPUT.read_text(encoding="utf-8"))["datasets"]


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

    measured = measure(load("iris"), MODELS[:3], evaluate)
    reported, fresh = tuple(range(5)), tuple(range(5, 25))
    assert asked[:3] == [(model.code, reported) for model in MODELS[:3]]
    assert sorted(asked[3:]) == sorted(
        [(MODELS[1].code, fresh), (oracle_code("iris"), reported), (oracle_code("iris"), fresh)]
    )
    assert measured["winner"]["name"] == MODELS[1].name
    assert measured["models"][MODELS[2].name] == {"error": "ValueError: no", "seconds": 1.0, "cpu_seconds": 0.5}


@pytest.mark.parametrize(
    ("code", "error"),
    [
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
