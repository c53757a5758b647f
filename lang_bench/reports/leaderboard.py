"""The leaderboard: one small file for each agent, source of the site's page."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lang_bench.runner.errors import ResultFileError
from lang_bench.runner.lines import file_name
from lang_bench.runner.results import METRICS, Cell, is_same_agent, normalised
from lang_envs.files import write_json
from lang_envs.report.schemas import WrongValueError, compile_schema

FOLDER = Path(__file__).parents[2] / "data" / "leaderboard"
"""The committed entries of a checkout."""
_DIGITS = 6
_AGENT = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
_check_entry = compile_schema(
    {"type": "object", "required": ["agent", "tasks"], "properties": {"agent": _AGENT, "tasks": {"type": "object"}}}
)
_MEASURED = ("command", "cpu", "cores", "python", "versions", "episodes", "seeds")


def add(cells: Iterable[Cell], *, replace: bool = False, folder: Path | None = None) -> list[Path]:
    """Put agents on the leaderboard; tasks that an agent has there already are refused, or replaced.

    Args:
        cells: Complete results of the agents.
        replace: Whether to replace tasks that are on the leaderboard already, and an agent of the same name with other
            settings together with all its tasks.
        folder: Folder of the leaderboard files; the committed one by default.

    Returns:
        Paths of the written files.

    Raises:
        ResultFileError: If episodes are missing, the environments have other arguments than registered, or something
            is there already.
    """
    folder = folder or FOLDER
    by_agent: dict[str, list[Cell]] = {}
    for cell in cells:
        _check(cell)
        by_agent.setdefault(cell.agent, []).append(cell)
    files = {file_name(agent) for agent in by_agent}
    if len(files) < len(by_agent):
        raise ResultFileError(
            f"Expected agents whose names make files of their own; got {sorted(by_agent)}. Fix: another --label."
        )
    drafts = {
        folder / f"{file_name(agent)}.json": _entry(folder / f"{file_name(agent)}.json", chosen, replace=replace)
        for agent, chosen in by_agent.items()
    }
    return [write_json(path, entry) for path, entry in drafts.items()]


def entries(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """Return the entries of all agents on the leaderboard."""
    return [_read(path) for path in sorted(folder.glob("*.json"))]


def _read(path: Path) -> dict[str, Any]:
    try:
        entry: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        _check_entry(entry)
    except (OSError, ValueError, RecursionError, WrongValueError) as error:
        raise ResultFileError(
            f"Expected an entry of the leaderboard in {path}; it cannot be read ({error}). Fix: restore or remove it."
        ) from error
    return entry


def _check(cell: Cell) -> None:
    if missing := [name for name in _MEASURED if name not in cell.header]:
        raise ResultFileError(
            f"Expected {', '.join(_MEASURED)} in the first line of the file of {cell.agent}; got none of "
            f"{', '.join(missing)}. Fix: measure with `lang-bench run`."
        )
    if not cell.is_complete:
        raise ResultFileError(
            f"Expected {cell.expected} episodes of {cell.agent} on {cell.env}; got {len(cell.episodes)}. "
            "Fix: give the command of the run again; it resumes."
        )
    settings = dict(cell.header["env_settings"])
    if settings:
        raise ResultFileError(
            f"Expected the task as registered; {cell.agent} played {cell.env} with {settings}. "
            "Fix: run it without --env-set."
        )


def _entry(path: Path, cells: Sequence[Cell], *, replace: bool) -> dict[str, Any]:
    agent = dict(cells[0].header["agent"])
    agents = [cell.header["agent"] for cell in cells]
    for cell in cells[1:]:
        _require_same_agent(agent, cell.header["agent"], cell.env)
    tasks: dict[str, Any] = {}
    if path.exists():
        present = _read(path)
        if present["agent"]["name"] != agent["name"]:
            raise ResultFileError(
                f"Expected an agent whose name makes a file of its own; {path.name} is that of "
                f"{present['agent']['name']!r}, not of {agent['name']!r}. Fix: run this one with another --label."
            )
        try:
            _require_same_agent(present["agent"], agent, path.name)
            tasks, agents = present["tasks"], [present["agent"], *agents]
        except ResultFileError:
            if not replace:
                raise
    repeated = [cell.env for cell in cells if cell.env in tasks]
    if repeated and not replace:
        raise ResultFileError(
            f"Expected tasks that {agent['name']} is not on the leaderboard with; got {', '.join(repeated)}. "
            "Fix: pass --replace to `submit`, or another --label to `run`."
        )
    if "settings_by_seed" in agent:
        agent["settings_by_seed"] = {
            seed: settings for record in agents for seed, settings in record["settings_by_seed"].items()
        }
    tasks |= {cell.env: _task(cell) for cell in cells}
    return {"agent": agent, "tasks": dict(sorted(tasks.items()))}


def _require_same_agent(entry: Mapping[str, Any], agent: Mapping[str, Any], where: str) -> None:
    if not is_same_agent(entry, agent):
        raise ResultFileError(
            f"Expected one agent by the name {entry['name']!r}: {dict(entry)}; got {dict(agent)} in {where}. "
            "Fix: run one of them with another --label, or pass --replace to `submit`."
        )


def _task(cell: Cell) -> dict[str, Any]:
    """Return the scores by seed, so that intervals can be computed again, over any tasks."""
    scores = {name: [round(float(value), _DIGITS) for value in cell.scores(name)] for name in METRICS}
    score = normalised(cell)
    if score is not None:
        scores["score"] = [round(float(value), _DIGITS) for value in score]
    return {
        "scores": {name: values for name, values in scores.items() if values},
        **{name: cell.header[name] for name in _MEASURED},
        "data": next((episode["data"] for episode in cell.episodes if "data" in episode), None),
    }
