"""Reports of results files: their episodes, and their runs with settings and provenance."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lang_envs.redaction import flat_facts, without_private
from lang_envs.report.data import Run
from lang_envs.report.results import Results, read_results, steps_file

__all__ = ["episodes_of", "read_run", "run_of", "task_of"]

_MACHINE = ("command", "commit", "cpu", "cpu_capability", "threads", "cores", "python")


def read_run(path: Path) -> tuple[Run, list[dict[str, Any]]]:
    """Read a results file for a report.

    Args:
        path: Path `NAME.jsonl` of the results file; its steps are read from `NAME.steps.jsonl` if that exists.

    Returns:
        The run, and its episodes as `Report.episodes` has them.

    Raises:
        ReportError: If the file cannot be read or is not valid, as in `read_results`.
    """
    results = read_results(path)
    return run_of(results, path), episodes_of(results, path)


def run_of(results: Results, path: Path) -> Run:
    """Return the run of a results file: agent, settings, environments, machine and checksums."""
    header = results.header
    facts = {name: str(header[name]) for name in _MACHINE if header.get(name) is not None}
    agent = {name: value for name, value in header["agent"].items() if name not in ("name", "incidental")}
    parts = {
        "agent": agent,
        "environments": ", ".join(env["id"] for env in header["envs"]),
        "environment": header.get("env_settings") or {},
        "episodes of each seed": header["episodes"],
        "seeds": ", ".join(map(str, header["seeds"])),
        "version": header.get("versions") or {},
    }
    for name, value in parts.items():
        facts |= dict(flat_facts(name, value))
    facts = {key: without_private(text) for key, text in facts.items()}
    files = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in (path, steps_file(path)) if file.exists()
    }
    expected = header["episodes"] * len(header["seeds"]) * len(header["envs"])
    missing = (
        ""
        if header.get("training") or len(results.episodes) == expected
        else (f"{len(results.episodes)} of {expected} episodes are in {path.name}; the command of the run resumes.")
    )
    return Run(without_private(header["agent"]["name"]), facts, files, missing)


def episodes_of(results: Results, path: Path) -> list[dict[str, Any]]:
    """Return the episodes of a results file with task, header and the command that plays them again."""
    header = results.header
    credit = (results.steps_header or {}).get("credit")
    episodes = []
    for episode in results.episodes:
        steps = episode["steps_list"]
        identity = f"{episode['env']}/{episode['seed']}/{episode['episode']}"
        if episode.get("training_steps") is not None:
            identity += f"@{episode['training_steps']}"
        episodes.append(
            {
                **episode,
                "agent": without_private(header["agent"]["name"]),
                "task": task_of(header, episode["env"]),
                "header": header,
                "credit": credit,
                "steps_list": steps and [_published(step) for step in steps],
                "replay": shlex.join(["lang-envs", "replay", path.name, identity]) if steps else None,
            }
        )
    return episodes


def task_of(header: Mapping[str, Any], env_id: str) -> str:
    """Return the name of a task: the id, and arguments other than registered."""
    settings = header.get("env_settings") or {}
    arguments = ", ".join(f"{name}={value}" for name, value in settings.items())
    return without_private(f"{env_id} ({arguments})") if settings else env_id


def _published(step: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a step without private parts in its error, which may name files."""
    return {**step, "error": without_private(step["error"])} if step.get("error") else step
