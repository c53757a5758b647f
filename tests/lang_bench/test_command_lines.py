"""The command lines and options of `lang-bench run` that pages show."""

from __future__ import annotations

import inspect
import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
import typer

from lang_bench.agents import KINDS, registry
from lang_bench.app import app

DOCS = Path(__file__).parents[2] / "docs"
COMMANDS = typer.main.get_command(app).commands
LINES = [
    line
    for page in ("benchmarks.md", "guide/agents.md")
    for line in re.findall(r"^lang-bench (\w.*)$", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE)
]


@pytest.mark.parametrize("line", LINES)
def test_a_command_line_is_understood_with_its_agent(line: str) -> None:
    name, *words = shlex.split(line)
    COMMANDS[name].make_context(name, words)
    for spec in (value for word, value in pairwise(words) if word == "--agent" and value.partition(":")[0] in KINDS):
        settings = {value.partition("=")[0] for word, value in pairwise(words) if word == "--agent-set"}
        assert settings <= _settings(spec)


def _settings(spec: str) -> set[str]:
    """Return the settings of a kind, and of the agent inside it."""
    name, _, inner = spec.partition(":")
    parameters = inspect.signature(registry._factory(KINDS[name])).parameters.values()
    wraps = KINDS[name].argument == "SPEC"
    settings = {parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}
    return settings | (_settings(inner) if wraps and inner else set())
