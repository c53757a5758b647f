"""`generalisation`: agents trained on Food Preparation play eight unseen tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from benchmarks.references.published import read
from benchmarks.runner.results import references_of
from benchmarks.studies.curves import OWN_POLICY, PANELS, TASKS, find_tasks
from benchmarks.studies.engine.findings import Claim, find, judge, lines
from benchmarks.studies.engine.jobs import Job
from benchmarks.studies.engine.pieces import Piece, Pieces
from benchmarks.studies.engine.study import Options, Report, Study
from benchmarks.studies.engine.tuning import Arm, Comparison
from lang_envs.report.statistics import estimate, mean

_TASK = TASKS["food-preparation"]
_COMPARISON = Comparison(list(PANELS)[1], _TASK, OWN_POLICY)
_CLAIMS = (Claim("POAD", "NTPO"), Claim("POAD", "TWOSOME"))
"""As the published means over the six tasks are ordered."""
_UNTRAINED: dict[str, Arm] = {"untrained": OWN_POLICY[0], "untrained, candidates": OWN_POLICY[2]}
"""The beginnings of training: POAD's policy, and TWOSOME's."""

Runs = Mapping[str, Mapping[int, Piece]]


def _untrained_job(arm: Arm, seed: int) -> Job:
    return _TASK._replace(steps=0).job(arm.algorithm, seed, **arm.arguments)


def _jobs(options: Options, pieces: Pieces) -> Iterator[Job]:
    """Yield the job of the untrained model, then the runs of `curves`, tested on the unseen tasks too."""
    find_tasks(options, [_TASK.name])
    if not options.tuning_only:
        yield from (_untrained_job(arm, seed) for arm in _UNTRAINED.values() for seed in options.checked_seeds())
    yield from _COMPARISON.jobs(options, pieces)


def _runs(options: Options, pieces: Pieces) -> Runs:
    """Pieces by agent and seed."""
    runs: dict[str, dict[int, Piece]] = {}
    for name, arm in _UNTRAINED.items():
        found = {seed: pieces.find(_untrained_job(arm, seed)) for seed in options.checked_seeds()}
        runs[name] = {seed: piece for seed, piece in found.items() if piece is not None}
    trained = find(_COMPARISON, pieces, options.seeds).methods
    return runs | {arm.name: trained[arm.name].runs if arm.name in trained else {} for arm in OWN_POLICY}


def _table(runs: Runs, name: str) -> dict[str, dict[str, list[float | None]]]:
    """By agent and task: the mean over seeds, and the ends of its interval."""
    return {
        agent: {
            env_id: [
                None if one is None else round(one, 4)
                for one in estimate([np.array([piece["tests"][env_id][name] for piece in by_seed.values()])], mean)
            ]
            for env_id in _TASK.evaluation.tests
        }
        for agent, by_seed in runs.items()
    }


def _report(options: Options, pieces: Pieces) -> Report:
    every = _runs(options, pieces)
    missing = [
        f"{agent}: {len(options.seeds) - len(by_seed)} of {len(options.seeds)} seeds"
        for agent, by_seed in every.items()
        if len(by_seed) < len(options.seeds)
    ]
    runs = {agent: by_seed for agent, by_seed in every.items() if by_seed}
    published = read("poad_paper")["generalisation"]
    tasks = list(next(iter(published["scores"].values())))
    scores = {
        agent: np.array(
            [np.mean([piece["tests"][task]["discounted_return"] for task in tasks]) for piece in by_seed.values()]
        )
        for agent, by_seed in runs.items()
    }
    verdicts: dict[str, list[str]] = {"differs": [], "agrees": []}
    for claim in _CLAIMS:
        judge(f"Mean return on the {len(tasks)} published tasks", claim, scores, verdicts)
    returns, success = _table(runs, "discounted_return"), _table(runs, "success")
    references = {env_id: references_of(env_id) for env_id in _TASK.evaluation.tests}
    content: dict[str, Any] = {
        "trained_on": _TASK.env_id,
        "steps": _TASK.steps,
        "episodes": _TASK.evaluation.test_episodes,
        "seeds": list(options.seeds),
        "statistics": "means over seeds, 95% intervals by bootstrap; every seed is a training of its own",
        **verdicts,
        "missing": missing,
        "discounted_return": returns,
        "success": success,
        "on_the_training_task": {
            agent: round(float(np.mean([piece["returns"][-1] for piece in by_seed.values()])), 4)
            for agent, by_seed in runs.items()
        },
        "oracle": {env_id: None if one is None else round(one.oracle, 4) for env_id, one in references.items()},
        "published_label": published["label"],
        "published": published["scores"],
    }
    shown = [f"Missing: {one}" for one in missing]
    for agent, by_task in success.items():
        rates = (f"{env_id.split('-')[1]} {100 * (one[0] or 0.0):.0f} %" for env_id, one in by_task.items())
        shown.append(f"{agent}, success: {', '.join(rates)}")
    if not returns:
        return Report(content, {}, [*lines(verdicts), *shown])
    from benchmarks.studies.engine.pictures import scores_figure

    ours = {agent: by_task for agent, by_task in returns.items() if agent != "untrained, candidates"}
    theirs = {agent: {task: [one[0]] for task, one in of.items()} for agent, of in published["scores"].items()}
    titles = {f"ours: pocket model, {_TASK.steps:,} steps": ours, "published: LLaMA2-7B with LoRA": theirs}
    figure = scores_figure(titles, "return, discounted 0.95 per step")
    return Report(content, {"": figure}, [*lines(verdicts), *shown])


GENERALISATION_STUDY = Study(
    "generalisation", "trained on Food Preparation, tested on eight unseen tasks, before and after", _jobs, _report
)
