"""The command `lang-envs`: its output and its exit codes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from PIL import Image
from typer.testing import CliRunner
from walk import IDS

from lang_envs import ENV_ROWS, TRAINING_IDS, UNSEEN_IDS, MissingExtraError, cli
from lang_envs.cache import Cache, cache_folder
from lang_envs.cli.app import app
from lang_envs.env_checker import CHECKS
from lang_envs.envs.datascicoding.sandbox_doctor import diagnose
from lang_envs.errors import LangEnvsError
from lang_envs.sandbox.confinement.layers import Layer
from lang_envs.wrappers import TextAction

FULL = "third_party:ThirdParty/FullDoors-v0"
OPEN = "third_party:ThirdParty/OpenDoors-v0"
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
    """Without line breaks, since these depend on the width."""
    return " ".join(text.split())


# ---------------------------------------------------------------------- list and describe


def test_list_shows_every_id_and_its_summary(run: Run) -> None:
    lines = run("list").splitlines()
    assert len(lines) == len(IDS) + 2
    assert lines[-1] == "Of other packages: lang-envs list --family BabyAIText, TextWorld, TextArena"
    for row in ENV_ROWS:
        use = ["training"] if row.id in TRAINING_IDS else ["unseen"] if row.id in UNSEEN_IDS else []
        assert any(line.split() == [row.id, *row.summary.split(), *use] for line in lines)


@pytest.mark.parametrize("env_id", ["Overcooked-TomatoSalad-v0", "DataSciCoding-balance-scale-v0"])
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


@pytest.mark.parametrize("command", ["describe", "check"])
def test_an_argument_that_nobody_takes(run: Run, command: str) -> None:
    env_id = "DataSciCoding-balance-scale-v0"
    assert run(command, env_id, "--set", "scoring=accuracy", "--set", "dat=synthetic", code=1) == (
        f"lang-envs: {env_id} has no argument 'dat'. Did you mean data?\n"
    )


# ---------------------------------------------------------------------- play


@pytest.mark.parametrize(
    ("env_id", "by_number"),
    [
        ("Overcooked-TomatoSalad-v0", True),
        ("Overcooked-TomatoSalad-v0", False),
        ("DataSciCoding-balance-scale-v0", False),
    ],
)
def test_play_to_the_end(run: Run, env_id: str, by_number: bool) -> None:
    env = TextAction(gym.make(env_id, render_mode="ansi"))
    _, info = env.reset(seed=1)
    lines, shown, total, n_actions, over = [], [], 0.0, 0, False
    while not over:
        action = env.unwrapped.oracle_action()
        listed = info["admissible_actions"]
        lines += [action, "."] if listed is None else [str(listed.index(action) + 1) if by_number else action]
        text, reward, terminated, truncated, info = env.step(action)
        total, n_actions = total + reward, n_actions + 1
        first, *rest = action.split("\n")
        summary = f"{first} ({len(rest) + 1} lines): {info['status']}; " if rest else f"{first}: "
        shown.append(f"{summary}reward {reward:+.4f}, return {total:+.4f}")
        over = terminated or truncated
    output = run("play", env_id, "--seed", "1", stdin="\n".join(lines) + "\n")
    assert all(line in flat(output) for line in shown)
    assert flat(text) in flat(output)
    assert env.render().splitlines()[1] in output
    counted = "1 action" if n_actions == 1 else f"{n_actions} actions"
    assert f"You reached the goal. {counted}, return {total:+.4f}." in output


@pytest.mark.parametrize("stdin", ["", "\n \n.\nq\nx\n"])
def test_no_text_is_no_action(run: Run, stdin: str) -> None:
    assert "You left. 0 actions" in run("play", OPEN, stdin=stdin)


# ---------------------------------------------------------------------- check


def test_check_passes(run: Run) -> None:
    output = run("check", FULL)
    assert " passed, 0 failed, " in output
    assert all(check.name in output for check in CHECKS)


def test_check_fails(run: Run) -> None:
    output = run("check", "third_party:ThirdParty/LoopingDoors-v0", code=1)
    assert f"{len(CHECKS) - 1} passed, 1 failed, 0 skipped" in output
    assert "Expected the oracle to succeed with seed 0" in output


def test_attacks_need_honest_code(run: Run, tmp_path: Path) -> None:
    assert "Expected --honest FILE" in run("check", FULL, "--attack", code=1)
    (tmp_path / "binary").write_bytes(b"\xff")
    for path in (tmp_path / "missing", tmp_path / "binary", tmp_path):
        assert "Expected files of Python code; got" in run("check", FULL, "--attack", "--honest", str(path), code=1)


# ---------------------------------------------------------------------- watch


def test_watch_writes_a_gif_of_the_oracle(run: Run) -> None:
    output = run("watch", "KeyToken-v0")
    assert "The goal was reached: " in output
    with Image.open("KeyToken-v0.gif") as image:
        assert f"KeyToken-v0.gif: {image.n_frames} frames" in output


def test_watch_the_coder(run: Run) -> None:
    outputs = [run("watch", "DataSciCoding-iris-v0", "--agent", "coder", "--seed", seed) for seed in "114"]
    assert all("DataSciCoding-iris-v0.gif: " in output for output in outputs)
    assert outputs[0] == outputs[1] != outputs[2]


def test_watch_rejects_a_file_that_is_no_gif(run: Run) -> None:
    message = run("watch", FULL, "--out", "doors.mp4", code=1)
    assert message == "lang-envs: Expected a file name that ends in .gif; got 'doors.mp4'.\n"


# ---------------------------------------------------------------------- sandbox


@pytest.mark.process
def test_doctor(run: Run) -> None:
    code = {"full": 0, "reduced": 1, "unusable": 2}[diagnose().verdict]
    shown = flat(run("sandbox", "doctor", code=code))
    assert "0.7858" in shown
    assert all(f"{layer} " in shown for layer in Layer)


def test_doctor_where_there_is_no_fork(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("lang_envs.sandbox.")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("evaluation", "sandbox_doctor"):
        monkeypatch.delitem(sys.modules, f"lang_envs.envs.datascicoding.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "fcntl", None)
    assert run("sandbox", "doctor", code=2).startswith("lang-envs: unusable: Expected a system with fork")
    monkeypatch.delitem(sys.modules, "lang_envs.envs.datascicoding.env", raising=False)
    with pytest.raises(LangEnvsError, match=r"Fix: Linux, macOS or WSL2\."):
        gym.make("DataSciCoding-iris-v0")


def test_clear_cache(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LANG_ENVS_CACHE", str(tmp_path / "cache"))
    assert "cleared" in run("sandbox", "clear-cache")  # an empty cache
    cache = Cache(cache_folder())
    cache.put("key", {"a": 1})
    assert f"{tmp_path / 'cache'}: cleared" in run("sandbox", "clear-cache")
    assert Cache(cache_folder()).get("key") is None


# ---------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        (IDS[0].replace("-v0", "-v9"), f"Did you mean {IDS[0]}"),
        ("Zzzzzz", "There is no environment 'Zzzzzz'. See: lang-envs list"),
        ("no.such.module:Doors-v0", "'no.such.module' cannot be imported (No module named 'no')"),
    ],
    ids=["version", "nothing near", "module"],
)
def test_an_unknown_id_gets_one_line(run: Run, env_id: str, message: str) -> None:
    output = run("describe", env_id, code=1)
    assert output.startswith("lang-envs: ")
    assert message in output
    assert output.count("\n") == 1


@pytest.mark.parametrize("command", ["watch", "serve"])
def test_an_environment_without_words_gets_one_line(run: Run, command: str) -> None:
    assert "CartPole-v1 has Box and Discrete" in run(command, "CartPole-v1", code=1)


def test_serve_writes_a_folder_that_imports_the_module(run: Run, tmp_path: Path) -> None:
    run("serve", FULL, "--package", "folder")
    assert f"make_app({FULL!r})" in (tmp_path / "folder/server/app.py").read_text()


def test_a_module_of_this_folder_is_found_but_hides_nothing(run: Run) -> None:
    Path("my_doors.py").write_text("import gymnasium as gym\ngym.register('My-v0', entry_point='third_party:Doors')\n")
    Path("json.py").write_text("raise AssertionError('imported')\n")
    assert "Room 0" in run("describe", "my_doors:My-v0")
    assert "There is no environment" in run("describe", "json:My-v1", code=1)
    gym.registry.pop("My-v0")


# ---------------------------------------------------------------------- the entry point


@pytest.mark.parametrize("name", ["typer", "rich.progress"])
def test_without_the_extra_there_is_one_line(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "lang_envs.cli.app")
    with pytest.raises(
        MissingExtraError, match=rf'needs {name}, .* Fix: pip install -c constraints.txt -e "\.\[cli\]"$'
    ):
        cli.load_app()
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2  # for `sandbox doctor` 1 would say that code can be run
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert 'Fix: pip install -c constraints.txt -e ".[cli]"' in message


def test_the_command_is_installed() -> None:
    (script,) = entry_points(group="console_scripts", name="lang-envs")
    assert script.load() is cli.main
    command = [sys.executable, "-c", "import sys; from lang_envs.cli import main; main()", "play", IDS[0]]
    done = subprocess.run(command, input="1\n", capture_output=True, text=True, check=True)
    assert "You left. 1 action," in done.stdout
    assert done.stderr == ""
