"""What training did to a model's language: lm-eval tasks, before and after: `python -m benchmarks language-ability`.

The base model and the same model with what was trained (an adapter, as `poad export` writes it, or the whole model)
answer the same questions. Both are loaded by the harness itself, so nothing of ours stands between. Since the questions
are the same, the standard error of the difference is that of paired answers. Writes language_ability.json and
language_ability.md. Needs the extra `lm-eval`; the tasks named by default are fetched from the Hugging Face hub.
"""

from __future__ import annotations

import json
import logging
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, NamedTuple

import typer
from rich.table import Table

from benchmarks.environment import describe_machine
from benchmarks.language_changes import Change, changes
from benchmarks.runner.errors import BenchmarkError
from benchmarks.runner.files import write_bytes
from lang_envs.cli.common import console
from lang_envs.errors import MissingExtraError, install_command

__all__ = ["TASKS", "LanguageAbilityError", "Models", "compare", "language_ability", "markdown", "models_of"]

TASKS = ("arc_challenge", "hellaswag", "piqa", "mmlu")
"""Those of the POAD paper, as the harness names them."""


class LanguageAbilityError(BenchmarkError, ValueError):
    """A comparison that cannot be made as asked."""


class Models(NamedTuple):
    """Two models, as the harness loads them.

    Attributes:
        before: `model_args` of the base model.
        after: Of what was trained.
        about: What was trained, for the report.
    """

    before: Mapping[str, Any]
    after: Mapping[str, Any]
    about: Mapping[str, Any]


# ---------------------------------------------------------------------- the models


def models_of(checkpoint: Path, scratch: Path) -> Models:
    """The base model of a checkpoint, and what was trained.

    Args:
        checkpoint: A checkpoint, the folder of a run, or an adapter that `poad export` has written.
        scratch: An empty folder, where the adapter of a checkpoint is put.

    Raises:
        PoadError: If it cannot be loaded or exported.
        LanguageAbilityError: If it is an export of a whole model, which knows no base model.
    """
    from poad_sb3.export_folder import MANIFEST, read_manifest, require_whole

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
    told = {name: about[name] for name in ("base", "revision", "dtype", "algorithm", "num_timesteps", "kind")}
    return Models(before, {**before, **trained}, {"checkpoint": str(checkpoint), **told})


def _exported(checkpoint: Path, folder: Path) -> Path:
    from peft import PeftModel

    from poad_sb3.export import export_policy
    from poad_sb3.loading import find_checkpoint, load_checkpoint

    model = load_checkpoint(find_checkpoint(checkpoint)[0], device="cpu")
    policy = getattr(model, "policy", None)
    has_adapter = isinstance(getattr(getattr(policy, "lm", None), "network", None), PeftModel)
    return export_policy(model, folder, merge=not has_adapter).folder


# ---------------------------------------------------------------------- the harness


def _harness() -> ModuleType:
    """lm-eval.

    Raises:
        MissingExtraError: If it is not installed.
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
    """Let both models answer.

    Args:
        models: From `models_of`.
        tasks: Names of tasks and groups of the harness.
        limit: The first questions only, of each task.
        include: Folder of further tasks (YAML).
        few_shot: Examples before each question; those of the task if None.
        batch_size: Questions at a time.
        device: Torch device, or `"auto"`.

    Raises:
        MissingExtraError: If the harness is not installed.
        LanguageAbilityError: If it has no such task, or stops at something that cannot be had.
    """
    from stable_baselines3.common.utils import get_device

    harness, place = _harness(), str(get_device(device))
    manager = import_module("lm_eval.tasks").TaskManager(include_path=None if include is None else str(include))
    unknown = [name for name in tasks if not manager.match_tasks([name])]
    if unknown or not tasks:
        raise LanguageAbilityError(
            f"Expected tasks that the harness knows; got {', '.join(unknown) or 'none'}. "
            "Fix: see `lm-eval ls tasks`, or name the folder of your own with --include."
        )

    answers = partial(
        harness.simple_evaluate,
        model="hf",
        tasks=list(tasks),
        num_fewshot=few_shot,
        batch_size=batch_size,
        device=place,
        limit=limit,
        task_manager=manager,
        bootstrap_iters=1_000,
    )
    try:
        return list(changes(*(answers(model_args=dict(one)) for one in (models.before, models.after))))
    except (OSError, ConnectionError) as error:  # a model or a data set that is not here
        raise LanguageAbilityError(
            f"Expected the models and the questions of {', '.join(tasks)}; got {type(error).__name__}: "
            f"{str(error)[:300]}. Fix: fetch them where there is a network, or use --include with tasks of your own."
        ) from error


# ---------------------------------------------------------------------- the report


def _shown(pair: tuple[float, float | None], *, signed: bool = False) -> str:
    value, error = pair
    return f"{value:{'+' if signed else ''}.4f}" + ("" if error is None else f" ± {error:.4f}")


_HEAD = ("task", "metric", "questions", "before", "after", "difference")


def _rows(found: Sequence[Change]) -> list[tuple[str, ...]]:
    return [
        (one.task, one.metric, str(one.n), _shown(one.before), _shown(one.after), _shown(one.difference, signed=True))
        for one in found
    ]


def markdown(found: Sequence[Change], content: Mapping[str, Any]) -> str:
    """The report as text."""
    about, settings = content["trained"], content["settings"]
    lines = ["| " + " | ".join(row) + " |" for row in (_HEAD, ["---"] * len(_HEAD), *_rows(found))]
    unpaired = ", ".join(dict.fromkeys(one.task for one in found if not one.paired))
    rest = "" if settings["limit"] is None else f" Only the first {settings['limit']} questions of each task."
    rest += f" Not paired, hence too large: {unpaired}." if unpaired else ""
    return (
        "# Language ability before and after training\n\n"
        f"`{about['base']}` before, and after {about['num_timesteps']} environment steps of {about['algorithm']} "
        f"(`{about['checkpoint']}`).\n\n" + "\n".join(lines) + "\n\n"
        f"± is one standard error; that of the difference is over paired answers.{rest} lm-eval {content['lm_eval']}, "
        f"{content['seconds']} s, `{content['command']}`.\n"
    )


def _table(found: Sequence[Change]) -> Table:
    table = Table(*_HEAD, box=None)
    for row in _rows(found):
        table.add_row(*row)
    return table


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
    settings = {"tasks": names, "limit": limit, "few_shot": few_shot, "batch_size": batch_size}
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="poad-export-") as scratch:
        models = models_of(checkpoint, Path(scratch))
        options: dict[str, Any] = {"limit": limit, "few_shot": few_shot, "batch_size": batch_size, "device": device}
        found = compare(models, names, include=include, **options)
    content = {
        **describe_machine(),
        "lm_eval": metadata.version("lm-eval"),
        "settings": settings,
        "trained": dict(models.about),
        "seconds": round(time.perf_counter() - started, 1),
        "changes": [one._asdict() for one in found],
    }
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    written = [write_bytes(out / "language_ability.json", f"{text}\n".encode())]
    written.append(write_bytes(out / "language_ability.md", markdown(found, content).encode()))
    console().print(_table(found))
    for path in written:
        console().print(f"  {path}", markup=False, highlight=False, soft_wrap=True)
