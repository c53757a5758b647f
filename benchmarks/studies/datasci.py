"""`datasci`: POAD and NTPO with the pocket coder on tables that are always here, against what learns nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.datasci_published import published
from benchmarks.runner.files import write_picture
from benchmarks.studies.arms import TUNING_SEEDS, check_seeds
from benchmarks.studies.coding import CONTROLS, LEARNERS, MODEL, CodingJob, coding_job
from benchmarks.studies.coding_findings import TableFindings, paid, verdicts
from benchmarks.studies.errors import StudyError
from benchmarks.studies.pieces import Pieces
from benchmarks.studies.study import Options, Report, Study

__all__ = ["ATTEMPTS", "DATASCI", "RATES", "TABLES", "TUNING_ATTEMPTS", "TUNING_TABLE", "chosen_rates", "tuning_jobs"]

TABLES = ("wine", "balance-scale", "iris", "breast-cancer", "digits")
"""The most urgent first: digits has the slowest code."""
ATTEMPTS = 4096
"""Evaluations of every run, of those that learn and of controls alike."""
TUNING_ATTEMPTS = 1024
RATES = (0.75e-3, 1.5e-3, 3e-3, 6e-3)
"""Learning rates that POAD and NTPO are tried with, equally often: around that of the preset."""
TUNING_TABLE = "wine"
_TUNING_SEED = TUNING_SEEDS[0]
_URGENCY = ("POAD", "untrained", "NTPO", "RandomCoder")
"""Whose runs are done first: what is claimed hangs on the first two."""
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


def _tuning_job(method: str, rate: float) -> CodingJob:
    return coding_job(method, TUNING_TABLE, TUNING_ATTEMPTS, _TUNING_SEED, rate=rate)._replace(fresh_splits=())


def tuning_jobs() -> list[CodingJob]:
    """Every rate of both learners."""
    return [_tuning_job(method, rate) for rate in RATES for method in LEARNERS]


def tuning_rewards(pieces: Pieces) -> dict[str, dict[float, float]]:
    """Mean reward of all attempts of the tuning runs, by method and rate; only of those that have been made."""
    found = {method: {rate: pieces.find(_tuning_job(method, rate)) for rate in RATES} for method in LEARNERS}
    return {
        method: {rate: float(paid(one["areas"]).mean()) for rate, one in rates.items() if one is not None}
        for method, rates in found.items()
    }


def chosen_rates(pieces: Pieces) -> dict[str, float] | None:
    """For each learner the rate that earned most on the tuning seed; of equal ones the smaller.

    None until tuning is complete: budgets are equal, or nothing is chosen.
    """
    rewards = tuning_rewards(pieces)
    if any(len(rates) < len(RATES) for rates in rewards.values()):
        return None
    return {method: max(RATES, key=rates.__getitem__) for method, rates in rewards.items()}


def _tables(names: Sequence[str]) -> list[str]:
    wrong = [name for name in names if name not in TABLES]
    if wrong:
        raise StudyError(f"Expected tables among {', '.join(TABLES)}; got {', '.join(wrong)}. Fix: name some of these.")
    return [name for name in TABLES if not names or name in names]


def _falling(rates: Mapping[str, float] | None) -> dict[str, str] | None:
    """Reported runs begin with the rate that was chosen."""
    return None if rates is None else {method: f"lin_{rate:g}" for method, rate in rates.items()}


def _final_jobs(table: str, seed: int, rates: Mapping[str, float | str] | None) -> Iterator[CodingJob]:
    """Of one table and seed; without rates only what needs none."""
    if rates is not None:
        yield from (coding_job(method, table, ATTEMPTS, seed, rate=rates[method]) for method in LEARNERS)
    yield from (coding_job(method, table, ATTEMPTS, seed) for method in CONTROLS)


def _jobs(options: Options, pieces: Pieces) -> Iterator[CodingJob]:
    """Tuning, then method after method, of each all tables with one seed, then with the next."""
    tables, seeds = _tables(options.tasks), check_seeds(options.seeds)
    yield from tuning_jobs()
    if options.tuning_only:
        return
    rates = _falling(chosen_rates(pieces))
    jobs = (job for seed in seeds for table in tables for job in _final_jobs(table, seed, rates))
    yield from sorted(jobs, key=lambda job: _URGENCY.index(job.method))


def _findings(options: Options, pieces: Pieces, rates: Mapping[str, float | str] | None) -> list[TableFindings]:
    found = []
    for table in _tables(options.tasks):
        runs: dict[str, dict[int, Any]] = {method: {} for method in (*LEARNERS, *CONTROLS)}
        for seed in check_seeds(options.seeds):
            for job in _final_jobs(table, seed, rates):
                piece = pieces.find(job)
                if piece is not None:
                    runs[job.method][seed] = piece
        preprocessing = coding_job(CONTROLS[0], table, ATTEMPTS, 0).env_kwargs["preprocessing"]
        found.append(TableFindings(table, preprocessing, runs))
    return found


def _at_constant_rates(options: Options, pieces: Pieces, rates: Mapping[str, float] | None) -> dict[str, Any]:
    """What is said of learners whose rate did not fall; only of those that were run so."""
    found = [one for one in _findings(options, pieces, rates) if any(one.runs[method] for method in LEARNERS)]
    return {"verdicts": verdicts(found), "tables": {one.table: one.told() for one in found}} if rates else {}


def _missing(options: Options, found: Sequence[TableFindings], tuned: bool) -> list[str]:
    lines = [] if tuned else ["tuning is not complete, hence there are no runs of learners"]
    for one in found:
        lines += [
            f"{one.table}, {method}: {len(options.seeds) - len(runs)} of {len(options.seeds)} seeds"
            for method, runs in one.runs.items()
            if len(runs) < len(options.seeds)
        ]
    return lines


def _report(options: Options, pieces: Pieces) -> Report:
    rates = chosen_rates(pieces)
    found = _findings(options, pieces, _falling(rates))
    said = verdicts(found)
    missing = _missing(options, found, rates is not None)
    content = {
        "model": MODEL,
        "attempts": ATTEMPTS,
        "seeds": list(options.seeds),
        "rates": rates,
        "tuning": {
            "table": TUNING_TABLE,
            "seed": _TUNING_SEED,
            "attempts": TUNING_ATTEMPTS,
            "rates": list(RATES),
            "mean_reward": {
                method: {f"{rate:g}": round(one, 4) for rate, one in by_rate.items()}
                for method, by_rate in tuning_rewards(pieces).items()
            },
        },
        "statistics": (
            "the end: the last eighth of the attempts; 95% intervals by bootstrap of seeds and, within them, attempts; "
            "with one seed they say nothing of other seeds"
        ),
        "verdicts": said,
        "remarks": list(_REMARKS),
        "missing": missing,
        "tables": {
            one.table: {**one.told(), "published": published(one.table) if one.preprocessing == "published" else {}}
            for one in found
            if any(one.runs.values())
        },
        "constant_rates": _at_constant_rates(options, pieces, rates),
    }
    return Report(content, _pictures(found), [*said, *(f"Missing: {one}" for one in missing)])


def _pictures(found: Sequence[TableFindings]) -> dict[str, Any]:
    shown = [one for one in found if any(one.runs.values())]
    if not shown:
        return {}

    def draw(path: Path) -> Path:
        from benchmarks.studies.coding_pictures import coding_figure

        return write_picture(path, coding_figure(shown))

    return {"": draw}


DATASCI = Study(
    "datasci", "POAD and NTPO write code for five tables, against best-of-N and RandomCoder", _jobs, _report
)
