"""`datasci`: methods of credit write code with the pocket coder, against best-of-N.

GRPO is not among them. Its rollouts are whole episodes, and code that runs ends an episode: environments that wait for
the rest repeat their last code, which would count as attempts (60 of 100, with reward, before any learning).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from benchmarks.errors import NotTunedError
from benchmarks.references.datasci_baselines import preprocessing_of
from benchmarks.studies.engine.coding_findings import TableFindings, coding_tables, ending, rewards_of
from benchmarks.studies.engine.findings import Prediction, Row, judged
from benchmarks.studies.engine.jobs import CODER, CONTROLS, FIRST_ROLLOUT, N_STEPS, CodingJob, Job
from benchmarks.studies.engine.pieces import Pieces
from benchmarks.studies.engine.study import FEWEST_SEEDS, TUNING_SEEDS, Options, Report, Study
from benchmarks.studies.engine.tables import planned_comparisons
from benchmarks.studies.engine.tuning import Tuning
from lang_envs.datasets.generated import NAME as GENERATED
from poad_sb3.common.hyperparameters import preset

LEARNERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "POAD": ("POAD", {}),
    "NTPO": ("NTPO", {}),
    "action level": ("POAD", {"credit_level": "action", "ratio": "token"}),
}
"""Class and arguments of each learning method, by name."""
TABLES = ("wine", GENERATED)
"""Tables; the second stands for another table in every episode."""
ATTEMPTS = 1_024
"""Number of evaluations of every run, of learners and controls alike."""
TUNING_ATTEMPTS = 1_024
RATES = (0.75e-3, 1.5e-3, 3e-3, 6e-3)
BEYOND = ((0.1875e-3, 0.375e-3), (12e-3, 24e-3))
"""Rates that follow where the best of these lies at an edge."""
TUNING_TABLE = "wine"
_N_SEEDS_WITHOUT_VERDICT = 3
"""Number of planned seeds of the methods without a verdict."""
_COMPARED = ("POAD", "NTPO")
_OTHERS = tuple(name for name in (*LEARNERS, *CONTROLS[:1]) if name not in _COMPARED)
"""Methods that are run after those that are compared."""
_MINIBATCHES = 8
_REMARKS = (
    "Every environment step is an attempt, also one whose code was evaluated before; the untrained model's best code "
    "is that of best-of-N.",
    "The preset (adapter, minibatches) was found in trials of POAD alone on wine: an advantage of POAD that equal "
    "budgets do not remove.",
    "In reported runs the learning rate falls linearly to 0 from the chosen one.",
    "The best code has the largest of many noisy scores, which is too high; it is scored again on twenty unused "
    "halves. On generated tables there is no best code: each episode has another table.",
)


def coding_job(method: str, table: str, attempts: int, seed: int, *, rate: float | str | None = None) -> CodingJob:
    """Return a run with the preset of the pocket coder.

    Args:
        method: Key of `LEARNERS`, or one of `CONTROLS`.
        table: Key of `DATASETS`, or `generated`.
        attempts: Number of attempts, see `CodingJob`.
        seed: Seed of everything random.
        rate: Learning rate of a learner; see `poad_sb3.common.schedules`.
    """
    arguments: dict[str, Any] = {}
    algorithm = method
    if method == "untrained":
        sampled = preset("pocket/datascicoding", "POAD")
        arguments = {name: sampled[name] for name in ("action_sampling", "max_new_tokens")}
    elif method in LEARNERS:
        algorithm, more = LEARNERS[method]
        rollout = {"n_steps": N_STEPS, "batch_size": FIRST_ROLLOUT // _MINIBATCHES}  # as large as the preset's
        arguments = {**preset("pocket/datascicoding", algorithm), **rollout, **more, "learning_rate": rate}
    job = CodingJob(algorithm, table, attempts, seed, arguments)
    return replace(job, fresh_splits=()) if table == GENERATED else job


def _tuning_job(method: str, rate: float, seed: int) -> CodingJob:
    return replace(coding_job(method, TUNING_TABLE, TUNING_ATTEMPTS, seed, rate=rate), fresh_splits=())


TUNING = Tuning(
    f"this study on {TUNING_TABLE}",
    tuple(LEARNERS),
    RATES,
    TUNING_SEEDS,
    _tuning_job,
    lambda piece: float(rewards_of(ending(piece["areas"])).mean()),
    BEYOND,
)


def _rates(pieces: Pieces) -> dict[str, float]:
    """Return the rate that earned most on the tuning seeds, by learner; none before the tuning is complete."""
    try:
        return TUNING.chosen(pieces)
    except NotTunedError:
        return {}


def _final_jobs(table: str, seeds: Sequence[int], rates: Mapping[str, float]) -> Iterator[tuple[str, CodingJob]]:
    """Yield the reported runs of a table with their methods; those of learners need a rate."""
    for methods, seed in product((_COMPARED, _OTHERS), seeds):
        for method in methods:
            if method in _COMPARED or seed not in FEWEST_SEEDS[_N_SEEDS_WITHOUT_VERDICT:]:
                rate = f"lin_{rates[method]:g}" if method in rates else None
                yield method, coding_job(method, table, ATTEMPTS, seed, rate=rate)


def _jobs(options: Options, pieces: Pieces) -> Iterator[Job]:
    """Yield tuning runs, then table after table: of the compared methods first, then of the rest."""
    tables, seeds, rates = options.chosen_tasks(TABLES), options.checked_seeds(), _rates(pieces)
    yield from TUNING.jobs(pieces)
    for table in tables:
        jobs = _final_jobs(table, seeds, rates)
        yield from (job for method, job in jobs if method in rates or method not in LEARNERS)


def _findings(options: Options, pieces: Pieces, rates: Mapping[str, float]) -> list[TableFindings]:
    findings = []
    for table in options.chosen_tasks(TABLES):
        jobs: dict[str, dict[int, CodingJob]] = {method: {} for method in (*_COMPARED, *_OTHERS)}
        for method, job in _final_jobs(table, options.checked_seeds(), rates):
            jobs[method][job.seed] = job
        runs = {method: pieces.select(of_method) for method, of_method in jobs.items()}
        names = {method: {seed: jobs[method][seed].name for seed in done} for method, done in runs.items()}
        findings.append(TableFindings(table, "default" if table == GENERATED else preprocessing_of(table), runs, names))
    return findings


def _primary(findings: Sequence[TableFindings]) -> list[dict[str, Any]]:
    """Compare POAD with NTPO: reward at the end of training, and length of the programs."""
    rows = []
    for finding in findings:
        for claim, measure, prediction, scores in (
            ("POAD writes better code than NTPO", "reward at the end", Prediction.NOT_SETTLED, finding.final_rewards),
            ("", "length of programs at the end", Prediction.HIGHER, finding.lengths),
        ):
            row = Row(claim, finding.table, f"POAD against NTPO, {measure}", prediction, "difference of means")
            first, second = map(scores, _COMPARED)
            rows.append(row.tested(first, second) if len(first) and len(second) else row)
    return judged(rows, len(FEWEST_SEEDS))


def _tuned(rates: Mapping[str, float]) -> str:
    chosen = ", ".join(
        f"{method} {rates[method]:g}" if method in rates else f"{method} none yet" for method in LEARNERS
    )
    return f"Learning rates: {chosen} (of {', '.join(f'{rate:g}' for rate in RATES)} on {TUNING_TABLE})."


def _report(options: Options, pieces: Pieces) -> Report:
    rates = _rates(pieces)
    findings = _findings(options, pieces, rates)
    missing = [f"tuning of {method}, hence its runs" for method in LEARNERS if method not in rates]
    for finding in findings:
        wanted = Counter(method for method, _ in _final_jobs(finding.table, options.seeds, rates))
        for method, runs in finding.runs.items():
            if left := wanted[method] - len(runs):
                missing.append(f"{finding.table}, {method}: {left} of {wanted[method]} seeds")
    finished = [finding for finding in findings if any(finding.runs.values())]
    primary = _primary(_findings(options._replace(seeds=FEWEST_SEEDS), pieces, rates))
    content = {
        "model": CODER,
        "attempts": ATTEMPTS,
        "seeds": list(options.seeds),
        "rates": rates,
        "tuning": {
            "table": TUNING_TABLE,
            "seeds": list(TUNING.seeds),
            "attempts": TUNING_ATTEMPTS,
            "rates": list(RATES),
            "mean_reward": {
                method: {f"{rate:g}": [round(score, 4) for score in scores] for rate, scores in by_rate.items()}
                for method, by_rate in TUNING.scores(pieces).items()
            },
        },
        "statistics": (
            "The end is the last eighth of the attempts; 95% intervals by bootstrap of seeds and their attempts."
        ),
        "remarks": [*_REMARKS, _tuned(rates)],
        "missing": missing,
        "primary": primary,
        "tables": {finding.table: finding.to_json() for finding in finished},
    }
    if not finished:
        return Report(content, {})
    from benchmarks.studies.engine.pictures import coding_figure

    return Report(content, {"": coding_figure(finished)})


DATASCI = Study(
    "datasci",
    "POAD, NTPO and action level write code for two tables, against best-of-N",
    _jobs,
    _report,
    lambda content: (planned_comparisons(content), *coding_tables(content)),
    seeds=FEWEST_SEEDS,
)
