"""The page of agents names the existing ones, and its commands parse."""

from __future__ import annotations

import inspect
import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.agents import KINDS, registry
from benchmarks.agents.caafe import CLASSIFIERS

PAGE = (Path(__file__).parents[3] / "docs/guide/agents.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^python -m benchmarks run (.*)$", PAGE, re.MULTILINE)


def test_every_kind_is_in_the_table_with_its_extra() -> None:
    rows = re.findall(r"^\| `([a-z]+)(?::[A-Z]+)?` \|.*\| (?:`(\w+)`)? ?\|$", PAGE.split("## Kinds")[1], re.MULTILINE)
    told = dict(rows[: len(KINDS)])
    assert list(told) == list(KINDS)
    assert all(told[name] == kind.extra for name, kind in KINDS.items() if kind.extra)


def test_every_kind_has_a_command() -> None:
    assert {_option(command, "--agent")[0].partition(":")[0] for command in COMMANDS} >= set(KINDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_settings_of_a_command_are_known(command: str) -> None:
    (spec,) = _option(command, "--agent")
    given = {one.partition("=")[0] for one in _option(command, "--agent-set")}
    module, _, name = spec.partition(":")
    if module in KINDS:
        assert given <= _settings(spec)
    else:  # an agent of the reader's own, shown on the page
        assert f"# {module}.py" in PAGE
        assert f"def {name}(" in PAGE or f"class {name}(" in PAGE


@pytest.mark.parametrize("name", ["checkpoint", "untrained", "hf", "openai", "react", "caafe", "scripted", "coder"])
def test_every_setting_of_a_kind_is_explained(name: str) -> None:
    heading = next(line for line in re.findall(r"^### (.*)$", PAGE, re.MULTILINE) if name in line.split(", "))
    section = re.split(r"^##+ ", PAGE.partition(f"### {heading}\n")[2], flags=re.MULTILINE)[0]
    prose = re.sub(r"^```.*?^```$", "", section, flags=re.MULTILINE | re.DOTALL)
    told = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", prose))))
    assert _settings(name) <= told


def test_every_classifier_of_caafe_is_named() -> None:
    sentence = PAGE.partition("<!-- classifiers -->")[2].partition(".")[0]
    assert re.findall(r"`(\w+)`", sentence) == list(CLASSIFIERS)


def _option(command: str, name: str) -> list[str]:
    words = shlex.split(command)
    return [value for word, value in pairwise(words) if word == name]


def _settings(spec: str) -> set[str]:
    """Of a kind, and of the agent inside it."""
    name, _, inner = spec.partition(":")
    parameters = inspect.signature(registry._factory(KINDS[name])).parameters.values()
    own = {one.name for one in parameters if one.kind is one.KEYWORD_ONLY}
    wraps = KINDS[name].argument == "SPEC"
    return own | (_settings(inner) if wraps and inner else set())
