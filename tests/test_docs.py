"""Every `python` block of the documentation runs. Blocks marked `py` (they need a network) are shown only."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rows import first_rows

from lang_envs import ENV_ROWS

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = [
    path
    for path in dict.fromkeys(
        [ROOT / "README.md", ROOT / "docs/getting_started.md", *sorted(ROOT.glob("docs/**/*.md"))]
    )
    if BLOCK.search(path.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("page", first_rows(1, PAGES), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = ModuleType("docs_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # classes of a page can be pickled, as in a script
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        line = page.read_text(encoding="utf-8")[: block.start(1)].count("\n")
        short = block[1].replace("10_000", "128").replace("1024", "256")  # a whole training would take a minute or more
        exec(compile("\n" * line + short, str(page), "exec"), vars(module))


def _tests() -> dict[str, set[str]]:
    """Return the tests of each file."""
    return {
        path.name: set(re.findall(r"^def (test_\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE))
        for path in ROOT.glob("tests/**/test_*.py")
    }


def test_tests_that_pages_name_exist() -> None:
    tests = _tests()
    known, missing = set().union(*tests.values()), []
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")):
        page = path.read_text(encoding="utf-8")
        missing += [(path.name, file) for file in re.findall(r"`(tests/\S+\.py)`", page) if not (ROOT / file).exists()]
        missing += [(path.name, file) for file in re.findall(r"`(test_\w+\.py)`", page) if file not in tests]
        missing += [(path.name, name) for name in re.findall(r"`(test_\w+)`", page) if name not in known]
        for file, names in re.findall(r"`(?:tests/\S+/)?(test_\w+\.py)`\s+\(((?:`test_\w+`(?:,\s+)?)+)\)", page):
            missing += [(path.name, name) for name in re.findall(r"`(\w+)`", names) if name not in tests.get(file, ())]
    assert missing == []


# ---------------------------------------------------------------------- pages of environments


@pytest.mark.parametrize("family", sorted({row.id.partition("-")[0] for row in ENV_ROWS}))
def test_every_family_has_a_page_that_knows_its_info(family: str) -> None:
    import gymnasium as gym

    page = (ROOT / f"docs/environments/{family.lower()}.md").read_text(encoding="utf-8")
    contract = (ROOT / "docs/environments/contract.md").read_text(encoding="utf-8")
    env_id = next(row.id for row in ENV_ROWS if row.id.startswith(family))
    _, info = gym.make(env_id).reset(seed=0)
    section = page.partition("\n## `info`\n")[2]
    for key in info:
        assert re.search(rf"^\| `{key}` \|", section + contract, re.MULTILINE), (
            f"{key} has no row in the section `info`"
        )
    assert f"<!-- table: ids {family} -->" in page
    for contents in ("docs/environments/index.md", "mkdocs.yml"):
        assert f"{family.lower()}.md" in (ROOT / contents).read_text(encoding="utf-8"), f"{contents} lacks the page"


def test_the_readme_counts_the_tasks() -> None:
    assert f"[{len(ENV_ROWS)} text tasks]" in (ROOT / "README.md").read_text(encoding="utf-8")


# ---------------------------------------------------------------------- methods


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "docs")
    return importlib.import_module("tables")


def test_the_tables_of_the_pages_are_current(tables: ModuleType) -> None:
    assert [str(path) for path in tables.stale()] == [], "run: python docs/tables.py"
    for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]:
        markers = re.findall(r"^<!-- (table:|end)", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert markers == ["table:", "end"] * (len(markers) // 2), path


def test_a_template_in_a_page_becomes_a_table(tables: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"share": 0.5, "runs": [1, 2]}
    content = {"command": "measure it", "cpu": "none", "cores": 1, "python": "3", "versions": {}, "cases": {"a": row}}
    monkeypatch.setattr(tables, "result", lambda name: content)
    template = "| | share | runs |\n| `{name}` | {share:.0%} | {runs[1]} |\n\nBy `{command}`.\n"
    page = tables.written(f"Text\n<!-- table: records x cases\n{template}-->\nstale\n<!-- end -->\n")
    table = "|  | share | runs |\n| --- | ---: | ---: |\n| `a` | 50% | 2 |\n\nBy `measure it`."
    assert page == f"Text\n<!-- table: records x cases\n{template}-->\n\n{table}\n\n<!-- end -->\n"
    with pytest.raises(KeyError):
        tables.records("x", "cases", "| |\n| {nothing} |\n")


# ---------------------------------------------------------------------- the command line


def _commands() -> dict[str, Any]:
    import typer

    from lang_envs.cli.app import app

    found: dict[str, Any] = {}
    for name, command in typer.main.get_command(app).commands.items():
        inner = getattr(command, "commands", {})  # of a group
        found |= {f"{name} {one}": inner[one] for one in inner}
        if not inner or command.invoke_without_command:
            found[name] = command
    return found


PAGES_WITH_COMMANDS = (
    "docs/getting_started.md",
    "docs/guide/command_line.md",
    "docs/guide/data.md",
    "docs/guide/sandbox.md",
)


@pytest.mark.parametrize("page", PAGES_WITH_COMMANDS)
def test_the_command_lines_shown_are_understood(page: str) -> None:
    commands = _commands()
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = re.findall(r"^(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?lang-envs (.*?)(?:[#<].*)?$", text, re.MULTILINE)
    assert lines
    for line in lines:
        words = line.split()
        n = 2 if " ".join(words[:2]) in commands else 1  # a group may be a command of its own
        name = " ".join(words[:n])
        commands[name].make_context(name, words[n:])  # parses, and raises a usage error where it cannot


# ---------------------------------------------------------------------- pictures and links


def test_the_links_to_files_lead_somewhere() -> None:
    names = ("README.md", "examples/README.md", "CONTRIBUTING.md", "SECURITY.md")
    broken = []
    for page in [*(ROOT / name for name in names), *sorted(ROOT.glob("docs/**/*.md"))]:
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        links = re.findall(r"(?:\]\(|srcset=\"|src=\")(?!https?:|#)([^)\"#\s]+)", text)
        broken += [(page.name, link) for link in links if not (page.parent / link).exists()]
    assert broken == []
