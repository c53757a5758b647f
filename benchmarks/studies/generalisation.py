"""`generalisation`: agents trained on Food Preparation play eight tasks that nothing was trained on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.runner.files import write_picture
from benchmarks.runner.results import references_of
from benchmarks.runner.statistics import Estimate, estimate, mean
from benchmarks.studies.arms import Arm, Comparison, check_seeds
from benchmarks.studies.catalogue import OWN_POLICY, TASKS, find_tasks
from benchmarks.studies.curves import PANELS
from benchmarks.studies.findings import Claim, compared, find, told_lines
from benchmarks.studies.jobs import Job
from benchmarks.studies.pieces import Piece, Pieces
from benchmarks.studies.published import GENERALISATION, GENERALISATION_LABEL
from benchmarks.studies.study import Options, Report, Study

__all__ = ["GENERALISATION_STUDY"]

_TASK = TASKS["food-preparation"]
_COMPARISON = Comparison(list(PANELS)[1], _TASK, OWN_POLICY)
_CLAIMS = (Claim("POAD", "NTPO"), Claim("POAD", "TWOSOME"))
"""As the published means over the six tasks are ordered."""
_UNTRAINED: dict[str, Arm] = {"untrained": OWN_POLICY[0], "untrained, candidates": OWN_POLICY[2]}
"""What training begins from: POAD's policy, and TWOSOME's."""


def _untrained_job(arm: Arm, seed: int) -> Job:
    return _TASK._replace(steps=0).job(arm.algorithm, seed, **arm.arguments)


def _jobs(options: Options, pieces: Pieces) -> Iterator[Job]:
    """The untrained model; then the runs of `curves`, which are tested on the unseen tasks too."""
    find_tasks(options.tasks, [_TASK.name])
    if not options.tuning_only:
        yield from (_untrained_job(arm, seed) for arm in _UNTRAINED.values() for seed in check_seeds(options.seeds))
    yield from _COMPARISON.jobs(pieces, check_seeds(options.seeds), final=not options.tuning_only)


def _runs(options: Options, pieces: Pieces) -> dict[str, dict[int, Piece]]:
    """Pieces by agent and seed."""
    found: dict[str, dict[int, Piece]] = {}
    for name, arm in _UNTRAINED.items():
        runs = {seed: pieces.find(_untrained_job(arm, seed)) for seed in check_seeds(options.seeds)}
        found[name] = {seed: piece for seed, piece in runs.items() if piece is not None}
    trained = find(_COMPARISON, pieces, options.seeds).methods
    found |= {arm.name: trained[arm.name].runs if arm.name in trained else {} for arm in OWN_POLICY}
    return found


def _scores(runs: Mapping[int, Piece], env_id: str, name: str) -> Estimate:
    return estimate([np.array([piece["tests"][env_id][name] for piece in runs.values()])], mean)


def _table(runs: Mapping[str, Mapping[int, Piece]], name: str) -> dict[str, dict[str, list[float | None]]]:
    """By agent and task: the mean over seeds, and the ends of its interval."""
    return {
        agent: {
            env_id: [None if one is None else round(one, 4) for one in _scores(by_seed, env_id, name)]
            for env_id in _TASK.evaluation.tests
        }
        for agent, by_seed in runs.items()
        if by_seed
    }


def _verdicts(runs: Mapping[str, Mapping[int, Piece]]) -> dict[str, list[str]]:
    """Of the mean over the published tasks: where the order is another than the paper's, and where it is that."""
    told: dict[str, list[str]] = {"differs": [], "agrees": []}
    tasks = list(next(iter(GENERALISATION.values())))
    scores = {
        agent: np.array([_mean_return(piece, tasks) for piece in by_seed.values()])
        for agent, by_seed in runs.items()
        if by_seed
    }
    for claim in _CLAIMS:
        if claim.methods <= scores.keys():
            holds, sentence = compared(f"Mean return on the {len(tasks)} published tasks", claim, scores)
            told["agrees" if holds else "differs"].append(sentence)
    return told


def _mean_return(piece: Piece, tasks: Sequence[str]) -> float:
    return float(np.mean([piece["tests"][env_id]["discounted_return"] for env_id in tasks]))


def _report(options: Options, pieces: Pieces) -> Report:
    runs = _runs(options, pieces)
    verdicts = _verdicts(runs)
    returns, success = _table(runs, "discounted_return"), _table(runs, "success")
    missing = [
        f"{agent}: {len(options.seeds) - len(by_seed)} of {len(options.seeds)} seeds"
        for agent, by_seed in runs.items()
        if len(by_seed) < len(options.seeds)
    ]
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
            if by_seed
        },
        "oracle": {env_id: _oracle(env_id) for env_id in _TASK.evaluation.tests},
        "published_label": GENERALISATION_LABEL,
        "published": GENERALISATION,
    }
    pictures = {"": lambda path: _picture(path, returns)} if returns else {}
    return Report(content, pictures, [*told_lines(verdicts), *_lines(success, missing)])


def _oracle(env_id: str) -> float | None:
    references = references_of(env_id)
    return None if references is None else round(references.oracle, 4)


def _picture(path: Path, returns: Mapping[str, Mapping[str, Sequence[float | None]]]) -> Path:
    from benchmarks.studies.pictures import scores_figure

    ours: Any = {agent: scores for agent, scores in returns.items() if agent != "untrained, candidates"}
    theirs: Any = {
        agent: {env_id: [one[0]] for env_id, one in scores.items()} for agent, scores in GENERALISATION.items()
    }
    titles = {f"ours: pocket model, {_TASK.steps:,} steps": ours, "published: LLaMA2-7B with LoRA": theirs}
    return write_picture(path, scores_figure(titles, "return, discounted 0.95 per step"))


def _lines(success: Mapping[str, Mapping[str, Sequence[float | None]]], missing: Sequence[str]) -> list[str]:
    lines = [f"Missing: {one}" for one in missing]
    for agent, scores in success.items():
        told = ", ".join(f"{env_id.split('-')[1]} {100 * (one[0] or 0.0):.0f} %" for env_id, one in scores.items())
        lines.append(f"{agent}, success: {told}")
    return lines


GENERALISATION_STUDY = Study(
    "generalisation", "trained on Food Preparation, tested on eight unseen tasks, before and after", _jobs, _report
)
