"""The report of a folder: every results file and every training in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.reports.html_report import report_of_cells
from benchmarks.runner.errors import BenchmarkError, ResultFileError
from benchmarks.runner.results import Cell, with_file
from lang_envs.report import Report, ReportError, read_run
from poad_sb3.common.episode_lines import FORMAT
from poad_sb3.errors import PoadError
from poad_sb3.runs.reporting import report_of_runs

__all__ = ["report_of_folder", "results_files", "run_folders", "watched_files"]

_HEADER_BYTES = 1 << 20
_OF_RUN = ("progress.csv", "episodes.jsonl")
_WATCHED = ("*.jsonl", "progress.csv", "config.json")


def report_of_folder(folder: Path) -> Report:
    """Return the report of all results files and trainings in a folder and its folders.

    Files that cannot be read are left out, and named.

    Raises:
        BenchmarkError: If there are neither results files nor trainings.
    """
    title = folder.resolve().name
    cells: list[Cell] = []
    read, left_out = [], []
    for path in results_files(folder):
        try:
            results = read_run(path)  # the steps too, which cells do without
            cells = with_file(cells, path)
            read.append(results)
        except (ResultFileError, ReportError) as error:
            left_out.append(f"{path.relative_to(folder)} is left out. {error}")
    runs = run_folders(folder)
    try:
        trained = report_of_runs(runs, title)
    except (PoadError, ReportError):
        damaged = {path: error for path in runs if (error := _error_of_run(path))}
        left_out += [f"{path.relative_to(folder)} is left out. {error}" for path, error in damaged.items()]
        runs = [path for path in runs if path not in damaged]
        trained = report_of_runs(runs, title)
    if not read and not runs:
        got = " ".join(["none.", *left_out])
        raise BenchmarkError(f"Expected results files or trainings in {folder}; got {got} Fix: name another folder.")
    measured = report_of_cells(cells, read, title)
    return replace(
        measured,
        runs=[*measured.runs, *trained.runs],
        curves=trained.curves,
        episodes=[*measured.episodes, *trained.episodes],
        about=[*(measured.about if read else ()), *trained.about, *left_out],
        tables=[*measured.tables, *(trained.tables if runs else ())],
    )


def _error_of_run(path: Path) -> Exception | None:
    try:
        report_of_runs([path])
    except (PoadError, ReportError) as error:
        return error
    return None


def results_files(folder: Path) -> list[Path]:
    """Return the results files of `run`, without those of trainings."""
    return sorted(path for path in folder.rglob("*.jsonl") if path.is_file() and _is_measurement(path))


def run_folders(folder: Path) -> list[Path]:
    """Return the folders of `poad train`."""
    configs = sorted(folder.rglob("config.json"))
    return [path.parent for path in configs if any((path.parent / name).exists() for name in _OF_RUN)]


def watched_files(folder: Path) -> Iterator[Path]:
    """Yield the files that a report of the folder depends on."""
    return (path for pattern in _WATCHED for path in sorted(folder.rglob(pattern)) if path.is_file())


def _is_measurement(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            header = json.loads(file.readline(_HEADER_BYTES))
        except (ValueError, RecursionError):
            return False
    return isinstance(header, dict) and header.get("format") == FORMAT and not header.keys() & {"content", "training"}
