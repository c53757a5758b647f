"""The commands of `lang-bench`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from lang_bench.app import app
from lang_bench.reports import leaderboard
from lang_bench.runner.lines import read_lines

SMALL = ("--env", "KeyToken-v0", "--episodes", "2", "--seeds", "2")
THREE_LINES = """
def greedy(observation, info):
    actions = info["admissible_actions"]
    return actions[0]
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("board").mkdir()
    monkeypatch.setattr(leaderboard, "FOLDER", tmp_path / "board")


def _call(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})


def test_a_callable_of_three_lines_gets_onto_the_leaderboard_by_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_agents.py").write_text(THREE_LINES)
    monkeypatch.syspath_prepend(str(tmp_path))
    result = _call("run", "--agent", "my_agents:greedy", "--label", "greedy", *SMALL, "--leaderboard")
    assert result.exit_code == 0, result.output
    assert "4 episodes played" in result.stdout
    assert [entry["agent"]["name"] for entry in leaderboard.entries(tmp_path / "board")] == ["greedy"]
    assert len(list(read_lines(Path("runs/benchmarks/greedy.KeyToken-v0.jsonl")))) == 1 + 4


def test_the_same_command_plays_nothing_again_and_reports() -> None:
    command = ("run", "--agent", "random", *SMALL, "--out", "r.jsonl", "--env-set", "horizon=2")
    assert _call(*command).exit_code == 0
    assert "0 episodes played" in _call(*command).stdout
    files = [str(path) for path in sorted(Path().glob("*.jsonl"))]
    assert files == ["r.jsonl", "r.times.jsonl"]
    result = _call("report", *files)
    assert result.exit_code == 0
    assert Path("r/report.html").exists()


def test_invalid_actions_are_told_with_the_last_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_chatty.py").write_text("def agent(text):\n    return 'I would rather ' + 'sing ' * 40\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    command = ("run", "--agent", "my_chatty:agent", *SMALL, "--env-set", "horizon=2")
    told = _call(*command).stdout
    assert re.search(r"^(\d+) of \1 actions were invalid. Fix: --steps, with another --out", told, re.MULTILINE)
    told = _call(*command, "--steps", "--out", "r.jsonl").stdout
    assert re.search(r"actions were invalid; the last answer was 'I would rather (sing ){17}'\. Fix: read", told)
    assert "invalid." not in _call("run", "--agent", "random", *SMALL).stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("run", "--agent", "random", "--env", "Overcooked-TomatoSalat-v0"), "Did you mean Overcooked-TomatoSalad-v0"),
        (("run", "--agent", "randon", *SMALL), "lang-bench: Expected an agent as"),
        (("run", "--agent", "random", *SMALL, "--agent-set", "x"), "lang-bench: Expected --agent-set NAME=VALUE"),
        (("run", "--agent", "random", *SMALL, "--env-set", "hairizon=1"), "has no argument 'hairizon'"),
        (("run", "--agent", "random", *SMALL, "--episodes", "0"), "Expected 1 to 1,000,000 episodes; got 0"),
        (("run", "--agent", "random", *SMALL, "--out", "/proc/nowhere/x.jsonl"), "Expected a file that can be written"),
        (("run", "--agent", "random", *SMALL, "--out", "x.csv"), "ends in .jsonl"),
        (("report", "nowhere.jsonl"), "Expected a file that can be read; got nowhere.jsonl"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(arguments: tuple[str, ...], told: str) -> None:
    result = _call(*arguments)
    assert result.exit_code == 1
    assert told in result.stderr
    assert result.stderr.count("\n") == 1


def test_rejects_a_submission_that_disagrees_with_its_steps(tmp_path: Path) -> None:
    path = tmp_path / "random.jsonl"
    _call("run", "--agent", "random", *SMALL, "--steps", "--out", str(path))
    path.write_text(re.sub(r'"return":[^,]*', '"return":999', path.read_text(), count=1))
    result = _call("submit", str(path))
    assert result.exit_code == 1
    assert re.search(r"Expected \S+ as the steps give it in return of line 2 of .*; got 999", result.stderr)
    assert list(Path("board").iterdir()) == []


def test_what_the_leaderboard_will_not_take_is_refused_before_it_is_played() -> None:
    result = _call("run", "--agent", "random", *SMALL, "--env-set", "max_steps=3", "--leaderboard")
    assert result.exit_code == 1
    assert "Expected tasks as registered for the leaderboard" in result.stderr
    assert not Path("runs").exists()


def test_an_installed_package_has_no_leaderboard_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaderboard, "FOLDER", tmp_path / "site-packages/data/leaderboard")
    result = _call("run", "--agent", "random", *SMALL, "--leaderboard", "--out", "r.jsonl")
    assert result.exit_code == 1
    assert "the package is installed. Fix: `lang-bench submit` with --into DIR" in result.stderr
    assert not Path("r.jsonl").exists()
    _call("run", "--agent", "random", *SMALL, "--out", "r.jsonl")
    assert "Fix: --into DIR" in _call("submit", "r.jsonl").stderr
    assert _call("submit", "r.jsonl", "--into", "mine").exit_code == 0
    assert [path.name for path in Path("mine").iterdir()] == ["random.json"]


def test_an_agent_that_fails_is_shown_with_its_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_bad_agents.py").write_text("def shy(text):\n    raise KeyError('nothing to say')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    result = _call("run", "--agent", "my_bad_agents:shy", *SMALL)
    assert result.exit_code == 3
    assert "my_bad_agents.py" in result.stderr
    assert "KeyToken-v0, seed 0, episode 0" in result.stderr.splitlines()[-1]


@pytest.mark.process
def test_measuring_needs_no_torch(tmp_path: Path) -> None:
    """The extras bench and cli are enough for agents without a language model."""
    call = f"""
import sys
from lang_bench.app import app
app(["run", "--agent", "random", *{SMALL}], standalone_mode=False)
app(["report", "runs/benchmarks/random.jsonl"], standalone_mode=False)
sys.exit(bool(sys.modules.keys() & {{"torch", "transformers", "stable_baselines3", "peft"}}))
"""
    paths = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", call], cwd=tmp_path, env=paths, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert b"4 episodes played" in done.stdout
