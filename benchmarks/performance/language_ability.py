"""The effect of training on a model's language: lm-eval tasks, before and after.

The base model and the same model after training (with an adapter, as `poad export` writes it, or as a whole model)
answer the same questions. Both are loaded by the harness itself, without code of this project. Since the questions are
the same, the standard error of the difference is that of paired answers. Writes language_ability.json and
language_ability.md. Needs the extra `lm-eval`; the tasks named by default are fetched from the Hugging Face hub.
"""

from __future__ import annotations

import logging
import math
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module, metadata
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from benchmarks.reports.tables import markdown_table, show_table
from benchmarks.runner.errors import BenchmarkError
from benchmarks.runner.files import write_json
from benchmarks.runner.machine import describe_machine
from lang_envs.errors import MissingExtraError, install_command
from lang_envs.files import write_bytes
from lang_envs.text import markdown_code, markdown_text

TASKS = ("arc_challenge", "hellaswag", "piqa", "mmlu")
"""Tasks of the POAD paper, as the harness names them."""


class LanguageAbilityError(BenchmarkError, ValueError):
    """A comparison that cannot be made as requested."""


class Models(NamedTuple):
    """Two models, as the harness loads them.

    Attributes:
        before: `model_args` of the base model.
        after: `model_args` of the trained model.
        about: Description of the training, for the report.
    """

    before: Mapping[str, Any]
    after: Mapping[str, Any]
    about: Mapping[str, Any]


# ---------------------------------------------------------------------- the models


def models_of(checkpoint: Path, scratch: Path) -> Models:
    """Export the trained model of a checkpoint, and name its base model.

    Args:
        checkpoint: Path of a checkpoint, the folder of a run, or an adapter that `poad export` has written.
        scratch: Empty folder for the adapter of a checkpoint.

    Raises:
        PoadError: If the checkpoint cannot be loaded or exported.
        LanguageAbilityError: If the path holds an export of a whole model, without a base model.
    """
    from poad_sb3.export.folder import MANIFEST, read_manifest, require_whole

    is_export = (checkpoint / MANIFEST).is_file()
    folder = checkpoint.resolve() if is_export else _exported(checkpoint, scratch / "export")
    if is_export:
        require_whole(folder)
    about = read_manifest(folder)
    if is_export and about["kind"] != "adapter":
        raise LanguageAbilityError(
            f"Expected a checkpoint, a run, or an exported adapter; {checkpoint} holds a whole model, and nothing "
            "tells what it was before. Fix: name the checkpoint that it was exported from."
        )
    revision = {} if about["revision"] is None else {"revision": about["revision"]}
    before = {"pretrained": about["base"], **revision, "dtype": about["dtype"]}
    trained = {"peft": str(folder)} if about["kind"] == "adapter" else {"pretrained": str(folder), "revision": "main"}
    known = {name: about[name] for name in ("base", "revision", "dtype", "algorithm", "num_timesteps", "kind")}
    return Models(before, {**before, **trained}, {"checkpoint": str(checkpoint), **known})


def _exported(checkpoint: Path, folder: Path) -> Path:
    from peft import PeftModel

    from poad_sb3.export.export import export_policy
    from poad_sb3.runs.loading import find_checkpoint, load_checkpoint

    model = load_checkpoint(find_checkpoint(checkpoint)[0], device="cpu")
    policy = getattr(model, "policy", None)
    has_adapter = isinstance(getattr(getattr(policy, "lm", None), "network", None), PeftModel)
    return export_policy(model, folder, merge=not has_adapter).folder


# ---------------------------------------------------------------------- the harness


def _harness() -> ModuleType:
    """Import lm-eval.

    Raises:
        MissingExtraError: If lm-eval is not installed.
    """
    try:
        return import_module("lm_eval")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "lm_eval":
            raise
        raise MissingExtraError(
            "Expected the package of the extra 'lm-eval'; it is not installed. "
            f"Fix: {install_command('lm-eval')}, best in an environment of its own."
        ) from error


def compare(
    models: Models,
    tasks: Sequence[str] = TASKS,
    *,
    limit: int | None = None,
    include: Path | None = None,
    few_shot: int | None = None,
    batch_size: int = 8,
    device: str = "auto",
) -> list[Change]:
    """Evaluate both models on the tasks.

    Args:
        models: Models, from `models_of`.
        tasks: Names of tasks and groups of the harness.
        limit: Maximum number of questions of each task, from the first on; None for all.
        include: Folder of further tasks (YAML).
        few_shot: Examples before each question; the task's default if None.
        batch_size: Questions in a batch.
        device: Torch device, or `"auto"`.

    Raises:
        MissingExtraError: If the harness is not installed.
        LanguageAbilityError: If the harness has no such task, or a model or data set is not available.
    """
    from stable_baselines3.common.utils import get_device

    harness = _harness()
    manager = import_module("lm_eval.tasks").TaskManager(include_path=None if include is None else str(include))
    unknown = [name for name in tasks if not manager.match_tasks([name])]
    if unknown or not tasks:
        raise LanguageAbilityError(
            f"Expected tasks that the harness knows; got {', '.join(unknown) or 'none'}. "
            "Fix: see `lm-eval ls tasks`, or name the folder of your own with --include."
        )

    try:
        answers = (
            harness.simple_evaluate(
                model="hf",
                model_args=dict(one),
                tasks=list(tasks),
                num_fewshot=few_shot,
                batch_size=batch_size,
                device=str(get_device(device)),
                limit=limit,
                task_manager=manager,
                bootstrap_iters=1_000,
            )
            for one in (models.before, models.after)
        )
        return list(changes(*answers))
    except (OSError, ConnectionError) as error:  # a model or a data set that is not here
        raise LanguageAbilityError(
            f"Expected the models and the questions of {', '.join(tasks)}; got {type(error).__name__}: "
            f"{str(error)[:300]}. Fix: fetch them where there is a network, or use --include with tasks of your own."
        ) from error


# ---------------------------------------------------------------------- the comparison


Scores = Mapping[str, Any]
"""Result of `lm_eval.simple_evaluate`."""
Measured = tuple[float, float | None]
"""A value and its standard error; None where it has none."""


class Change(NamedTuple):
    """A metric of a task, before and after.

    Attributes:
        task: Name of the task in the harness; a group stands for its tasks.
        metric: Name of the metric.
        n: Number of questions.
        before: Value of the base model, and its standard error as the harness reports it (None where it has none).
        after: Value of the trained model, likewise with its standard error.
        difference: Value after less value before, and its standard error.
        paired: Whether the error of the difference is taken over the differences of single answers. Where the harness
            keeps none that add up to the metric, the two errors are added as if independent: an upper bound.
    """

    task: str
    metric: str
    n: int
    before: Measured
    after: Measured
    difference: Measured
    paired: bool


def changes(before: Scores, after: Scores) -> Iterator[Change]:
    """Compare the harness's results; a task that belongs to a group is part of the group's rows only.

    Args:
        before: Result of `simple_evaluate` for the base model.
        after: Result of `simple_evaluate` for the trained model, on the same tasks.
    """
    groups: Mapping[str, Sequence[str]] = before.get("group_subtasks", {})
    parts = {part for members in groups.values() for part in members}
    for task, found in before["results"].items():
        if task in parts:
            continue
        for key, value in found.items():
            metric, _, kept_by = key.partition(",")
            if not kept_by or metric.endswith("_stderr") or not isinstance(value, int | float):
                continue
            leaves = list(_leaves(task, groups))
            values, answers = [], []
            for scores in (before, after):
                error = scores["results"][task].get(f"{metric}_stderr,{kept_by}")
                known = float(error) if isinstance(error, int | float) else None
                values.append((float(scores["results"][task][key]), known))
                answers.append(_answers(scores, leaves, metric, kept_by))
            yield _change(task, metric, values[0], values[1], answers)


def _leaves(task: str, groups: Mapping[str, Sequence[str]]) -> Iterator[str]:
    members = groups.get(task)
    if not members:
        yield task
    for member in members or ():
        yield from _leaves(member, groups)


def _answers(scores: Scores, leaves: Sequence[str], metric: str, kept_by: str) -> dict[tuple[str, int], float]:
    """Return the scores of all single answers that are numbers."""
    found = {}
    for leaf in leaves:
        for sample in scores.get("samples", {}).get(leaf, ()):
            value = sample.get(metric)
            if sample.get("filter", kept_by) == kept_by and isinstance(value, int | float):
                found[leaf, sample["doc_id"]] = float(value)
    return found


def _change(
    task: str, metric: str, before: Measured, after: Measured, answers: Sequence[Mapping[tuple[str, int], float]]
) -> Change:
    one, other = answers
    difference = after[0] - before[0]
    single = np.array([other[key] - one[key] for key in one if key in other])
    if len(single) > 1 and one.keys() == other.keys() and abs(single.mean() - difference) < 1e-6:
        paired_error = float(single.std(ddof=1) / np.sqrt(len(single)))
        return Change(task, metric, len(single), before, after, (difference, paired_error), paired=True)
    error = None if before[1] is None or after[1] is None else math.hypot(before[1], after[1])
    return Change(task, metric, len(one), before, after, (difference, error), paired=False)


# ---------------------------------------------------------------------- the report


def _shown(pair: tuple[float, float | None], *, signed: bool = False) -> str:
    value, error = pair
    return f"{value:{'+' if signed else ''}.4f}" + ("" if error is None else f" ± {error:.4f}")


_HEAD = ("task", "metric", "questions", "before", "after", "difference")


def _rows(found: Sequence[Change]) -> list[tuple[str, ...]]:
    return [
        (
            markdown_text(one.task),
            markdown_text(one.metric),
            str(one.n),
            _shown(one.before),
            _shown(one.after),
            _shown(one.difference, signed=True),
        )
        for one in found
    ]


def markdown(changes: Sequence[Change], content: Mapping[str, Any]) -> str:
    """Return the report as text."""
    about, settings = content["trained"], content["settings"]
    unpaired = ", ".join(dict.fromkeys(markdown_text(change.task) for change in changes if not change.paired))
    rest = "" if settings["limit"] is None else f" Only the first {settings['limit']} questions of each task."
    rest += f" Not paired, hence too large: {unpaired}." if unpaired else ""
    return (
        "# Language ability before and after training\n\n"
        f"{markdown_code(str(about['base']))} before, and after {about['num_timesteps']} environment steps "
        f"of {about['algorithm']} ({markdown_code(str(about['checkpoint']))}).\n\n"
        f"{markdown_table(_HEAD, _rows(changes))}\n\n"
        f"± is one standard error; that of the difference is over paired answers.{rest} lm-eval {content['lm_eval']}, "
        f"{content['seconds']} s, {markdown_code(content['command'])}.\n"
    )


def language_ability(
    checkpoint: Annotated[Path, typer.Option(metavar="PATH", help="A checkpoint, a run, or an exported adapter.")],
    tasks: Annotated[str, typer.Option(metavar="NAME,NAME", help="Tasks and groups of lm-eval.")] = ",".join(TASKS),
    limit: Annotated[int | None, typer.Option(min=1, help="The first questions only, of each task.")] = None,
    include: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of further tasks (YAML).")] = None,
    few_shot: Annotated[int | None, typer.Option(min=0, help="Examples before a question; the task's own.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Questions at a time.")] = 8,
    device: Annotated[str, typer.Option(help="Torch device.")] = "auto",
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the reports go.")] = Path("runs/language-ability"),
) -> None:
    """Ask a model the questions of lm-eval before and after it was trained."""
    _harness()  # before anything is loaded
    logging.getLogger("lm_eval").setLevel(logging.WARNING)
    names = [name for name in tasks.split(",") if name]
    settings: dict[str, Any] = {"limit": limit, "few_shot": few_shot, "batch_size": batch_size}
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="poad-export-") as scratch:
        models = models_of(checkpoint, Path(scratch))
        found = compare(models, names, include=include, device=device, **settings)
    content = {
        **describe_machine(),
        "lm_eval": metadata.version("lm-eval"),
        "settings": {"tasks": names, **settings},
        "trained": dict(models.about),
        "seconds": round(time.perf_counter() - started, 1),
        "changes": [one._asdict() for one in found],
    }
    show_table(_HEAD, _rows(found))
    print(write_json(out / "language_ability.json", content))
    print(write_bytes(out / "language_ability.md", markdown(found, content).encode()))
