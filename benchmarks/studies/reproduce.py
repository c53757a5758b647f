"""`python -m benchmarks reproduce ID`: run committed results again and compare."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from benchmarks.errors import StudyError
from benchmarks.files import RESULTS
from benchmarks.studies.engine.jobs import (
    Cloning,
    CodingJob,
    Evaluation,
    Job,
    PresetJob,
    TaskJob,
    TrainingJob,
    WarmStartJob,
)
from benchmarks.studies.engine.pieces import COST, STUDIES, Pieces, identifier
from lang_bench.runner.machine import describe_machine
from lang_envs.cli.common import console

TIMES = frozenset({"cpu_seconds", "seconds"})
"""Fields of a result that differ from run to run."""
_FIRST = RESULTS / "first_studies.json"


def identifiers(folder: Path = STUDIES) -> dict[str, list[str]]:
    """Return the names of pieces by id: `STUDY/TASK/METHOD`, `STUDY/beside`, `STUDY/runs`, and `first/...`."""
    pieces_of: dict[str, list[str]] = {}
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        of_tasks = [(comparison["task"], comparison["methods"]) for comparison in content.get("comparisons", ())]
        of_tasks += [(name, table["methods"]) for name, table in content.get("tables", {}).items()]
        of_tasks += [("trainings", content["trainings"])] if "trainings" in content else []
        for task, methods in of_tasks:
            for method, summary in methods.items():
                pieces_of[identifier(content["study"], task, method)] = list(summary.get("runs", {}).values())
        pieces_of[identifier(content["study"], "beside")] = list(content.get("beside_runs", ()))
        pieces_of[identifier(content["study"], "runs")] = list(content.get("runs", ()))
    first = json.loads(_FIRST.read_text(encoding="utf-8")) if folder == STUDIES else {}
    return {name: names for name, names in {**pieces_of, **first}.items() if names}


def find_pieces(wanted: str, folder: Path = STUDIES) -> list[str]:
    """Return the names of the pieces of an id: one that begins with it whole, part by part, or a piece of that name.

    Raises:
        StudyError: If there are no such pieces.
    """
    names_of, wanted = identifiers(folder), wanted.rstrip("/")
    names = [name for id_, of_id in names_of.items() if f"{id_}/".startswith(f"{wanted}/") for name in of_id]
    if wanted and "/" not in wanted and Pieces(folder / "pieces").read(wanted) is not None:
        names = [wanted]
    study = wanted.partition("/")[0]
    if not names and (folder / f"{study}.json").exists():
        results = ", ".join(id_ for id_ in names_of if id_.startswith(f"{study}/")) or "none yet"
        raise StudyError(f"Expected a result of {study} that has runs: {results}; got {wanted!r}. Fix: one of these.")
    if not names:
        near = ", ".join(dict.fromkeys(id_.partition("/")[0] for id_ in names_of))
        raise StudyError(f"Expected the id of a result; got {wanted!r}. Fix: one that begins with {near}, or a piece.")
    return list(dict.fromkeys(names))


def job_of(settings: Mapping[str, Any]) -> Job:
    """Make the job that the settings of a piece describe.

    Raises:
        StudyError: If no kind of job has such settings, or the base model or the format of results has changed.
    """
    from benchmarks.studies.credit_truth.measuring import TruthJob
    from benchmarks.studies.credit_truth.trainings import CriticNoiseJob
    from benchmarks.studies.key_credit import KeyCreditJob
    from benchmarks.studies.remedies import RemedyJob
    from benchmarks.studies.values_inside import ExactValuesJob

    trainings = (KeyCreditJob, CriticNoiseJob, PresetJob, WarmStartJob, RemedyJob, ExactValuesJob, TrainingJob)
    for kind in (*trainings, CodingJob, TaskJob, TruthJob):  # a kind with more fields first
        names = [field.name for field in fields(kind)]
        if set(names) <= settings.keys():
            hints = get_type_hints(kind)
            job: Job = kind(**{name: _as(hints[name], settings[name]) for name in names})
            if job.settings != dict(settings):
                raise StudyError(
                    f"Expected the settings of {job} as they would be now; got others: the base model or the format of "
                    "results has changed. Fix: the commit that the piece records."
                )
            return job
    raise StudyError(f"Expected the settings of a run; got {', '.join(settings)}. Fix: another piece.")


def _as(hint: Any, value: Any) -> Any:
    """Return a value that JSON has read as it was: lists as tuples, a record from its fields."""
    if value is not None and hint in (Evaluation, Cloning, Cloning | None):
        kind: Any = Evaluation if hint is Evaluation else Cloning
        return kind(**{name: tuple(part) if isinstance(part, list) else part for name, part in value.items()})
    return tuple(value) if isinstance(value, list) and "tuple" in str(hint) else value


def differences(recorded: Mapping[str, Any], repeated: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each recorded field that came out otherwise; times are left out."""
    read_back, sentences = json.loads(json.dumps(repeated)), []
    for name in sorted(recorded.keys() - TIMES):
        if recorded[name] == read_back.get(name):
            continue
        first, second = (
            value if isinstance(value, list) else [value] for value in (recorded[name], read_back.get(name))
        )
        pairs = list(zip(first, second, strict=False))
        if len(first) != len(second) or not all(isinstance(value, int | float) for pair in pairs for value in pair):
            sentences.append(f"{name} differs")
            continue
        largest = max(abs(x - y) for x, y in pairs)
        verb = "differs"
        if name == "returns":
            verb = f"part at step {recorded['steps'][next(number for number, (x, y) in enumerate(pairs) if x != y)]:,},"
        sentences.append(f"{name} {verb} by {largest:.3g} at most")
    return sentences


def same_machine(recorded: Mapping[str, Any], machine: Mapping[str, Any]) -> list[str]:
    """Return the facts in which the machine of a piece differs as far as results depend on it."""
    differences = []
    for name in ("cpu", "cpu_capability"):
        if name in recorded and recorded[name] != machine.get(name):
            differences.append(f"{name.replace('_', ' ')} {recorded[name]}, here {machine.get(name)}")
    if "cpu_capability" not in recorded:
        differences.append(f"unrecorded cpu capability, here {machine.get('cpu_capability')}")
    for package, version in recorded.get("versions", {}).items():
        if package in ("torch", "numpy", "transformers", "peft") and machine["versions"].get(package) != version:
            differences.append(f"{package} {version}, here {machine['versions'].get(package)}")
    return differences


def reproduce(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID", help="As on the site: STUDY, STUDY/TASK, STUDY/TASK/METHOD, a piece."),
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="Show the runs of the ids, or all ids; run none.")] = False,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where reports are, and pieces below.")] = STUDIES,
) -> None:
    """Run results of the site again and compare them; exit status 1 where one differs. Without an ID, list all."""
    import torch

    if not ids:
        for name, names in identifiers(out).items():
            console().print(f"{name}  {len(names)} runs", highlight=False, soft_wrap=True)
        return
    torch.set_num_threads(1)  # as in every run
    machine, parted = describe_machine(), 0
    names, pieces = list(dict.fromkeys(name for id_ in ids for name in find_pieces(id_, out))), Pieces(out / "pieces")
    for number, name in enumerate(names, 1):
        if show:
            console().print(name, highlight=False)
            continue
        piece = pieces.read(name)
        if piece is None:
            raise StudyError(f"Expected a piece {name} in {pieces.folder}; got none. Fix: restore it from git.")
        job = job_of(piece["settings"])
        seconds, commit = piece["measured"].get(COST), str(piece["measured"].get("commit", "unknown"))[:8]
        made = f"made at commit {commit}" + (f" in {seconds:.0f} s" if seconds else "")
        console().print(f"{number} of {len(names)}: {job}; {made}", markup=False, highlight=False, soft_wrap=True)
        result = job.run()
        parts = differences(piece["result"], result)
        parted += bool(parts)
        if parts and (others := same_machine(piece["measured"], machine)):
            parts.insert(0, f"made with {'; '.join(others)}: floating-point sums are rounded otherwise there")
        for line in parts or ["equal bit for bit, times left out"]:
            console().print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
    if not show:
        console().print(f"{len(names) - parted} of {len(names)} equal.", highlight=False)
    if parted:
        raise typer.Exit(1)
