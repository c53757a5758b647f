"""Every `python` block of the documentation runs. Blocks marked `py` (they need a network) are shown only."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

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


@pytest.mark.matrix_after(1)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = ModuleType("docs_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # classes of a page can be pickled, as in a script
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        line = page.read_text(encoding="utf-8")[: block.start(1)].count("\n")
        short = block[1].replace("10_000", "128").replace("1024", "256")  # a whole training would take a minute or more
        exec(compile("\n" * line + short, str(page), "exec"), vars(module))


def test_every_logged_metric_is_explained(tmp_path: Path) -> None:
    from stable_baselines3.common.logger import Logger

    from poad_sb3 import POAD

    seen: set[str] = set()

    class Names(Logger):
        def record(self, key, value, exclude=None):
            seen.add(key)

    model = POAD("LLMPolicy", "Overcooked-TomatoSalad-v0", n_steps=128, n_epochs=1, seed=0)
    model.set_logger(Names(None, []))
    model.learn(256)
    explained = set(
        re.findall(
            r"^\| `((?:train|rollout|time)/\w+)` \|",
            (ROOT / "docs/algorithms/poad.md").read_text(encoding="utf-8"),
            re.MULTILINE,
        )
    )
    assert seen == explained


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
    for key in info:
        assert re.search(rf"^\| `{key}` \|", page + contract, re.MULTILINE), f"{key} is not explained"
    assert f"generated: ids {family}" in page


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    pytest.importorskip("griffe", reason="the extra docs is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "docs")
        import _pages

        return _pages


SMALL_IDS = [
    row.id
    for row in ENV_ROWS
    if row.id.startswith(("VirtualHome", "DataSciCoding", "KeyToken", "MultiKey"))
    or row.id == "Overcooked-TomatoSalad-v0"
]
"""Ids whose situations are few enough to go through in a test; the site's build goes through all."""


@pytest.mark.parametrize("env_id", SMALL_IDS)
def test_the_generated_page_of_an_id(env_id: str, pages: ModuleType) -> None:
    row = next(row for row in ENV_ROWS if row.id == env_id)
    text = pages.page(row)
    assert text.startswith(f"# {env_id}\n\n{row.summary}")
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert headings == [
        "Make it",
        "At a glance",
        "Description",
        "First observation",
        "Actions",
        "Rewards",
        "Start and end",
        "Oracle",
        "Scores",
        "Arguments",
        "Checked against",
        "Version history",
    ]
    assert all(part.strip() for part in re.split(r"^## .*$", text, flags=re.MULTILINE))
    assert not re.search(r"(?<!or )\bNone\b(?![,`)]| or| on failure| for a table)|\bnan\b|<lang_envs|object at", text)
    for block in BLOCK.finditer(text):
        exec(block[1], {})


# ---------------------------------------------------------------------- methods


def test_every_method_is_compared_and_has_its_defaults_on_a_page(pages: ModuleType) -> None:
    import _tables

    from poad_sb3.presets import ALGORITHMS

    folder = ROOT / "docs/algorithms"
    compared = (folder / "estimators.md").read_text(encoding="utf-8")
    names = re.findall(r"^\| \[([\w, ]+)\]\(\w+\.md\) \|", compared, re.MULTILINE)
    assert sorted(", ".join(names).split(", ")) == sorted(ALGORITHMS)
    with_pages = set(ALGORITHMS) - {"POAD", "NTPO", "TWOSOME", "ARCHER", "GLAM"}
    text = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.md"))
    assert set(re.findall(r"generated: method-defaults (\w+)", text)) == with_pages
    defaults = {name: re.findall(r"^\| `(\w+)` \|", _tables.method_defaults(name), re.MULTILINE) for name in with_pages}
    assert defaults["TurnPPO"] == ["gamma", "gae_lambda", "credit_level"]
    assert all(defaults.values())
    rows = dict(re.findall(r"^\| (\w+) \| (.*) \|$", _tables.credit_choices(), re.MULTILINE))
    assert set(rows) == {"method", *ALGORITHMS}
    rloo = ["episode", "`episode_return`", "`group`, `leave_one_out`", "`none`", "`sequence_product`", "`mean`"]
    assert rows["RLOO"].split(" | ") == rloo


@pytest.mark.usefixtures("pages")
def test_a_template_in_a_page_becomes_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    import _tables

    one = {"share": 0.5, "runs": [1, 2]}
    content = {"command": "measure it", "cpu": "none", "cores": 1, "python": "3", "versions": {}, "cases": {"a": one}}
    monkeypatch.setattr(_tables, "result", lambda name: content)
    text = _tables.filled(
        "x", "cases", "| | share | runs |\n| `{name}` | {share:.0%} | {runs!n} |\n\nBy `{command}`.\n"
    )
    assert text == "|  | share | runs |\n| --- | ---: | ---: |\n| `a` | 50% | 2 |\n\nBy `measure it`."
    with pytest.raises(KeyError):
        _tables.filled("x", "cases", "| |\n| {nothing} |\n")


@pytest.mark.usefixtures("pages")
def test_the_leaderboard_marks_known_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    import _results

    text = _results.leaderboard_tasks("DataSciCoding")
    notes = dict(re.findall(r"^([†‡§¶]) (.*)$", text, re.MULTILINE))
    marked = dict(re.findall(r"\[(DataSciCoding-\S+)\]\(\S+\)([†‡§¶])", text))
    assert "bundled with scikit-learn" in notes[marked["DataSciCoding-iris-v0"]]
    assert "given by a formula" in notes[marked["DataSciCoding-balance-scale-v0"]]
    assert set(notes) == set(marked.values())
    assert not re.search("^[†‡§¶]", _results.leaderboard_tasks("Overcooked"), re.MULTILINE)


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


def test_every_command_and_option_of_the_command_line_is_explained() -> None:
    page = (ROOT / "docs/guide/command_line.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"^\| `(--[\w-]+)` \| `(\w+(?: \w+)?)` \|", page, re.MULTILINE))
    options = {
        (name, command) for command, one in _commands().items() for parameter in one.params for name in parameter.opts
    }
    assert explained == {(name, command) for name, command in options if name.startswith("--") and name != "--help"}
    assert set(re.findall(r"^\| `lang-envs ([a-z -]*[a-z])", page, re.MULTILINE)) == set(_commands())


PAGES_WITH_COMMANDS = (
    "README.md",
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


# ---------------------------------------------------------------------- the README


@pytest.mark.usefixtures("pages")
def test_the_readme_shows_the_recorded_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    import _studies

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = _studies.claims_summary()
    assert table in readme, f"results have changed; put this table into README.md:\n{table}"


def test_the_numbers_of_the_picture_are_computed_credits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra bench is not installed")
    monkeypatch.syspath_prepend(ROOT / "docs")
    import _picture

    action, naive, bad = _picture.credits()
    assert action.advantages == pytest.approx([-0.25] * 8)  # reward 0, and a value of (1/2) (1/2) 1
    assert bad.advantages == pytest.approx([0, 0, 0.25, 0, 0, 0, -0.5, 0])  # 0.5 - 0.25 and 0 - 0.5
    assert naive.advantages == pytest.approx([0, 0, 0.25 * 0.95**5, 0, 0, 0, -0.5 * 0.95, 0])
    assert bad.total == pytest.approx(action.total)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    knife, onion = (f"{naive.advantages[place]:+.2f}" for place in (2, 6))
    assert f"Naive token level: knife {knife}, onion {onion}, others 0, sum {naive.total:+.2f}." in readme
    _picture.draw(tmp_path / "credit.svg", _picture.THEMES["light"])
    assert (tmp_path / "credit.svg").stat().st_size > 10_000


@pytest.mark.parametrize("name", ["README.md", "examples/README.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_the_links_to_files_lead_somewhere(name: str) -> None:
    page = ROOT / name
    links = re.findall(r"(?:\]\(|srcset=\"|src=\")(?!https?:|#)([^)\"#]+)", page.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (page.parent / link).exists()] == []
