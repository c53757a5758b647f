"""The datasci study: its jobs, the report of made-up runs, and one run of each kind from end to end."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from studies_users import fill_study

from benchmarks.studies.app import write_report
from benchmarks.studies.datasci import DATASCI, LEARNERS, RATES, coding_job
from benchmarks.studies.engine.coding import _seed_envs, fresh_scores
from benchmarks.studies.engine.coding_findings import (
    MEASURES,
    areas_of,
    ending,
    interval_of,
    measured,
    rewards_of,
)
from benchmarks.studies.engine.jobs import CONTROLS, N_ENVS, CodingJob
from benchmarks.studies.engine.pieces import Pieces
from benchmarks.studies.engine.study import TUNING_SEEDS, Options
from poad_sb3.vec_env.make_envs import make_envs

ONE = Options(seeds=(300,), tasks=("wine",))


def _result(share: float, area: float, best: float) -> dict[str, Any]:
    """Attempts with a share that runs, around an AUC: short, as intervals are drawn from every attempt."""
    rng, n = np.random.default_rng(int(1000 * best)), 320
    drawn = (area + 0.02 * rng.standard_normal(n)).tolist()
    return {
        "areas": [value if number % 20 < 20 * share else None for number, value in enumerate(drawn)],
        "lengths": [100] * n,
        "best": {"code": "model = 1", "area": best + 0.01, "fresh": {"mean": best, "std": 0.0, "splits": [best]}},
    }


RUNS = {"POAD": _result(0.95, 0.9, 0.99), "NTPO": _result(0.6, 0.77, 0.95), "untrained": _result(0.4, 0.8, 0.97)}
BETTER, WORSE = (_result(share, 0.8, 0.9) for share in (0.9, 0.3))
WORSE["areas"][0] = 1.0  # one good attempt is no good rate


def _make(job: CodingJob) -> dict[str, Any]:
    if job.seed in TUNING_SEEDS:
        return BETTER if job.arguments["learning_rate"] == RATES[1] else WORSE
    return RUNS[job.method]


# ---------------------------------------------------------------------- report


def test_measures_take_share_and_quality_apart() -> None:
    found = {name: measured(one, [areas_of([0.5, None]), areas_of([1.0, None])]) for name, one in MEASURES.items()}
    assert found == pytest.approx({"share": 0.5, "area": 0.75, "reward": (0.5 - 1 + 1.0 - 1) / 4})
    assert rewards_of([0.5, None]).tolist() == [0.5, -1.0]
    assert np.isnan(measured(MEASURES["area"], [areas_of([None])]))
    assert interval_of(MEASURES["area"], [areas_of([None] * 8)])[1:] == (None, None)
    assert list(ending([float(one) for one in range(16)])) == [14.0, 15.0]


def test_an_interval_over_seeds_knows_that_seeds_differ() -> None:
    same, apart = ([np.full(100, value) for value in pair] for pair in ((0.8, 0.8), (0.7, 0.9)))
    assert interval_of(MEASURES["area"], same)[1:] == pytest.approx((0.8, 0.8))
    assert interval_of(MEASURES["area"], apart)[1:] == pytest.approx((0.7, 0.9))


# ---------------------------------------------------------------------- the report


def test_the_report_has_numbers_pictures_and_missing_runs(tmp_path: Path) -> None:
    pieces = Pieces(tmp_path / "pieces")
    fill_study(DATASCI, ONE, pieces, _make)
    write_report(DATASCI, ONE.seeds, pieces, tmp_path)
    content = json.loads((tmp_path / "datasci.json").read_text(encoding="utf-8"))
    table = content["tables"]["wine"]
    assert table["methods"]["untrained"]["end"]["share"]["value"] == pytest.approx(0.4)
    assert table["methods"]["POAD"]["length"] == 100.0
    assert list(table["methods"]["POAD"]["runs"]) == ["300"]
    assert "generated" not in content["tables"]
    assert "wine, POAD: 7 of 8 seeds" in content["missing"]
    assert "generated, untrained: 3 of 3 seeds" in content["missing"]
    assert [row["verdict"] for row in content["primary"]] == ["too few seeds"] * 2 + ["not run yet"] * 2
    with Image.open(tmp_path / "datasci.png") as picture:
        assert picture.width > 200


# ---------------------------------------------------------------------- real runs


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LANG_ENVS_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("method", ["POAD", *CONTROLS])
def test_a_run_of_each_kind(method: str) -> None:
    pytest.importorskip("sklearn", reason="the extra datasci is not installed")
    job = replace(coding_job(method, "iris", 16, 0, rate=1e-3), fresh_splits=(5, 6))
    if method in LEARNERS:
        small = {"n_steps": 1, "batch_size": 16, "n_epochs": 1, "n_critic_epochs": 1, "max_new_tokens": 24}
        job = replace(job, arguments={**job.arguments, **small})
    found = job.run()
    assert len(found["areas"]) == 16
    assert sum(found["outcomes"].values()) == 16
    assert found["outcomes"].get("ok", 0) == sum(area is not None for area in found["areas"])
    if found["best"] is not None:
        assert found["best"]["area"] == pytest.approx(
            max(area for area in found["areas"] if area is not None), abs=1e-4
        )


def test_seeds_of_a_study_share_no_generated_table() -> None:
    tables = []
    for seed in (300, 301):
        envs = make_envs("DataSciCoding-generated-v0", {}, N_ENVS)
        model = SimpleNamespace(get_env=lambda envs=envs: envs)
        _seed_envs(model, coding_job("untrained", "generated", 1, seed)).reset()
        tables.append({state["world"].key for state in envs.env_method("get_state")})
        envs.close()
    assert not set.intersection(*tables)


def test_fresh_halves_are_others_and_failing_code_is_said_to_fail() -> None:
    pytest.importorskip("sklearn", reason="the extra datasci is not installed")
    job = replace(coding_job("RandomCoder", "wine", 1, 0), fresh_splits=(5, 6, 7))
    code = "from sklearn.naive_bayes import GaussianNB\nmodel = GaussianNB().fit(x_train, y_train)"
    found = fresh_scores(job, code)
    assert len(found["splits"]) == 3
    assert found["mean"] == pytest.approx(np.mean(found["splits"]), abs=1e-4)
    assert fresh_scores(job, "model = no_such_name") == {"status": "runtime_error"}
