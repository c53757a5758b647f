"""The page of the benchmark agrees with the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from benchmarks.app import app
from benchmarks.runner.lines import read_lines
from benchmarks.runner.plan import Plan
from benchmarks.runner.results import METRICS
from benchmarks.runner.session import measure
from lang_envs.report.results import steps_file

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")


def test_every_option_of_run_is_explained() -> None:
    command = typer.main.get_command(app).commands["run"]
    options = {name for parameter in command.params for name in parameter.opts if name != "--help"}
    assert set(re.findall(r"^\| `(--[\w-]+)` \|", PAGE, re.MULTILINE)) == options


@pytest.mark.parametrize("command", re.findall(r"^python -m benchmarks (\w.*)$", PAGE, re.MULTILINE))
def test_the_command_lines_shown_are_understood(command: str) -> None:
    name, *words = command.split()
    typer.main.get_command(app).commands[name].make_context(name, words)


def test_every_field_of_an_episode_and_of_a_step_is_explained(tmp_path: Path) -> None:
    measure(Plan("oracle", ("KeyToken-v0",), 1, 1, steps=True), tmp_path / "o.jsonl")
    *_, episode = read_lines(tmp_path / "o.jsonl")
    *_, step = read_lines(steps_file(tmp_path / "o.jsonl"))
    told = set(re.findall(r"`(\w+)`", PAGE))
    assert set(episode.record) | set(step.record) - {"step"} <= told


def test_every_metric_is_explained() -> None:
    section = PAGE.partition("## Metrics")[2]
    costs = {"requests", "prompt tokens", "completion tokens", "cost"}  # plain means of fields
    for metric in METRICS.values():
        assert metric.title in costs or re.search(rf"^\| [^|]*\b{metric.title}\b[^|]* \|", section, re.MULTILINE), (
            metric.title
        )
