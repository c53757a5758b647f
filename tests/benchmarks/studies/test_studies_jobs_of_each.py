"""Jobs of each study: tuning with equal budgets, baselines that do not learn, planned comparisons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from studies_users import fill, fill_study, result

from benchmarks.errors import NotTunedError, StudyError
from benchmarks.studies.curves import CURVES
from benchmarks.studies.engine.comparing import Comparing
from benchmarks.studies.engine.findings import (
    Planned,
    Prediction,
    Row,
    Verdict,
    find,
    judged,
)
from benchmarks.studies.engine.jobs import TrainingJob
from benchmarks.studies.engine.pieces import Pieces
from benchmarks.studies.engine.study import FINAL_SEEDS, SEEDS_FOR_A_VERDICT, TUNING_SEEDS, Options
from benchmarks.studies.engine.tuning import BEYOND, FURTHER, RATES, Arm, Comparison, area
from benchmarks.studies.key_credit import KeyCreditJob
from benchmarks.studies.lambda_token import LAMBDA_TOKEN
from benchmarks.studies.registry import ALL
from benchmarks.studies.tasks import FOOD as FOOD_TASK
from benchmarks.studies.tasks import MULTIKEY, NTPO, POAD, TWOSOME
from lang_envs import UNSEEN_IDS

FOOD = Comparison("test", FOOD_TASK, (POAD, NTPO, TWOSOME))
OPTIONS = Options(tasks=("food-preparation",))


def _trainings(jobs: Sequence[Any]) -> list[TrainingJob]:
    """The runs of learning curves."""
    return [job for job in jobs if isinstance(job, TrainingJob) and not isinstance(job, KeyCreditJob) and job.steps]


# ---------------------------------------------------------------------- tuning


def test_without_equal_budgets_there_are_no_final_runs(tmp_path: Path) -> None:
    pieces, jobs = Pieces(tmp_path), FOOD.tuning.jobs()
    fill(pieces, jobs[:-1], lambda _: result())
    with pytest.raises(NotTunedError, match="got 17 of 18 runs"):
        FOOD.tuning.chosen(pieces)
    assert {job.seed for job in _trainings(list(FOOD.jobs(OPTIONS, pieces)))} == set(TUNING_SEEDS)
    fill(pieces, jobs[-1:], lambda _: result())
    assert {job.seed for job in _trainings(list(FOOD.jobs(OPTIONS, pieces)))} == {*TUNING_SEEDS, *FINAL_SEEDS}


def test_of_equal_rates_the_smaller_is_taken(tmp_path: Path) -> None:
    fill(Pieces(tmp_path), FOOD.tuning.jobs(), lambda _: result())
    assert set(FOOD.tuning.chosen(Pieces(tmp_path)).values()) == {RATES[0]}


def test_a_task_with_a_rate_of_its_own_has_no_tuning(tmp_path: Path) -> None:
    comparison = Comparison("test", FOOD_TASK._replace(rate=3e-4), (POAD, NTPO._replace(rate_of=POAD.name)))
    pieces = Pieces(tmp_path)
    jobs = _trainings(list({job.name: job for job in comparison.jobs(OPTIONS, pieces)}.values()))
    assert Counter(job.seed for job in jobs) == dict.fromkeys(FINAL_SEEDS, 2)
    assert {job.arguments["learning_rate"] for job in jobs} == {3e-4}
    fill(pieces, jobs, lambda _: result())
    content = find(comparison, pieces, FINAL_SEEDS).to_json()
    assert (content["rates"], content["missing"], content["methods"].keys()) == ([], [], {"POAD", "NTPO"})
    assert not any(method["at_edge_of_rates"] for method in content["methods"].values())


@pytest.mark.parametrize("seeds", [(0, 101), (), (0, 0), (-1,)], ids=str)
def test_seeds_that_were_tuned_on_are_no_final_seeds(seeds: Sequence[int], tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="Expected distinct seeds, 0 or more"):
        list(CURVES.jobs(Options(seeds=seeds), Pieces(tmp_path)))


def test_the_area_is_the_mean_height() -> None:
    assert area(result(0.5, 0.5)) == pytest.approx(0.375)
    assert area({"steps": [0, 1, 4], "returns": [1.0, 1.0, 1.0]}) == 1.0


# ---------------------------------------------------------------------- every study


COMPARING = [study for study in ALL if isinstance(study, Comparing)]


@pytest.mark.parametrize(
    "study",
    [COMPARING[0], *(pytest.param(study, marks=pytest.mark.matrix) for study in COMPARING[1:])],
    ids=lambda study: study.name,
)
def test_every_method_is_tuned_alike_and_never_on_final_seeds(study: Comparing, tmp_path: Path) -> None:
    jobs = _trainings(fill_study(study, Options(seeds=study.seeds), Pieces(tmp_path), lambda _: result(0.9)))
    tuned = [job for job in jobs if job.seed in TUNING_SEEDS]
    budgets = Counter(
        (type(job), job.env_id, job.algorithm, str({**job.arguments, "learning_rate": 0})) for job in tuned
    )
    n_rates = {len(RATES), len(RATES) + len(BEYOND[0])}  # the fake results are best at the edge
    assert set(budgets.values()) <= {n * len(TUNING_SEEDS) for n in n_rates}
    assert not any(job.evaluation.tests for job in tuned)
    assert {job.seed for job in jobs} <= {*TUNING_SEEDS, *study.seeds}
    assert not {job.env_id for job in jobs} & set(UNSEEN_IDS)
    assert len(study.seeds) >= SEEDS_FOR_A_VERDICT
    assert study is LAMBDA_TOKEN or not set(study.seeds) & set(LAMBDA_TOKEN.seeds)  # it sets a default of the others
    names = [job.name for job in study.jobs(Options(seeds=study.seeds), Pieces(tmp_path))]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("study", COMPARING, ids=lambda study: study.name)
def test_planned_comparisons_are_of_methods_that_are_run_with_one_trace(study: Comparing) -> None:
    methods = {task.name: {arm.name for arm in arms} for task, arms in study.arms}
    for plan in study.planned:
        names = {plan.first, plan.second} if isinstance(plan, Planned) else plan.levels.keys()
        assert set(plan.tasks) <= methods.keys()
        for task in plan.tasks or methods:
            assert names <= methods[task]

    for _, arms in study.arms:
        traces = {arm.name: arm.arguments.get("gae_lambda_token") for arm in arms}
        if {"POAD", "NTPO"} <= traces.keys():
            assert traces["POAD"] == traces["NTPO"]


# ---------------------------------------------------------------------- baselines that do not learn


HIGHER = Planned("POAD", "NTPO", Prediction.HIGHER)


def test_a_further_setting_does_not_change_the_setting_that_a_method_is_about(tmp_path: Path) -> None:
    undiscounted = Arm("POAD, gamma 1", "POAD", {"action_sampling": "trie", "gamma": 1.0})
    plan = Planned("NTPO", undiscounted.name, Prediction.HIGHER)
    study = Comparing("gamma", "a test", "A test", ((MULTIKEY, (NTPO, undiscounted)),), (plan,))
    jobs = _trainings(fill_study(study, Options(), Pieces(tmp_path), lambda _: result(0.1)))
    tried = {str(sorted(job.arguments.items(), key=str)) for job in jobs if job.algorithm == "POAD"}
    assert {job.arguments["gamma"] for job in jobs if job.algorithm == "POAD"} == {1.0}
    assert len(tried) == len(RATES) + len(BEYOND[0]) + len(FURTHER) - 1


def test_further_settings_are_tried_on_the_task_itself_and_a_verdict_waits_for_them(tmp_path: Path) -> None:
    task = MULTIKEY._replace(name="other", env_kwargs={"k": 1, "d": 0}, tuned_on=MULTIKEY)
    study = Comparing("other", "a test", "A test", ((task, (POAD, NTPO)),), (HIGHER,))
    pieces = Pieces(tmp_path)

    def make(job: TrainingJob) -> dict[str, Any]:
        return result(0.9 if job.algorithm == "POAD" else 0.2)

    fill_study(study, Options(), pieces, make, keep=lambda job: not _is_further(job))
    content = study.report(Options(), pieces).content
    assert content["primary"][0]["verdict"] == Verdict.UNTRIED
    assert "other: NTPO, 12 runs of further settings" in content["missing"]
    further = [job for job in study.jobs(Options(), pieces) if _is_further(job)]
    assert {str(job.env_kwargs) for job in further} == {str(task.env_kwargs)}
    fill_study(study, Options(), pieces, make)
    assert study.report(Options(), pieces).content["primary"][0]["verdict"] == Verdict.NOT_LEARNED


def _is_further(job: Any) -> bool:
    usual = MULTIKEY.job("NTPO", 0).arguments
    return isinstance(job, TrainingJob) and any(job.arguments[name] != usual[name] for row in FURTHER for name in row)


# ---------------------------------------------------------------------- planned comparisons


def test_a_row_has_no_verdict_before_all_planned_seeds_are_there() -> None:
    empty = Row("", "a task", "a against b", Prediction.NOT_SETTLED, "difference")
    row = empty.tested(np.arange(9.0) + 20, np.arange(10.0))._replace(gated=True)
    for learned, verdict in ((None, Verdict.UNTRIED), (0.5, Verdict.NOT_LEARNED), (1.0, Verdict.SUPPORTED)):
        assert judged([row._replace(learned=learned)], 10)[0]["verdict"] == Verdict.TOO_FEW
        assert judged([row._replace(learned=learned)], 9)[0]["verdict"] == verdict
    assert judged([row._replace(learned=1.0, at_floor=True)], 9)[0]["verdict"] == Verdict.AT_FLOOR
    alone, among = judged([row], 9)[0], judged([row, empty, empty, empty], 9)[0]
    assert among["corrected_p"] == pytest.approx(4 * alone["corrected_p"], rel=1e-4)


def test_further_seeds_change_curves_but_no_verdict(tmp_path: Path) -> None:
    plan = Planned("POAD", "NTPO", Prediction.HIGHER, gated=False, measure="success")
    study, pieces = Comparing("two", "a test", "A test", ((MULTIKEY, (POAD, NTPO)),), (plan,)), Pieces(tmp_path)

    def make(job: TrainingJob) -> dict[str, Any]:
        is_first, is_planned = job.algorithm == "POAD", job.seed in FINAL_SEEDS
        made = result(0.1, 0.1)  # returns do not differ, and nobody learns
        height = 0.9 if is_first == is_planned else 0.1
        return {**made, "success": [height] * len(made["steps"])}

    options = Options(seeds=(*FINAL_SEEDS, *range(310, 330)))
    fill_study(study, options, pieces, make)
    content = study.report(options, pieces).content
    (row,) = content["primary"]
    assert (row["seeds"], row["verdict"], row["effect"]["value"]) == ([10, 10], Verdict.SUPPORTED, pytest.approx(0.8))
    assert row["effect_is"] == "difference of mean areas of success"
    assert len(content["comparisons"][0]["methods"]["POAD"]["seeds"]) == 30
