"""`DataSciCodingEnv`: episodes, rewards, observations, and no text makes it raise."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from walk import IDS

from lang_envs import ENV_ROWS, oracle
from lang_envs.envs.datascicoding.evaluation import Status
from lang_envs.sandbox.client import Answer, End, Limits, Sandbox
from lang_envs.sandbox.worker import Task
from lang_envs.wrappers import TextAction

IDS_HERE = [env_id for env_id in IDS if env_id.startswith("DataSciCoding-")]
HONEST = "from sklearn.naive_bayes import GaussianNB\nmodel = GaussianNB().fit(x_train, y_train)"
OWN = {"size": [float(n) for n in range(40)], "kind": ["big"] * 20 + ["small"] * 20}
WORSE = "from sklearn.dummy import DummyClassifier\nmodel = DummyClassifier().fit(x_train, y_train)"


def make(**kwargs: Any) -> TextAction:
    return TextAction(gym.make("DataSciCoding-balance-scale-v0", **kwargs))


# ---------------------------------------------------------------------- episodes


def test_code_that_runs_ends_the_episode() -> None:
    env = make()
    assert env.reset(seed=0)[1]["error"] == ""
    _, reward, terminated, truncated, info = env.step(HONEST)
    assert (terminated, truncated, info["success"], info["status"]) == (True, False, True, Status.OK)
    assert info["error"] == ""
    assert reward == info["auc_mean"] == info["best_so_far"] == pytest.approx(0.7858, abs=1e-4)
    assert info["auc_std"] == pytest.approx(0.0767, abs=1e-4)
    assert len(info["auc_splits"]) == 5
    assert np.mean(info["auc_splits"]) == pytest.approx(reward)
    assert info["code"] == HONEST
    assert info["wall_seconds"] > 0


def test_five_failures_end_it_too() -> None:
    env = make()
    env.reset(seed=0)
    for attempt in range(1, 6):
        _, reward, terminated, truncated, info = env.step("model = Forest()")
        assert (reward, terminated, truncated) == (-1.0, False, attempt == 5)
        assert (info["success"], info["status"], info["invalid_action"]) == (False, Status.RUNTIME_ERROR, False)
        assert (info["auc_mean"], info["auc_std"], info["auc_splits"], info["best_so_far"]) == (None, None, (), None)


def test_an_unfinished_sentence_costs_an_attempt() -> None:
    env = make(max_attempts=2, invalid_action_reward=-0.5)
    env.reset(seed=0)
    text, reward, _, truncated, info = env.step("x" * 10_000)
    assert (reward, truncated, info["invalid_action"], info["status"]) == (-1.5, False, True, Status.UNFINISHED)
    assert "Attempt 1 of 2: it failed. The code was not finished." in text
    assert env.step("1 / 0")[3] is True


def test_improving_goes_on_after_success() -> None:
    env = make(terminate_on_success=False, max_attempts=4, feedback="history")
    env.reset(seed=0)
    rewards, best = [], []
    for code in (WORSE, HONEST, "1 / 0", WORSE):
        text, reward, terminated, truncated, info = env.step(code)
        rewards.append(reward)
        best.append(info["best_so_far"])
        is_last = len(rewards) == 4
        assert (terminated, truncated, info["success"]) == (is_last, False, is_last)
    assert rewards == [0.5, pytest.approx(0.7858, abs=1e-4), -1.0, 0.5]
    assert best == [0.5, rewards[1], rewards[1], rewards[1]]
    assert [f"Attempt {n} of 4: {how}" in text for n, how in enumerate(["it ran", "it ran", "it failed", "it ran"], 1)]
    assert "Attempt 2 of 4: it ran, with a score of 0.7858." in text


ALWAYS_THE_SAME = [
    row.id for row in ENV_ROWS if row.id in IDS_HERE and not row.trial and row.kwargs["dataset"] != "generated"
]


@pytest.mark.parametrize("env_id", ALWAYS_THE_SAME)
def test_the_oracle_beats_the_obvious(env_id: str) -> None:
    env = TextAction(gym.make(env_id))
    env.reset(seed=0)
    reward = env.step(oracle(env))[1]
    env.reset(seed=0)
    assert 0.9 < reward <= 1.0
    assert reward > env.step(HONEST)[1]


def test_a_table_of_ones_own() -> None:
    env = gym.make("DataSciCoding-v0", table=OWN, target="kind", description="Every row is a stone.")
    text, info = env.reset(seed=0)
    assert "Every row is a stone." in text
    assert (info["data"], info["source"]) == ("own", env.unwrapped.dataset.source)
    assert "made up" not in text.lower()
    *_, info = TextAction(env).step(HONEST)
    assert info["status"] is Status.OK
    assert info["auc_mean"] > 0.95
    assert env.unwrapped.dataset.y.tolist() == [0] * 20 + [1] * 20  # "big" before "small"


def test_published_and_other_splits() -> None:
    def rewards(splits: Any) -> tuple[float, ...]:
        env = make(splits=splits)
        env.reset(seed=0)
        return env.step(HONEST)[-1]["auc_splits"]

    assert rewards(5) == rewards((0, 1, 2, 3, 4)) == rewards(range(5))
    assert rewards((3, 1)) == (rewards(5)[3], rewards(5)[1])
    assert len(rewards(range(5, 25))) == 20


# ---------------------------------------------------------------------- observations


@pytest.mark.parametrize("env_id", IDS_HERE)
def test_the_observation_and_the_suffix_make_a_program(env_id: str) -> None:
    env = gym.make(env_id).unwrapped
    text, info = env.reset(seed=0)
    assert text == info["prefix"]
    n, width = env.dataset.x.shape
    assert f"{n} rows, {width} numeric features and {env.dataset.classes} classes" in text.replace("\n# ", " ")
    assert f"shape ({n // 2}, {width})" in text
    program = ast.parse(f"{text}model = 1{info['suffix']}")
    assert [type(node).__name__ for node in program.body] == ["Import", "FunctionDef"]
    assert len(text) < 1000


def test_a_failure_is_told_with_its_code() -> None:
    env = make()
    start, _ = env.reset(seed=0)
    text, *_ = env.step("model = Forest()\nmodel.fit(x_train)")
    assert (
        text.replace(
            "#\n# Attempt 1 of 5: it failed. NameError: name 'Forest' is not defined (line 1: model = Forest())\n"
            "# Its code:\n#     model = Forest()\n#     model.fit(x_train)\n",
            "",
        )
        == start
    )
    again, *_ = env.step("1 / 0")
    assert "Attempt 2 of 5: it failed. ZeroDivisionError" in again
    assert "Forest" not in again  # the last one only, as published


@pytest.mark.parametrize("feedback", ["last", "history"])
@pytest.mark.parametrize(
    "code",
    ["\n" * 8191, "'''\n\"\"\"\n" * 800],
    ids=["lines", "quotes"],
)
def test_no_code_breaks_the_prompt(code: str, feedback: str) -> None:
    env = make(feedback=feedback)
    env.reset(seed=0)
    for _ in range(4):
        text, *_ = env.step(code)
        assert env.observation_space.contains(text)
        assert ast.parse(f"{text}pass").body[-1].name == "build_model"
        assert all(line.startswith("#") for line in text.partition("\n\nimport numpy as np\n")[0].split("\n"))


@pytest.mark.parametrize(
    "header",
    [
        {"error": "A" * 3000, "message": "could not be done " * 2000, "line": 2, "stdout": "and so " * 9000},
        {"error": "\U000e0001" * 3000, "message": "\U000e0001 " * 3000, "line": 2},
    ],
)
def test_no_report_breaks_the_prompt(header: dict[str, Any]) -> None:
    class Forged(Sandbox):
        def run(self, tasks: Sequence[Task], limits: Limits) -> list[Answer]:
            return [Answer(End.EXIT, 0, header, n_bytes=9)] * len(tasks)

    env = make(feedback="history", cache=False)
    env.unwrapped._evaluate.sandbox = Forged()
    code = f"class {'A' * 3000}(Exception): pass\nx = '" + "\U000e0001" * 1000 + "'  #"
    env.reset(seed=0)
    for _ in range(4):
        text, *_, info = env.step(code)
        assert info["status"] is Status.RUNTIME_ERROR
        assert env.observation_space.contains(text)
        assert ast.parse(f"{text}pass").body[-1].name == "build_model"
    env.unwrapped.set_state(env.unwrapped.get_state())


# ---------------------------------------------------------------------- texts of every kind


@pytest.mark.matrix
@settings(deadline=None, max_examples=50)
@given(st.text(st.characters(exclude_categories=()), max_size=80))
def test_any_text_is_an_attempt(text: str) -> None:
    env = make()
    env.reset(seed=0)
    *_, info = env.unwrapped.step_text(text)
    assert info["invalid_action"] is False
    assert info["status"] in Status


# ---------------------------------------------------------------------- copies


def test_a_state_goes_on_elsewhere() -> None:
    env, other = make(feedback="history"), make(feedback="history")
    env.reset(seed=0)
    env.step("1 / 0")
    other.reset(seed=1)
    other.unwrapped.set_state(env.unwrapped.get_state())
    for code in ("x = (", HONEST):
        assert env.step(code) == other.step(code)


# ---------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"dataset": "moons"}, "moons"),
        ({"scoring": "f1"}, r"scoring to be one of .*; got 'f1'"),
        ({"memory_limit": 2**44}, "memory_limit to be an integer from 1 to 1048576; got 17592186044416"),
        ({"splits": 101}, "splits to be a number from 1 to 100"),
        ({"banned": "SVC"}, "banned to be a sequence of names; got 'SVC'"),
    ],
)
def test_bad_arguments(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"Expected .*{message}"):
        make(**kwargs)
