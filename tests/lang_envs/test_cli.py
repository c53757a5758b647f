"""The command `lang-envs`: what it prints, and how it ends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from _walk import FAMILY_IDS, IDS
from PIL import Image
from typer.testing import CliRunner

from lang_envs import ENV_ROWS, TRAINING_IDS, UNSEEN_IDS, MissingExtraError, cli
from lang_envs.cli.app import app
from lang_envs.conformance import CHECKS
from lang_envs.wrappers import TextAction

FULL = "third_party:ThirdParty/FullDoors-v0"
Run = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in an empty folder; expects an exit code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def run(*arguments: str, code: int = 0, stdin: str | None = None) -> str:
        result = CliRunner().invoke(app, arguments, input=stdin)
        assert result.exit_code == code, result.output
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result.stdout if code == 0 else result.output

    return run


def flat(text: str) -> str:
    """Without line breaks, which depend on the width."""
    return " ".join(text.split())


# ---------------------------------------------------------------------- list and describe


def test_list_shows_every_id_and_its_summary(run: Run) -> None:
    lines = run("list").splitlines()
    assert len(lines) == len(IDS) + 1
    for row in ENV_ROWS:
        use = ["training"] if row.id in TRAINING_IDS else ["unseen"] if row.id in UNSEEN_IDS else []
        assert any(line.split() == [row.id, *row.summary.split(), *use] for line in lines)


def test_list_of_a_family(run: Run) -> None:
    family = IDS[0].partition("-")[0]
    shown = run("list", "--family", family.upper())
    assert [env_id for env_id in IDS if env_id in shown] == [one for one in IDS if one.startswith(f"{family}-")]


def test_list_of_an_unknown_family(run: Run) -> None:
    assert f"Expected a family among ['{IDS[0].partition('-')[0]}" in run("list", "--family", "chess", code=1)


@pytest.mark.parametrize("env_id", FAMILY_IDS)
def test_describe(run: Run, env_id: str) -> None:
    shown = run("describe", env_id, "--seed", "3")
    env = gym.make(env_id, render_mode="ansi")
    text, info = env.reset(seed=3)
    assert next(row.summary for row in ENV_ROWS if row.id == env_id) in shown
    assert flat(type(env.unwrapped).__doc__.split("\n\n")[0]) in flat(shown)
    assert flat(text) in flat(shown)
    assert "\n".join(info["admissible_actions"] or ["any text"]) in shown
    assert env.render().splitlines()[1] in shown
    assert repr(env.action_space) in shown
    assert "max_action_length" in shown
    assert all(repr(value) in flat(shown) for value in gym.spec(env_id).kwargs.values())


def test_describe_a_third_partys(run: Run) -> None:
    shown = run("describe", FULL)
    assert "Three rooms" not in shown  # the docstring of the class, not of its parents
    assert "n_tries      8" in shown
    assert "[0] " in shown
    assert "any text" in run("describe", "third_party:ThirdParty/OpenDoors-v0")


# ---------------------------------------------------------------------- play


@pytest.mark.parametrize("env_id", FAMILY_IDS)
@pytest.mark.parametrize("by_number", [True, False], ids=["numbers", "sentences"])
def test_play_to_the_end(run: Run, env_id: str, by_number: bool) -> None:
    env = TextAction(gym.make(env_id, render_mode="ansi"))
    _, info = env.reset(seed=1)
    lines, shown, total, over = [], [], 0.0, False
    while not over:
        action = env.unwrapped.oracle_action()
        listed = info["admissible_actions"]
        lines.append(str(listed.index(action) + 1) if by_number and listed else action)
        text, reward, terminated, truncated, info = env.step(action)
        total += reward
        shown.append(f"{action}: reward {reward:+.3f}, return {total:+.3f}")
        over = terminated or truncated
    output = run("play", env_id, "--seed", "1", stdin="\n".join(lines) + "\n")
    assert all(line in output for line in shown)
    assert flat(text) in flat(output)
    assert env.render().splitlines()[1] in output
    assert f"You reached the goal. {len(lines)} actions, return {total:+.3f}." in output


@pytest.mark.parametrize("stdin", ["", "1\n", "\n\n", "q\n1\n", "1\nq\n"], ids=["empty", "one", "blank", "q", "then q"])
def test_play_ends_with_the_input(run: Run, stdin: str) -> None:
    n_actions = stdin.split("q", maxsplit=1)[0].count("1")
    assert f"You left. {n_actions} actions" in run("play", IDS[0], stdin=stdin)


def test_play_says_what_was_not_understood(run: Run) -> None:
    output = run("play", FULL, stdin="99\n0\nopen [bold]sesame[/bold]\n")
    assert "Expected a number from 1 to 2; got 99." in output
    assert "Expected a number from 1 to 2; got 0." in output
    assert "open [bold]sesame[/bold]: not understood; reward -0.100" in output
    assert "You left. 1 actions" in output


def test_play_until_time_is_up(run: Run) -> None:
    assert "Time is up. 8 actions, return -0.800." in run("play", FULL, stdin="wait\n" * 20)


def test_play_with_any_text(run: Run) -> None:
    output = run("play", "third_party:ThirdParty/OpenDoors-v0", stdin="3\nopen it\n")
    assert "3: reward" in output
    assert "open it: reward" in output
    assert "not understood" not in output


# ---------------------------------------------------------------------- check


@pytest.mark.parametrize("env_id", [*FAMILY_IDS, FULL])
def test_check_passes(run: Run, env_id: str) -> None:
    output = run("check", env_id)
    assert " passed, 0 failed, " in output
    assert all(check.name in output for check in CHECKS)


def test_check_says_what_it_skipped(run: Run) -> None:
    output = run("check", "third_party:ThirdParty/Doors-v0")
    assert f"{len(CHECKS) - 6} passed, 0 failed, 6 skipped" in output
    assert "the environment has no oracle_action()" in output


def test_check_fails(run: Run) -> None:
    output = run("check", "third_party:ThirdParty/LoopingDoors-v0", code=1)
    assert f"{len(CHECKS) - 1} passed, 1 failed, 0 skipped" in output
    assert "Expected the oracle to succeed with seed 0" in output


def test_play_says_what_the_world_refused(run: Run) -> None:
    output = run("play", "VirtualHome-FoodPreparation-v0", stdin="open the microwave\nwalk to the microwave\nq\n")
    assert "open the microwave: refused by the world; reward +0.000" in output
    assert "walk to the microwave: reward +0.000" in output


# ---------------------------------------------------------------------- watch


@pytest.mark.parametrize("env_id", FAMILY_IDS)
def test_watch_the_oracle(run: Run, env_id: str) -> None:
    output = run("watch", env_id)
    assert "The goal was reached: " in output
    with Image.open(f"{env_id}.gif") as image:
        assert f"{env_id}.gif: {image.n_frames} frames" in output


def test_watch_random_play(run: Run) -> None:
    output = run("watch", FULL, "--agent", "random", "--seed", "1", "--out", "deep/er/doors.gif")
    assert Path("deep/er/doors.gif").exists()
    assert "deep/er/doors.gif: " in output
    assert "The episode ended by its time budget: 8 actions, return " in output


def test_watch_the_beginning(run: Run) -> None:
    output = run("watch", FULL, "--max-frames", "2")
    assert "The episode was not over after 1 actions, return " in output
    assert Path("ThirdParty-FullDoors-v0.gif").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["third_party:ThirdParty/Doors-v0"], "Expected an environment with render mode 'rgb_array'"),
        (["CartPole-v1"], "Expected an environment of TextSpace and TokenSequence; CartPole-v1 has Box and Discrete."),
        ([FULL, "--out", "/dev/null/x.gif"], "[Errno 17]"),
        ([FULL, "--out", "doors.mp4"], "Expected a file name that ends in .gif; got 'doors.mp4'."),
        ([FULL, "--out", ""], "Expected a file name that ends in .gif; got '.'."),
    ],
    ids=["no drawing", "no text", "no folder", "a video", "no name"],
)
def test_watch_says_what_is_wrong(run: Run, arguments: list[str], message: str) -> None:
    output = run("watch", *arguments, code=1)
    assert message in output
    assert output.count("\n") == 1


# ---------------------------------------------------------------------- errors


@pytest.mark.parametrize("command", ["describe", "play", "check", "watch"])
@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        (IDS[0].replace("-v0", "-v9"), f"Did you mean {IDS[0]}"),
        (IDS[0].lower(), f"Did you mean {IDS[0]}"),
        ("Zzzzzz", "There is no environment 'Zzzzzz'. See: lang-envs list"),
        ("third_party:ThirdParty/FullDors-v0", "Did you mean ThirdParty/FullDoors-v0"),
        ("no.such.module:Doors-v0", "'no.such.module' cannot be imported (No module named 'no')"),
        (".third_party:Doors-v0", "'.third_party' cannot be imported"),
        ("", "There is no environment ''."),
    ],
    ids=["version", "case", "nothing near", "near", "module", "relative", "empty"],
)
def test_an_unknown_id_gets_one_line(run: Run, command: str, env_id: str, message: str) -> None:
    output = run(command, env_id, code=1)
    assert output.startswith("lang-envs: ")
    assert message in output
    assert output.count("\n") == 1


def test_a_module_of_this_folder_is_found_but_hides_nothing(run: Run) -> None:
    Path("my_doors.py").write_text("import gymnasium as gym\ngym.register('My-v0', entry_point='third_party:Doors')\n")
    Path("json.py").write_text("raise AssertionError('imported')\n")
    assert "Room 0" in run("describe", "my_doors:My-v0")
    assert "There is no environment" in run("describe", "json:My-v1", code=1)
    gym.registry.pop("My-v0")


def test_arguments_are_checked(run: Run) -> None:
    assert "--max-frames" in run("watch", FULL, "--max-frames", "0", code=2)
    assert "human" in run("watch", FULL, "--agent", "human", code=2)


# ---------------------------------------------------------------------- the entry point


@pytest.mark.parametrize("name", ["typer", "rich.progress"])
def test_without_the_extra_there_is_one_line(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "lang_envs.cli.app")
    with pytest.raises(MissingExtraError, match=rf'needs {name}, .* Fix: pip install "lang-envs\[cli\]"'):
        cli.load_app()
    with pytest.raises(SystemExit, match=r'^[^\n]*pip install "lang-envs\[cli\]"$'):
        cli.main()


def test_an_error_of_our_own_is_not_taken_for_a_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lang_envs.cli.play", None)
    monkeypatch.delitem(sys.modules, "lang_envs.cli.app")
    with pytest.raises(ModuleNotFoundError, match=r"lang_envs\.cli\.play"):
        cli.load_app()


def test_the_command_is_installed() -> None:
    (script,) = entry_points(group="console_scripts", name="lang-envs")
    assert script.load() is cli.main
    command = [sys.executable, "-c", "import sys; from lang_envs.cli import main; main()", "play", IDS[0]]
    done = subprocess.run(command, input="1\n", capture_output=True, text=True, check=True)
    assert "You left. 1 actions" in done.stdout
    assert done.stderr == ""
