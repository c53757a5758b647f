"""`datasci`: POAD and NTPO with the pocket coder on tables that ship with the package, against untrained controls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from benchmarks.references.datasci_baselines import preprocessing_of
from benchmarks.references.published import published
from benchmarks.runner.errors import NotTunedError
from benchmarks.studies.engine.coding_findings import TableFindings, rewards_of, verdicts
from benchmarks.studies.engine.jobs import CODER, CONTROLS, FIRST_ROLLOUT, N_STEPS, CodingJob, Job
from benchmarks.studies.engine.pieces import Pieces
from benchmarks.studies.engine.study import TUNING_SEEDS, Options, Report, Study
from benchmarks.studies.engine.tuning import Tuning
from poad_sb3.common.hyperparameters import preset

LEARNERS = ("POAD", "NTPO")
TABLES = ("wine", "balance-scale", "iris", "breast-cancer", "digits")
"""The most urgent first: digits has the slowest code."""
ATTEMPTS = 4096
"""Evaluations of every run, of those that learn and of controls alike."""
TUNING_ATTEMPTS = 1024
RATES = (0.75e-3, 1.5e-3, 3e-3, 6e-3)
"""Learning rates that POAD and NTPO are tried with, equally often: around that of the preset."""
TUNING_TABLE = "wine"
_MINIBATCHES = 8
_URGENCY = ("POAD", "untrained", "NTPO", "RandomCoder")
"""The order of runs: the claims depend on the first two."""
_REMARKS = (
    "The preset (adapter, minibatches, rate) was found in seven trials of POAD alone on wine, with seeds 101 and 102, "
    "and the rates that both are tried with lie around it: an advantage of POAD that equal budgets do not remove.",
    "Rates are chosen on wine, by another seed than the reported ones.",
    "The smallest rate was added to the three others when NTPO had done best with the smallest of those.",
    "The number of attempts was doubled, from 2,048, together with that preset, after those trials.",
    "In reported runs the rate falls to 0, from the one that was chosen at constant rates. It did not at first. POAD's "
    "share had not settled above 0.9 anywhere then, and NTPO's had on all four tables; POAD's runs with seeds 0 and 1, "
    "which are therefore not quite fresh, had dips. A falling rate was tried by POAD on wine with seeds 101 and 102 "
    "(94 % and 92 % ran at the end; not kept, and not compared with constant rates on these seeds) and taken for both "
    "methods. What was said before is told under constant rates, with the runs that have not been made again.",
    "A share is above 0.9 if its whole interval is: the rule that was written before any reported run. After the first "
    "runs of POAD it was loosened for some hours to the value alone, by which POAD passed where the rule leaves it "
    "unsettled and NTPO passed as before; the rule is back. Read shares with their intervals.",
)


def coding_job(method: str, table: str, attempts: int, seed: int, *, rate: float | str | None = None) -> CodingJob:
    """Return a run with the preset of the pocket coder.

    Args:
        method: One of `LEARNERS` or `CONTROLS`.
        table: Key of `DATASETS`.
        attempts: See `CodingJob`.
        seed: Of everything random.
        rate: Learning rate, of a learner; see `poad_sb3.common.schedules`.
    """
    arguments: dict[str, Any] = {}
    if method == "untrained":
        sampled = preset("pocket/datascicoding", LEARNERS[0])
        arguments = {name: sampled[name] for name in ("action_sampling", "max_new_tokens")}
    elif method in LEARNERS:
        rollout = {"n_steps": N_STEPS, "batch_size": FIRST_ROLLOUT // _MINIBATCHES}  # as large as the preset's
        arguments = {**preset("pocket/datascicoding", method), **rollout, "learning_rate": rate}
    return CodingJob(method, table, attempts, seed, arguments)


def _tuning_job(method: str, rate: float, seed: int) -> CodingJob:
    return replace(coding_job(method, TUNING_TABLE, TUNING_ATTEMPTS, seed, rate=rate), fresh_splits=())


TUNING = Tuning(
    f"this study on {TUNING_TABLE}",
    LEARNERS,
    RATES,
    TUNING_SEEDS[:1],
    _tuning_job,
    lambda piece: float(rewards_of(piece["areas"]).mean()),
)


def chosen_rates(pieces: Pieces) -> dict[str, float] | None:
    """For each learner the rate that earned most on the tuning seed; None until tuning is complete."""
    try:
        return TUNING.chosen(pieces)
    except NotTunedError:
        return None


def _falling(rates: Mapping[str, float] | None) -> dict[str, str] | None:
    """Begin reported runs with the rate that was chosen."""
    return None if rates is None else {method: f"lin_{rate:g}" for method, rate in rates.items()}


def _final_jobs(table: str, seed: int, rates: Mapping[str, float | str] | None) -> Iterator[CodingJob]:
    """Of one table and seed; without rates only the jobs that need none."""
    if rates is not None:
        yield from (coding_job(method, table, ATTEMPTS, seed, rate=rates[method]) for method in LEARNERS)
    yield from (coding_job(method, table, ATTEMPTS, seed) for method in CONTROLS)


def _jobs(options: Options, pieces: Pieces) -> Iterator[Job]:
    """Tuning, then method after method, of each all tables with one seed, then with the next."""
    tables, seeds = options.chosen_tasks(TABLES), options.checked_seeds()
    yield from TUNING.jobs()
    if not options.tuning_only:
        rates = _falling(chosen_rates(pieces))
        jobs = (job for seed in seeds for table in tables for job in _final_jobs(table, seed, rates))
        yield from sorted(jobs, key=lambda job: _URGENCY.index(job.method))


def _findings(options: Options, pieces: Pieces, rates: Mapping[str, float | str] | None) -> list[TableFindings]:
    found = []
    for table in options.chosen_tasks(TABLES):
        runs: dict[str, dict[int, Any]] = {method: {} for method in (*LEARNERS, *CONTROLS)}
        for seed in options.checked_seeds():
            for job in _final_jobs(table, seed, rates):
                if piece := pieces.find(job):
                    runs[job.method][seed] = piece
        found.append(TableFindings(table, preprocessing_of(table), runs))
    return found


def _report(options: Options, pieces: Pieces) -> Report:
    rates = chosen_rates(pieces)
    found = _findings(options, pieces, _falling(rates))
    constant = [one for one in _findings(options, pieces, rates) if any(one.runs[method] for method in LEARNERS)]
    sentences, n_seeds = verdicts(found), len(options.seeds)
    missing = [] if rates else ["tuning is not complete, hence there are no runs of learners"]
    missing += [
        f"{one.table}, {method}: {n_seeds - len(runs)} of {n_seeds} seeds"
        for one in found
        for method, runs in one.runs.items()
        if len(runs) < n_seeds
    ]
    there = [one for one in found if any(one.runs.values())]
    content = {
        "model": CODER,
        "attempts": ATTEMPTS,
        "seeds": list(options.seeds),
        "rates": rates,
        "tuning": {
            "table": TUNING_TABLE,
            "seed": TUNING.seeds[0],
            "attempts": TUNING_ATTEMPTS,
            "rates": list(RATES),
            "mean_reward": {
                method: {f"{rate:g}": round(one, 4) for rate, scores in by_rate.items() for one in scores}
                for method, by_rate in TUNING.scores(pieces).items()
            },
        },
        "statistics": (
            "the end: the last eighth of the attempts; 95% intervals by bootstrap of seeds and, within them, attempts; "
            "with one seed they say nothing of other seeds"
        ),
        "verdicts": sentences,
        "remarks": list(_REMARKS),
        "missing": missing,
        "tables": {
            one.table: {**one.to_json(), "published": published(one.table) if one.preprocessing == "published" else {}}
            for one in there
        },
        "constant_rates": {"verdicts": verdicts(constant), "tables": {one.table: one.to_json() for one in constant}}
        if rates
        else {},
    }
    shown = [*sentences, *(f"Missing: {one}" for one in missing)]
    if not there:
        return Report(content, {}, shown)
    from benchmarks.studies.engine.pictures import coding_figure

    return Report(content, {"": coding_figure(there)}, shown)


DATASCI = Study(
    "datasci", "POAD and NTPO write code for five tables, against best-of-N and RandomCoder", _jobs, _report
)
