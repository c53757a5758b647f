"""The report of trainings: learning curves and recorded episodes of run folders."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from lang_envs.redaction import flat_facts, without_private
from lang_envs.report import LearningCurve, Report, Run, Table, read_run
from lang_envs.report.statistics import LEVEL, learning_curve, mean
from poad_sb3.common.hyperparameters import MOVABLE
from poad_sb3.presets import MERGED
from poad_sb3.runs.progress_csv import STEPS, logged, read_progress
from poad_sb3.runs.run_folder import RunConfig, RunError, RunFolder

__all__ = ["report_of_runs"]

_QUANTITIES = {
    "rollout/ep_rew_mean": "return of the episodes of training",
    "rollout/ep_len_mean": "actions of the episodes of training",
    "rollout/success_rate": "success rate of training",
    "train/approx_kl": "approximate KL divergence of the updates",
    "train/entropy": "entropy at decisions",
    "train/value_loss": "value loss",
    "train/explained_variance": "explained variance of the values",
}
"""Columns of progress.csv that become curves, and their titles."""
_RECORDED = "return of the recorded episodes"
_EXCLUDED_FIELDS = (
    "seed",
    "sessions",
    "model",
    "steps",
    "save_every",
    "format",
    "arguments",
    "given",
    "preset",
    "ray",
    "n_actors",
    "record_episodes",
)
"""Fields of a run that do not distinguish experiments, or are shown elsewhere."""


class _Training(NamedTuple):
    config: RunConfig
    progress: list[dict[str, str]]
    episodes: list[dict[str, Any]]


def report_of_runs(folders: Sequence[Path], title: str | None = None) -> Report:
    """Return the report of some trainings. Runs that differ only in their seed share a curve.

    Args:
        folders: Folders of the runs.
        title: Heading; None for one made of methods and tasks.

    Raises:
        RunError: If a folder has no run.
        ReportError: If its recorded episodes are damaged.
    """
    folders = list(dict.fromkeys(folders))
    runs: list[Run] = []
    trainings: list[_Training] = []
    for folder in map(RunFolder, folders):
        config = folder.read_config()
        if config is None:
            raise RunError(
                f"Expected the folder of a run; got {folder.path}, without config.json. "
                "Fix: name a folder that `poad train` has written."
            )
        recorded = folder.path / "episodes.jsonl"
        run, episodes = read_run(recorded) if recorded.exists() else (Run("", {}), [])
        files = [path for path in (folder.config_file, folder.progress) if path.exists()]
        digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
        runs.append(Run("", _facts(config), {**run.files, **digests}))
        trainings.append(_Training(config, read_progress(folder.progress), episodes))
    labels = _labels([training.config for training in trainings], folders)
    groups: dict[tuple[str, str], list[_Training]] = {}
    for label, training in zip(labels, trainings, strict=True):
        groups.setdefault((training.config.env_id, label), []).append(training)
    curves = [curve for (task, label), members in groups.items() for curve in _curves(task, label, members)]
    about = f"Curves: mean over seeds with its {LEVEL:.0%} bootstrap interval; thin lines are single seeds."
    return Report(
        title or ", ".join(f"{label} on {task}" for task, label in groups),
        runs=[
            record._replace(name=f"{label}, seed {training.config.seed}")
            for record, label, training in zip(runs, labels, trainings, strict=True)
        ],
        episodes=[
            {**episode, "agent": label, "seed": training.config.seed}
            for label, training in zip(labels, trainings, strict=True)
            for episode in training.episodes
        ],
        curves=curves,
        about=(about,) if len(trainings) > len(groups) else (),
        tables=[_summary(labels, trainings)],
    )


def _summary(labels: Sequence[str], trainings: Sequence[_Training]) -> Table:
    """Return a row for each run: its steps, and the last returns."""
    rows = []
    for label, training in zip(labels, trainings, strict=True):
        last = training.progress[-1] if training.progress else {}
        recorded = list(_recorded(training.episodes))
        steps = last.get(STEPS, "")
        numbers = [last.get(name, "") for name in ("rollout/ep_rew_mean", "rollout/success_rate")]
        shown = [_three_digits(number) for number in numbers]
        if recorded:
            shown.append(f"{recorded[-1][1]:.3f} at step {recorded[-1][0]:,.0f}")
        rows.append((label, training.config.env_id, str(training.config.seed), steps, *shown, *[""] * (3 - len(shown))))
    head = ("run", "task", "seed", "steps", "return", "success", "return of recorded episodes")
    remark = "Return and success: means of the last stats_window_size episodes of training, undiscounted."
    return Table("Trainings", head, rows, remark)


def _three_digits(number: str) -> str:
    """Return a number of progress.csv, rounded; an empty text for a damaged one."""
    try:
        return f"{float(number):.3f}"
    except ValueError:
        return ""


def _facts(config: RunConfig) -> dict[str, str]:
    last = config.sessions[-1] if config.sessions else {}
    parts = {
        "command": shlex.join(["poad", *last.get("command", ("",))[1:]]),
        "algorithm": config.algorithm,
        "environment": config.env_id,
        "environment arguments": config.env_kwargs,
        "seed": config.seed,
        "steps": config.steps,
        "environments": config.n_envs,
        "preset": config.preset or "",
        "model": config.model,
        "dataset": config.dataset or "",
        "argument": config.arguments,
        "version": last.get("versions", {}),
    }
    return {
        name: without_private(text)
        for key, value in parts.items()
        for name, text in flat_facts(key, value)
        if text != ""
    }


def _labels(configs: Sequence[RunConfig], folders: Sequence[Path]) -> list[str]:
    """Name each run by its algorithm, and by the arguments in which runs of that algorithm and task differ.

    Runs that are equal in all settings, the seed too, are no seeds of one curve: their folders are added.
    """
    labels = []
    for config in configs:
        peers = [
            _experiment(peer) for peer in configs if (peer.env_id, peer.algorithm) == (config.env_id, config.algorithm)
        ]
        names = sorted({name for facts in peers for name in facts})
        differ = [name for name in names if len({facts.get(name) for facts in peers}) > 1]
        facts = _experiment(config)
        more = ", ".join(f"{name.rpartition('.')[2]}={facts.get(name, '-')}" for name in differ)
        labels.append(without_private(f"{config.algorithm} ({more})" if more else config.algorithm))
    runs = [(config.env_id, label, config.seed) for config, label in zip(configs, labels, strict=True)]
    return [
        f"{label}, {without_private(str(folder))}" if runs.count(run) > 1 else label
        for label, run, folder in zip(labels, runs, folders, strict=True)
    ]


def _experiment(config: RunConfig) -> dict[str, str]:
    """Return the settings that distinguish experiments; a model is the same in another place."""
    fields = {name: value for name, value in asdict(config).items() if name not in _EXCLUDED_FIELDS}
    arguments = {**config.arguments, MERGED: {**(config.arguments.get(MERGED) or {})}}
    for name in MOVABLE:
        arguments[MERGED].pop(name, None)
    name, fingerprint = (config.model.get(key) or "" for key in ("name", "fingerprint"))
    model = {"model": Path(name).name, "fingerprint": fingerprint[:8]}
    return dict(flat_facts("run", {**fields, **arguments, **model}))


def _curves(task: str, label: str, trainings: Sequence[_Training]) -> Iterator[LearningCurve]:
    """Yield a curve for each quantity that the runs have logged; seeds without it are left out."""
    for column, title in _QUANTITIES.items():
        by_seed = {training.config.seed: list(logged(training.progress, column)) for training in trainings}
        yield from _curve(task, label, title, by_seed)
    by_seed = {training.config.seed: list(_recorded(training.episodes)) for training in trainings}
    yield from _curve(task, label, _RECORDED, by_seed)


def _recorded(episodes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[float, float]]:
    """Yield the mean return at each evaluation."""
    by_step: dict[int, list[float]] = {}
    for episode in episodes:
        if episode.get("training_steps") is not None:
            by_step.setdefault(episode["training_steps"], []).append(episode["return"])
    for step in sorted(by_step):
        yield float(step), sum(by_step[step]) / len(by_step[step])


def _curve(
    task: str, label: str, title: str, by_seed: Mapping[int, Sequence[tuple[float, float]]]
) -> Iterator[LearningCurve]:
    usable = {seed: points for seed, points in by_seed.items() if len(points) > 1}
    if not usable:
        return
    try:
        curve = learning_curve(usable, mean)
    except ValueError:  # runs of such different lengths that no step is common to all
        return
    several = len(usable) > 1
    yield LearningCurve(
        task,
        label,
        title,
        curve.steps.tolist(),
        curve.values.tolist(),
        curve.low.tolist() if several else None,
        curve.high.tolist() if several else None,
        {str(seed): row.tolist() for seed, row in zip(usable, curve.by_seed, strict=True)} if several else {},
    )
