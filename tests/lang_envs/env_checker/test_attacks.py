"""Attack programs as a tool: nothing gets through the sandbox, and each kind through environments without one."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
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
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=4, check=False)
            return done.stdout + done.stderr, float(done.stdout.strip() == "42")
        return "", 0.0


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
    found = failures(InProcess, name, worthless="answer = None", honest="answer = '42'", seconds=3)
    assert evidence in found[name]


def test_a_process_stops_some_programs() -> None:
    names = "read_file loop exit held_output allocate"
    found = failures(InSubprocess, names, worthless="print()", honest="print(42)", memory_bytes=400 << 20)
    assert set(found) == {"read_file", "held_output", "allocate"}
    assert "the environment took" in found["allocate"]


@pytest.mark.matrix
def test_nothing_gets_through_the_sandbox() -> None:
    def make() -> gym.Env[Any, Any]:
        return gym.make("DataSciCoding-iris-v0", time_limit=3.0, cache=False)

    names = " ".join(attack.name for attack in ATTACKS)
    assert failures(make, names, worthless=CONSTANT, honest=BAYES) == {}


def test_honest_code_must_earn_more_than_a_worthless_answer() -> None:
    with pytest.raises(LangEnvsError, match="got 1 and 1"):
        failures(InProcess, "exit", worthless="answer = '42'", honest="answer = '42'")
