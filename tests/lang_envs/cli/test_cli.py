"""The command `lang-envs`: its output and its exit codes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from PIL import Image
from typer.testing import CliRunner
from walk import FAMILY_IDS, IDS

from lang_envs import ENV_ROWS, TRAINING_IDS, UNSEEN_IDS, MissingExtraError, cli
from lang_envs.cache import Cache, cache_folder
from lang_envs.cli.app import app
from lang_envs.cli.common import signed
from lang_envs.env_checker import CHECKS
from lang_envs.envs.datascicoding.sandbox_doctor import Diagnosis, Latency, SupervisorFacts, diagnose
from lang_envs.errors import LangEnvsError
from lang_envs.sandbox.confinement.layers import Confinement, Layer
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
    assert len(lines) == len(IDS) + 1
    for row in ENV_ROWS:
        use = ["training"] if row.id in TRAINING_IDS else ["unseen"] if row.id in UNSEEN_IDS else []
        assert any(line.split() == [row.id, *row.summary.split(), *use] for line in lines)


def test_list_of_a_family(run: Run) -> None:
    family = IDS[0].partition("-")[0]
    shown = run("list", "--family", family.upper())
    assert [env_id for env_id in IDS if env_id in shown] == [one for one in IDS if one.startswith(f"{family}-")]


def test_list_of_an_unknown_family(run: Run) -> None:
    families = sorted({env_id.partition("-")[0] for env_id in IDS})
    assert f"Expected a family among {families}; got 'chess'." in run("list", "--family", "chess", code=1)


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
    assert "any text is an action; the action space holds " in run("describe", OPEN)


def test_describe_shows_what_is_set(run: Run) -> None:
    rows = [line.split() for line in run("describe", FULL, "--set", "n_tries=5").splitlines()]
    assert ["n_tries", "8", "5"] in rows
    assert ["render_mode", "None"] in rows
    coding = [line.split() for line in run("describe", "DataSciCoding-balance-scale-v0").splitlines()]
    assert ["max_action_length", "96", "8193"] in coding
    assert not any(row[:1] == ["max_observation_length"] for row in coding), "the family sets it"


@pytest.mark.parametrize("command", ["describe", "check", "play", "watch"])
def test_an_argument_that_nobody_takes(run: Run, command: str) -> None:
    env_id = "DataSciCoding-balance-scale-v0"
    assert run(command, env_id, "--set", "scoring=accuracy", "--set", "dat=synthetic", code=1) == (
        f"lang-envs: {env_id} has no argument 'dat'. Did you mean data?\n"
    )


def test_an_argument_that_resembles_none(run: Run) -> None:
    assert run("describe", FULL, "--set", "qqq=1", code=1) == (
        "lang-envs: ThirdParty/FullDoors-v0 has no argument 'qqq'. See: lang-envs describe ThirdParty/FullDoors-v0\n"
    )
    told = run("describe", IDS[0], "--set", "oracle_inf=true", code=1)
    assert told.endswith("Did you mean oracle_info?\n"), "an argument of the base class"
    assert "Expected --set of another argument than render_mode" in run(
        "describe", FULL, "--set", "render_mode=ansi", code=1
    )
    assert "TypeError" not in run("describe", FULL, "--set", "max_episode_steps=3")


# ---------------------------------------------------------------------- play


@pytest.mark.parametrize("env_id", FAMILY_IDS)
@pytest.mark.parametrize("by_number", [True, False], ids=["numbers", "sentences"])
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
        said = f"{first} ({len(rest) + 1} lines): {info['status']}; " if rest else f"{first}: "
        shown.append(f"{said}reward {reward:+.4f}, return {total:+.4f}")
        over = terminated or truncated
    output = run("play", env_id, "--seed", "1", stdin="\n".join(lines) + "\n")
    assert all(line in flat(output) for line in shown)
    assert flat(text) in flat(output)
    assert env.render().splitlines()[1] in output
    counted = "1 action" if n_actions == 1 else f"{n_actions} actions"
    assert f"You reached the goal. {counted}, return {total:+.4f}." in output


@pytest.mark.parametrize(
    ("env_id", "stdin", "ending"),
    [
        (IDS[0], "", "The input has ended. You left. 0 actions, return"),
        (IDS[0], "1\n", "The input has ended. You left. 1 action, return"),
        (IDS[0], "\n\n", "The input has ended. You left. 0 actions, return"),
        (OPEN, "", "The input has ended. You left. 0 actions, return"),
        (OPEN, "1\nq\n", "The input has ended. You left. 1 action, return"),
        (IDS[0], "q\n1\n", "You left. 0 actions, return"),
        (IDS[0], "1\nq\n", "You left. 1 action, return"),
        (OPEN, "1\n.\nq\n", "You left. 1 action, return"),
    ],
)
def test_play_ends_with_the_input(run: Run, env_id: str, stdin: str, ending: str) -> None:
    output = flat(run("play", env_id, stdin=stdin))
    assert ending in output
    assert ("The input has ended." in output) is ("The input" in ending)


def test_play_says_what_was_not_understood(run: Run) -> None:
    output = run("play", FULL, stdin="99\n0\nopen [bold]sesame[/bold]\n")
    assert "Expected a number from 1 to 2; got 99." in output
    assert "Expected a number from 1 to 2; got 0." in output
    assert "open [bold]sesame[/bold]: not understood; reward -0.1000" in output
    assert "You left. 1 action," in output


def test_play_until_time_is_up(run: Run) -> None:
    assert "The budget is used up. 8 actions, return -0.8000." in run("play", FULL, stdin="wait\n" * 20)


def test_play_with_any_text(run: Run) -> None:
    output = run("play", OPEN, stdin="3\n.\nopen it\n")
    assert "3: reward" in output
    assert "open it: reward" in output  # the end of the input ends a text too
    assert "not understood" not in output
    assert "You left. 2 actions" in output


def test_play_with_several_lines(run: Run) -> None:
    output = run("play", OPEN, stdin="\nif it:\n    q\n\n    open [b]it[/b]\n.\n")
    assert " (5 lines): reward" in output
    assert "You left. 1 action," in output


def test_play_with_code_that_fails(run: Run) -> None:
    output = run("play", "DataSciCoding-balance-scale-v0", stdin="x = 1\nmodel = No()\n.\nq\n")
    assert "x = 1 (2 lines): runtime_error; reward -1.0000, return -1.0000" in output
    assert "NameError: name 'No' is not defined (line 2: model = No())" in flat(output)
    assert "You left. 1 action," in output


def test_play_shows_an_observation_line_for_line(run: Run) -> None:
    text, _ = gym.make("DataSciCoding-breast-cancer-v0").reset(seed=0)
    code = f"model = {' + '.join(['no'] * 60)}"
    output = run("play", "DataSciCoding-breast-cancer-v0", stdin=f"{code}\n")
    assert text in output
    assert f"#     {code}\n" in output  # wider than any terminal


def test_numbers_are_told_to_four_digits_and_zero_has_no_sign() -> None:
    assert [signed(number) for number in (0.99964, 1, -0.00001, -0.0)] == ["+0.9996", "+1.0000", "+0.0000", "+0.0000"]


@pytest.mark.parametrize("stdin", ["", "q\n", " q \nx\n.\n", "\n \n.\n.\n", ".\nq\nx\n"])
def test_no_text_is_no_action(run: Run, stdin: str) -> None:
    assert "You left. 0 actions" in run("play", OPEN, stdin=stdin)


# ---------------------------------------------------------------------- check


@pytest.mark.matrix_after(1)
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
    assert "open the microwave: refused by the world; reward +0.0000" in output
    assert "walk to the microwave: reward +0.0000" in output


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
    assert "The episode ended without success, its budget used up: 8 actions, return " in output


def test_watch_the_random_agent_where_any_text_is_an_action(run: Run) -> None:
    output = run("watch", "DataSciCoding-iris-v0", "--agent", "random")
    assert "The episode ended without success, its budget used up: 5 actions, return -5.0000" in output
    assert "DataSciCoding-iris-v0.gif: 6 frames" in output


def test_watch_the_coder(run: Run) -> None:
    outputs = [run("watch", "DataSciCoding-iris-v0", "--agent", "coder", "--seed", seed) for seed in "114"]
    assert all("DataSciCoding-iris-v0.gif: " in output for output in outputs)
    assert outputs[0] == outputs[1] != outputs[2]


def test_the_coder_cannot_choose(run: Run) -> None:
    output = run("watch", FULL, "--agent", "coder", code=1)
    assert output == (
        "lang-envs: Expected an environment where any text is an action for the coder; this one lists its actions.\n"
    )


def test_watch_the_beginning(run: Run) -> None:
    output = run("watch", FULL, "--max-frames", "2")
    assert "The episode was not over after 1 action, return " in output
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


# ---------------------------------------------------------------------- sandbox


def diagnosis(missing: Mapping[Layer, str], problem: str, refused: str = "") -> Diagnosis:
    layers = frozenset(Layer) - missing.keys()
    return Diagnosis(
        confinement=Confinement(layers, missing),
        supervisor=None if problem else SupervisorFacts(4711, layers, ("ipc", "net"), refused),
        latency=None if problem else Latency(first=2.5, warm=0.0421, score=0.7858),
        problem=problem,
        versions={"python": "3.11.7", "scikit-learn": "1.9.1"},
        cores=3,
        cache=Path("/somewhere/[bold]"),
        cache_bytes=3 << 19,
    )


NO_LANDLOCK = {Layer.LANDLOCK: "Without landlock, code can read whatever [i]file[/i] its user can read: old kernel."}
NO_LIMITS = {Layer.RESOURCE_LIMITS: "Without resource-limits, code can use up memory."}


@pytest.mark.parametrize(
    ("found", "code", "verdict"),
    [
        (diagnosis({}, ""), 0, "full: every layer holds."),
        (diagnosis({Layer.NAMESPACES: "Without them."}, ""), 0, "full: every layer holds but the namespaces"),
        (diagnosis(NO_LANDLOCK, "", "no"), 1, 'reduced: code runs with layers missing; confinement="require" refuses'),
        (diagnosis(NO_LIMITS, ""), 1, 'reduced: code runs with layers missing; confinement="require" runs it'),
        (diagnosis({}, "Expected scikit-learn. Fix: [datasci]"), 2, "unusable: Expected scikit-learn. Fix: [datasci]"),
    ],
    ids=["full", "no namespaces", "no landlock", "no limits", "unusable"],
)
def test_doctor(run: Run, monkeypatch: pytest.MonkeyPatch, found: Diagnosis, code: int, verdict: str) -> None:
    monkeypatch.setattr("lang_envs.envs.datascicoding.sandbox_doctor.diagnose", lambda: found)
    shown = flat(run("sandbox", "doctor", code=code))
    assert verdict in shown
    for layer in Layer:
        reason = found.confinement.missing.get(layer)
        assert (f"{layer} active" if reason is None else f"{layer} missing {reason}") in shown
    assert "scikit-learn 1.9.1" in shown
    assert "cores 3" in shown
    assert "/somewhere/[bold] (1.5 MiB)" in shown
    if code < 2:
        assert "process 4711; layers: " in shown
        assert "namespaces: ipc, net" in shown
        assert "2.50 s with the start of the supervisor, then 42 ms" in shown
        assert "0.7858" in shown
    else:
        assert "supervisor not started" in shown


@pytest.mark.process
def test_doctor_for_real(run: Run) -> None:
    code = {"full": 0, "reduced": 1, "unusable": 2}[diagnose().verdict]
    assert "0.7858" in run("sandbox", "doctor", code=code)


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


def test_a_cache_that_cannot_be_cleared(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LANG_ENVS_CACHE", str(tmp_path))
    (tmp_path / "evaluations.sqlite3").mkdir()
    output = run("sandbox", "clear-cache", code=1)
    assert output.startswith("lang-envs: Expected to remove ")
    assert output.count("\n") == 1


# ---------------------------------------------------------------------- errors


@pytest.mark.parametrize("command", ["describe", "play", "check", "watch"])
def test_an_id_whose_extra_is_missing_gets_one_line(run: Run, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.model_selection", None)
    output = run(command, "DataSciCoding-balance-scale-v0", code=1)
    assert output.startswith("lang-envs: Expected scikit-learn")
    assert "[datasci]" in output
    assert output.count("\n") == 1


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
    with pytest.raises(
        MissingExtraError, match=rf'needs {name}, .* Fix: pip install -c constraints.txt -e "\.\[cli\]"$'
    ):
        cli.load_app()
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2  # for `sandbox doctor` 1 would say that code can be run
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert 'Fix: pip install -c constraints.txt -e ".[cli]"' in said


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
    assert "You left. 1 action," in done.stdout
    assert done.stderr == ""
