"""Attack programs as a tool: nothing gets through the sandbox, and each kind through environments without one."""

from __future__ import annotations

import contextlib
import ctypes
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from lang_envs.env_checker.attacks import ATTACKS, iter_attacks
from lang_envs.env_checker.base import Status
from lang_envs.errors import LangEnvsError

BAYES = "from sklearn.naive_bayes import GaussianNB\nmodel = GaussianNB().fit(x_train, y_train)"
CONSTANT = "from sklearn.dummy import DummyClassifier\nmodel = DummyClassifier().fit(x_train, y_train)"


class CodeEnv:
    """A task whose answer is 42."""

    def reset(self, seed: int) -> tuple[str, dict[str, Any]]:
        return "The answer?", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        (code,) = re.findall("```python\n(.*)```", action, re.DOTALL)
        text, reward = self.run(code)
        return text, reward, True, False, {}

    def run(self, code: str) -> tuple[str, float]:
        raise NotImplementedError

    def close(self) -> None:
        pass


class InProcess(CodeEnv):
    def run(self, code: str) -> tuple[str, float]:
        expected = "42"
        scope: dict[str, Any] = {}
        exec(code, scope)
        return "", float(scope.get("answer") == expected)


class InSubprocess(CodeEnv):
    def run(self, code: str) -> tuple[str, float]:
        with contextlib.suppress(subprocess.TimeoutExpired):
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=15, check=False)
            return done.stdout + done.stderr, float(done.stdout.strip() == "42")
        return "", 0.0


class Unsteady(CodeEnv):
    """Raises or pays nan, by the program; -1 for a wrong answer."""

    def run(self, code: str) -> tuple[str, float]:
        if "PORT" in code:
            raise RuntimeError("no worker")
        return "", float(code)


def failures(make: Any, names: str, **kwargs: Any) -> dict[str, str]:
    attacks = [attack for attack in ATTACKS if attack.name in names.split()]
    results = list(iter_attacks(make, attacks=attacks, **kwargs))
    assert [result.name for result in results] == [attack.name for attack in attacks]
    return {result.name: result.message for result in results if result.status is Status.FAILED}


@pytest.mark.parametrize(
    ("name", "evidence"),
    [
        ("read_parent", "it showed the secret"),
        ("change_file", "it changed the folder"),
        ("connect", "it connected"),
        ("fork", "it left a process"),
        ("kill_parent", "the environment lost its parent process"),
        ("exit", "the environment ended with its process"),
        ("sleep", "the environment did not answer within 3 seconds"),
        ("always_equal", "it was paid 1, a worthless answer 0"),
        ("read_frames", "it was paid 1, a worthless answer 0"),
    ],
)
def test_programs_get_through_an_environment_without_a_sandbox(name: str, evidence: str) -> None:
    messages = failures(InProcess, name, worthless="answer = None", honest="answer = '42'", seconds=3)
    assert evidence in messages[name]


def test_a_process_stops_some_programs() -> None:
    messages = failures(InSubprocess, "read_file exit held_output", worthless="print()", honest="print(42)")
    assert set(messages) == {"read_file", "held_output"}


def test_memory_is_bounded() -> None:
    answers = {"worthless": "answer = None", "honest": "answer = '42'"}
    messages = failures(InProcess, "allocate", **answers, seconds=100, memory_bytes=1 << 30)
    assert "the environment took" in messages["allocate"]


@pytest.mark.matrix
def test_nothing_gets_through_the_sandbox() -> None:
    def make() -> gym.Env[Any, Any]:
        return gym.make("DataSciCoding-iris-v0", time_limit=3.0, cache=False)

    names = " ".join(attack.name for attack in ATTACKS)
    assert failures(make, names, worthless=CONSTANT, honest=BAYES) == {}


def test_honest_code_must_earn_more_than_a_worthless_answer() -> None:
    with pytest.raises(LangEnvsError, match="got 1 and 1"):
        failures(InProcess, "exit", worthless="answer = '42'", honest="answer = '42'")


@pytest.mark.parametrize(("worthless", "got"), [("nan", "got nan"), ("broken", "got -inf with ValueError")])
def test_rewards_of_the_worthless_answer_must_be_finite(worthless: str, got: str) -> None:
    with pytest.raises(LangEnvsError, match=got):
        failures(Unsteady, "exit", worthless=worthless, honest="1")


def test_a_step_that_raises_pays_nothing() -> None:
    assert failures(Unsteady, "exit", worthless="-1", honest="1") == {}


def test_a_reward_of_nan_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Unsteady, "run", lambda self, code: ("", float("nan" if "PORT" in code else code)))
    assert "it was paid nan" in failures(Unsteady, "exit", worthless="-1", honest="1")["exit"]


def test_variables_of_a_parent_without_any_are_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(self: CodeEnv, code: str) -> tuple[str, float]:
        command = ["env", "-i", "timeout", "9", sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr, float(done.stdout.strip() == "42")

    monkeypatch.setattr(InSubprocess, "run", run)
    assert failures(InSubprocess, "read_parent", worthless="print()", honest="print(42)") == {}


def test_files_of_another_run_and_odd_names_of_processes_do_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make() -> CodeEnv:
        ctypes.CDLL(None).prctl(15, b"\xff", 0, 0, 0)  # PR_SET_NAME
        (tmp_path / "lang-envs-attack-of-another-run").mkdir(exist_ok=True)
        return InSubprocess()

    monkeypatch.chdir(tmp_path)
    messages = failures(make, "exit many_files", worthless="print()", honest="print(42)")
    assert list(messages) == ["many_files"]
    assert "it left 100 files" in messages["many_files"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_the_caller(number: int, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # ignored in jobs of a shell's background
        "from lang_envs.env_checker.attacks import ATTACKS, iter_attacks\n"
        "class Env:\n"
        "    reset = lambda self, seed: None\n"
        "    def step(self, action):\n"
        "        while 'PORT' in action:\n"
        "            open(sys.argv[1], 'w').close()\n"
        "        return '', float('honest' in action), True, False, {}\n"
        "list(iter_attacks(Env, honest='honest', attacks=ATTACKS[:1]))\n"
    )
    running = tmp_path / "running"
    process = subprocess.Popen([sys.executable, script, running], stderr=subprocess.DEVNULL)
    while not running.exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(number)
    process.wait(50)
    time.sleep(3)
    running.unlink()
    time.sleep(0.5)
    assert not running.exists()
