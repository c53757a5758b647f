"""Jobs of each study: tuning with equal budgets on seeds of its own, shared runs, jobs that depend on others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from studies_users import fill, result

from benchmarks.runner.errors import NotTunedError, StudyError
from benchmarks.studies.credit import CREDIT
from benchmarks.studies.curves import CURVES, GAMMA, GAMMA_TOKEN, METHODS, OWN_POLICY, SAME_POLICY, TASKS
from benchmarks.studies.engine.findings import find, primary
from benchmarks.studies.engine.jobs import TrainingJob
from benchmarks.studies.engine.pieces import Pieces
from benchmarks.studies.engine.study import FINAL_SEEDS, TUNING_SEEDS, Options, Study
from benchmarks.studies.engine.tuning import BEYOND, RATES, Comparison, area
from benchmarks.studies.generalisation import GENERALISATION_STUDY
from benchmarks.studies.lambda_token import LAMBDA_TOKEN
from benchmarks.studies.registry import ALL
from lang_envs import TRAINING_IDS, UNSEEN_IDS

FOOD = Comparison("test", TASKS["food-preparation"], SAME_POLICY)
OPTIONS = Options(tasks=("food-preparation",))


def _best(rates: dict[str, float]):
    """Make pieces in which every method does best with its rate, and with another one on the final seeds."""

    def make(job: TrainingJob) -> dict[str, object]:
        is_best = job.arguments["learning_rate"] == rates[job.algorithm]
        return result(0.8 if is_best is (job.seed in TUNING_SEEDS) else 0.1)

    return make


def _all_jobs(study: Study, options: Options, pieces: Pieces) -> list[TrainingJob]:
    """Everything, each piece made up as soon as its job is known."""
    known: dict[str, TrainingJob] = {}
    while True:
        new = [job for job in study.jobs(options, pieces) if job.name not in known]
        if not new:
            return list(known.values())
        rollout = [{"action": "pick up the tomato", "tokens": ["x"], "reward": 0.0, "values": [0.0], "advantages": {}}]
        fill(pieces, new, partial(_with, rollout))
        known |= {job.name: job for job in new}


def _with(rollout: list[dict[str, object]], _: TrainingJob) -> dict[str, object]:
    return result(rollout=rollout)


# ---------------------------------------------------------------------- tuning


def test_rates_are_chosen_on_the_tuning_seeds_alone(tmp_path: Path) -> None:
    pieces, best = Pieces(tmp_path), {"POAD": 1e-3, "NTPO": 5e-4, "TWOSOME": 2e-3, "ARCHER": 2e-3}
    fill(pieces, FOOD.tuning.jobs(), _best(best))
    finals = [FOOD.final_job(arm, rate, seed) for arm in FOOD.arms for rate in RATES for seed in FINAL_SEEDS]
    fill(pieces, finals, _best(best))  # would say otherwise
    assert FOOD.tuning.chosen(pieces) == best
    final = [job for job in FOOD.jobs(OPTIONS, pieces) if job.seed in FINAL_SEEDS]
    assert {(job.algorithm, job.arguments["learning_rate"]) for job in final} == set(best.items())


@pytest.mark.parametrize("n_missing", [1, 3])
def test_without_equal_budgets_there_are_no_final_runs(n_missing: int, tmp_path: Path) -> None:
    pieces, jobs = Pieces(tmp_path), FOOD.tuning.jobs()
    fill(pieces, jobs[:-n_missing], lambda _: result())
    with pytest.raises(NotTunedError, match=f"got {24 - n_missing} of 24 runs"):
        FOOD.tuning.chosen(pieces)
    assert {job.seed for job in FOOD.jobs(OPTIONS, pieces)} == set(TUNING_SEEDS)
    fill(pieces, jobs[-n_missing:], lambda _: result())
    assert {job.seed for job in FOOD.jobs(OPTIONS, pieces)} == {*TUNING_SEEDS, *FINAL_SEEDS}


def test_of_equal_rates_the_smaller_is_taken(tmp_path: Path) -> None:
    fill(Pieces(tmp_path), FOOD.tuning.jobs(), lambda _: result())
    assert set(FOOD.tuning.chosen(Pieces(tmp_path)).values()) == {RATES[0]}


@pytest.mark.parametrize("seeds", [(0, 101), (102,), (), (0, 0), (-1,)], ids=str)
def test_seeds_that_were_tuned_on_are_no_final_seeds(seeds: Sequence[int], tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="Expected distinct seeds, 0 or more"):
        list(CURVES.jobs(Options(seeds=seeds), Pieces(tmp_path)))


def test_the_area_is_the_mean_height() -> None:
    assert area(result(0.5, 0.5)) == pytest.approx(0.375)
    assert area({"steps": [0, 1, 4], "returns": [1.0, 1.0, 1.0]}) == 1.0


# ---------------------------------------------------------------------- every study


TRAINING = [study for study in ALL if study.name not in ("datasci", "credit-truth")]
"""The studies whose jobs are of `TrainingJob`; the others have tests of their own."""


@pytest.mark.parametrize("study", TRAINING, ids=lambda study: study.name)
def test_every_method_is_tuned_alike_and_never_on_final_seeds(study: Study, tmp_path: Path) -> None:
    jobs = _all_jobs(study, Options(), Pieces(tmp_path))
    tuned = [job for job in jobs if job.seed in TUNING_SEEDS]
    budgets = Counter((job.env_id, job.algorithm, str({**job.arguments, "learning_rate": 0})) for job in tuned)
    n_rates = {len(RATES), len(RATES) + len(BEYOND[0])}  # the fake results are best at the edge
    assert set(budgets.values()) <= {n * len(TUNING_SEEDS) for n in n_rates}
    assert not any(job.evaluation.tests for job in tuned)
    assert {job.seed for job in jobs} <= {*TUNING_SEEDS, *FINAL_SEEDS}
    assert not {job.env_id for job in jobs} & set(UNSEEN_IDS)


def test_curves_has_both_panels_on_the_four_tasks_and_shares_twosome(tmp_path: Path) -> None:
    jobs = _all_jobs(CURVES, Options(), Pieces(tmp_path))
    assert {job.env_id for job in jobs} == set(TRAINING_IDS)
    arms = 2 * len(METHODS) - 1  # TWOSOME's own policy is the shared one
    tuned = [task for task in TASKS.values() if task.tuned_on is None]
    assert len(tuned) == 2
    assert len(jobs) == arms * (len(tuned) * len(RATES) * len(TUNING_SEEDS) + len(TRAINING_IDS) * len(FINAL_SEEDS))
    assert {arm.name for arm in SAME_POLICY} == set(METHODS)
    assert {arm.arguments["action_sampling"] for arm in SAME_POLICY} == {"candidates"}


def test_tuning_only_has_no_final_runs_and_tasks_can_be_named(tmp_path: Path) -> None:
    options = OPTIONS._replace(tuning_only=True)
    jobs = _all_jobs(CURVES, options, Pieces(tmp_path))
    assert {job.seed for job in jobs} == set(TUNING_SEEDS)
    assert {job.env_id for job in jobs} == {TASKS["food-preparation"].env_id}
    with pytest.raises(StudyError, match=r"Expected tasks among .*; got food"):
        list(CURVES.jobs(Options(tasks=("food",)), Pieces(tmp_path)))


@pytest.mark.parametrize(("study", "n_new"), [(GAMMA_TOKEN, 3), (GAMMA, 2)], ids=["gamma-token", "gamma"])
def test_what_curves_has_run_is_not_run_again(study, n_new: int, tmp_path: Path) -> None:
    pieces = Pieces(tmp_path)
    _all_jobs(CURVES, OPTIONS, pieces)
    there = {path.name for path in tmp_path.iterdir()}
    jobs = _all_jobs(study, OPTIONS, pieces)
    new = [job for job in jobs if pieces.path(job).name not in there]
    assert len(new) == n_new * (len(RATES) * len(TUNING_SEEDS) + len(FINAL_SEEDS))


def test_gamma_token_has_the_five_discounts_inside_actions() -> None:
    arms = GAMMA_TOKEN.comparisons(Options())[0].arms
    inside = [arm.arguments.get("gamma_token", {"POAD": 1.0, "NTPO": 0.95}[arm.algorithm]) for arm in arms]
    assert inside == [1.0, 0.95, 0.9, 0.8, 0.5]
    assert [arm.arguments.get("gamma", 0.95) for arm in GAMMA.comparisons(Options())[0].arms] == [0.95, 1.0, 0.95, 1.0]


def test_generalisation_tests_the_runs_of_curves_before_and_after(tmp_path: Path) -> None:
    pieces = Pieces(tmp_path)
    _all_jobs(CURVES, OPTIONS, pieces)
    there = {path.name for path in tmp_path.iterdir()}
    jobs = _all_jobs(GENERALISATION_STUDY, OPTIONS, pieces)
    new = [job for job in jobs if pieces.path(job).name not in there]
    assert {(job.steps, job.arguments["action_sampling"]) for job in new} == {(0, "trie"), (0, "candidates")}
    final = [job for job in jobs if job.seed in FINAL_SEEDS]
    assert len(final) == (len(OWN_POLICY) + 2) * len(FINAL_SEEDS)
    assert {(job.evaluation.tests, job.evaluation.test_episodes) for job in final} == {(UNSEEN_IDS, 100)}


def test_credit_first_trains_the_player_and_then_who_judges_its_actions(tmp_path: Path) -> None:
    pieces, options = Pieces(tmp_path), Options(tasks=("tomato-salad",))
    first = list(CREDIT.jobs(options, pieces))
    assert [(job.algorithm, job.evaluation.script) for job in first] == [("POAD", ())]
    later = [job for job in _all_jobs(CREDIT, options, pieces) if job.name != first[0].name]
    assert [(job.algorithm, job.evaluation.script) for job in later] == [
        ("NTPO", ("pick up the tomato",)),
        ("TWOSOME", ("pick up the tomato",)),
    ]
    with pytest.raises(StudyError, match="Expected tasks among tomato-salad, key-token; got pizza"):
        list(CREDIT.jobs(Options(tasks=("pizza",)), pieces))


def test_wall_time_has_no_runs_of_its_own(tmp_path: Path) -> None:
    assert _all_jobs(ALL[-1], Options(), Pieces(tmp_path)) == []


@pytest.mark.parametrize(("best", "further"), [(5e-4, BEYOND[0]), (1e-3, ()), (2e-3, BEYOND[1])])
def test_a_best_rate_at_the_edge_extends_the_grid(best: float, further: Sequence[float], tmp_path: Path) -> None:
    comparison = LAMBDA_TOKEN.comparisons(Options(tasks=("multikey 2 4",)))[0]
    tuning, pieces = comparison.tuning, Pieces(tmp_path)
    fill(pieces, tuning.jobs(), lambda job: result(0.9 if job.arguments["learning_rate"] == best else 0.1))
    rates = {job.arguments["learning_rate"] for job in tuning.jobs(pieces)}
    assert rates == {*RATES, *further}
    if further:
        with pytest.raises(NotTunedError):
            tuning.chosen(pieces)
    fill(pieces, tuning.jobs(pieces), lambda job: result(0.9 if job.arguments["learning_rate"] == best else 0.1))
    assert set(tuning.chosen(pieces).values()) == {best}
    assert {job.seed for job in comparison.jobs(Options(seeds=LAMBDA_TOKEN.seeds), pieces)} == {
        *TUNING_SEEDS,
        *range(200, 210),
    }


def test_primary_comparisons_have_signs_seeds_and_a_correction_over_planned_rows(tmp_path: Path) -> None:
    (comparison,) = LAMBDA_TOKEN.comparisons(Options(tasks=("multikey 2 4",)))
    pieces, seeds = Pieces(tmp_path), LAMBDA_TOKEN.seeds
    fill(pieces, comparison.tuning.jobs(), lambda job: result(0.9 if job.arguments["learning_rate"] == 1e-3 else 0.1))
    arms = {arm.name: arm for arm in comparison.arms}

    def play(name: str, heights: Sequence[float]) -> None:
        for seed, height in zip(seeds, heights, strict=False):
            fill(
                pieces, [comparison.final_job(arms[name], 1e-3, seed)], lambda _, height=height: result(height, height)
            )

    play("POAD 1", [0.5 + 0.01 * n for n in range(10)])
    play("POAD 0.95", [0.7 + 0.01 * n for n in range(10)])
    play("POAD 0.8", [0.2 + 0.01 * n for n in range(10)])
    play("POAD 0", [0.9, 0.9])
    findings = [find(comparison, pieces, seeds)]
    rows = {(one["first"], one["second"]): one for one in primary(findings, LAMBDA_TOKEN.primary, 8)}
    better, worse, few = (
        rows[pair] for pair in (("POAD 0.95", "POAD 1"), ("POAD 0.8", "POAD 1"), ("POAD 0", "POAD 1"))
    )
    assert (better["verdict"], worse["verdict"], few["verdict"]) == ("supported", "contradicted", "too few seeds")
    assert better["p"] == pytest.approx(2 / 184_756, rel=0.01)  # 10 of 20 scores
    assert better["corrected_p"] == pytest.approx(better["p"] * len(LAMBDA_TOKEN.primary), rel=0.01)
    assert better["difference"]["value"] == pytest.approx(0.75 * 0.2)  # curves begin at 0
    assert ("POAD 1", "action level") not in rows  # without runs
