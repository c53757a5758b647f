"""`DataSciCodingEnv`: episodes, rewards, observations, and no text makes it raise."""

from __future__ import annotations

import ast
import random
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st
from walk import IDS

from lang_envs import ENV_ROWS, EncodingError, oracle
from lang_envs.datasets import load
from lang_envs.env_checker import CHECKS, maker, run_check
from lang_envs.envs.datascicoding.describe import Remark, observation
from lang_envs.envs.datascicoding.env import DataSciCodingEnv
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


def test_improving_without_any_code_that_runs_truncates() -> None:
    env = make(terminate_on_success=False, max_attempts=2)
    env.reset(seed=0)
    flags = []
    for _ in range(2):
        _, _, terminated, truncated, info = env.step("1 / 0")
        flags.append((terminated, truncated, info["success"]))
    assert flags == [(False, False, False), (False, True, False)]


@pytest.mark.parametrize("name", ["rewards_and_flags", "oracle", "step_after_the_end"])
def test_improving_conforms(name: str) -> None:
    make_it = maker("DataSciCoding-iris-v0", terminate_on_success=False)
    result = run_check(next(check for check in CHECKS if check.name == name), make_it)
    assert result.status.value == "passed", result.message


def test_failure_reward() -> None:
    env = make(failure_reward=-0.25)
    env.reset(seed=0)
    assert env.step("")[1] == -0.25


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


@pytest.mark.parametrize("env_id", [row.id for row in ENV_ROWS if row.trial])
def test_the_oracles_code_runs_on_any_table(env_id: str) -> None:
    env = TextAction(gym.make(env_id))
    env.reset(seed=0)
    assert env.step(oracle(env))[-1]["status"] is Status.OK


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "Expected a table and the column to predict; at least one is missing"),
        ({"table": {"a": [1]}}, "at least one is missing"),
        ({"table": OWN, "target": "kind", "data": "synthetic"}, "Expected no data and no preprocessing with one's own"),
        ({"table": OWN, "target": "kind", "preprocessing": "published"}, "Expected no data and no preprocessing"),
        ({"table": OWN, "target": "sort"}, "kind"),
        ({"dataset": "iris", "target": "kind"}, "Expected table, target and description with an environment for one's"),
        ({"dataset": "iris", "table": OWN}, "got them with dataset='iris'"),
        ({"dataset": "iris", "description": "Flowers."}, "got them with dataset='iris'"),
    ],
)
def test_what_is_no_table_to_make_an_environment_of(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DataSciCodingEnv(**{"dataset": None, **arguments})


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


def test_made_up_rows_say_so() -> None:
    env = gym.make("DataSciCoding-airlines-v0", data="synthetic", render_mode="ansi")
    text, info = env.reset(seed=0)
    assert info["data"] == "synthetic"
    assert info["source"].startswith("made up")
    assert "SYNTHETIC DATA" in text
    assert "SYNTHETIC DATA" in env.render()
    assert gym.make("DataSciCoding-wine-v0").reset(seed=0)[1]["data"] == "real"


def test_published_and_other_splits() -> None:
    def rewards(splits: Any) -> tuple[float, ...]:
        env = make(splits=splits)
        env.reset(seed=0)
        return env.step(HONEST)[-1]["auc_splits"]

    assert rewards(5) == rewards((0, 1, 2, 3, 4)) == rewards(range(5))
    assert rewards((3, 1)) == (rewards(5)[3], rewards(5)[1])
    assert len(rewards(range(5, 25))) == 20


def test_other_tables_by_argument() -> None:
    env = make(dataset="balance-scale-full")
    text, _ = env.reset(seed=0)
    assert "625 rows, 4 numeric features and 3 classes" in text.replace("\n# ", " ")


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


def test_no_column_is_described() -> None:
    from sklearn.datasets import load_breast_cancer, load_iris, load_wine

    for env_id, loader in (("wine", load_wine), ("iris", load_iris), ("breast-cancer", load_breast_cancer)):
        text, _ = gym.make(f"DataSciCoding-{env_id}-v0").reset(seed=0)
        assert [name for name in loader().feature_names if name in text] == []


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


def test_the_whole_history_on_request() -> None:
    env = make(feedback="history")
    env.reset(seed=0)
    for code in ("1 / 0", "x = Forest()", "y = ("):
        text, *_ = env.step(code)
    assert [f"Attempt {n}" in text for n in (1, 2, 3, 4)] == [True, True, True, False]


@pytest.mark.matrix_after(4)
@pytest.mark.parametrize("feedback", ["last", "history"])
@pytest.mark.parametrize(
    "code",
    ["\n" * 8191, "#" * 8191, "\x00" * 8191, "é" * 4095, "'''\n\"\"\"\n" * 800, "\u2028" * 2700, "x = 1\n" * 1300],
    ids=["lines", "one line", "NUL", "two bytes", "quotes", "separators", "program"],
)
def test_no_code_breaks_the_prompt(code: str, feedback: str) -> None:
    env = make(feedback=feedback)
    env.reset(seed=0)
    for _ in range(4):
        text, *_ = env.step(code)
        assert env.observation_space.contains(text)
        assert ast.parse(f"{text}pass").body[-1].name == "build_model"
        assert all(line.startswith("#") for line in text.partition("\n\nimport numpy as np\n")[0].split("\n"))


@pytest.mark.matrix_after(2)
@pytest.mark.parametrize("feedback", ["last", "history"])
@pytest.mark.parametrize(
    "header",
    [
        {"error": "A" * 3000, "line": 1},
        {"error": "A" * 3000, "message": "could not be done " * 2000, "line": 2, "stdout": "and so " * 9000},
        {"error": "\U000e0001" * 3000, "message": "\U000e0001 " * 3000, "line": 2},
    ],
)
def test_no_report_breaks_the_prompt(header: dict[str, Any], feedback: str) -> None:
    class Forged(Sandbox):
        def run(self, tasks: Sequence[Task], limits: Limits) -> list[Answer]:
            return [Answer(End.EXIT, 0, header, n_bytes=9)] * len(tasks)

    env = make(feedback=feedback, cache=False)
    env.unwrapped._evaluate.sandbox = Forged()
    code = f"class {'A' * 3000}(Exception): pass\nx = '" + "\U000e0001" * 1000 + "'  #"
    env.reset(seed=0)
    for _ in range(4):
        text, *_, info = env.step(code)
        assert info["status"] is Status.RUNTIME_ERROR
        assert env.observation_space.contains(text)
        assert ast.parse(f"{text}pass").body[-1].name == "build_model"
    env.unwrapped.set_state(env.unwrapped.get_state())


def test_a_verdict_is_cut() -> None:
    cut, whole = (observation(load("iris"), "roc_auc", 5, [Remark(1, "", "\0" * n)]) for n in (1000, 175))
    assert r"\x00\x00" in whole
    assert "(cut)" not in whole
    (line,) = (line for line in cut.split("\n") if line.startswith("# Attempt 1 of 5: "))
    assert line.endswith(" (cut)")
    assert len(line) == len("# Attempt 1 of 5: ") + 700


# ---------------------------------------------------------------------- texts of every kind


def test_an_integer_of_four_thousand_digits_is_code() -> None:
    env = make()
    env.reset(seed=0)
    assert env.step("x = 0x" + "f" * 4000)[-1]["status"] is Status.RUNTIME_ERROR


def test_code_of_the_largest_size() -> None:
    env = make()
    code = HONEST + "\n#" + "x" * (8192 - len(HONEST) - 2)
    assert len(code.encode()) == 8192
    env.reset(seed=0)
    assert env.step(code)[-1]["status"] is Status.OK
    with pytest.raises(EncodingError, match="Expected a text of at most 8192 tokens; got 8193"):
        env.unwrapped.action_space.encode(code + "x")


@pytest.mark.matrix
def test_a_thousand_random_byte_strings() -> None:
    env = gym.make("DataSciCoding-balance-scale-v0", max_attempts=10**6)
    env.reset(seed=0)
    rng = random.Random(0)
    alphabets = [bytes(range(256)), b"\n\t (){}[]:=.,'\"#x1", b" \n\\", b"def return model import lambda yield"]
    seen = set()
    for number in range(1000):
        alphabet = alphabets[number % len(alphabets)]
        data = bytes(rng.choice(alphabet) for _ in range(rng.choice((0, 1, 3, 30, 300, 8191))))
        action = np.full(env.action_space.max_length, 256)
        action[: len(data)] = list(data)
        _, reward, terminated, _, info = env.step(action)
        assert (reward, terminated, info["invalid_action"]) == (-1.0, False, False)
        seen.add(info["status"])
    assert seen >= {Status.SYNTAX_ERROR, Status.RUNTIME_ERROR}


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
    one, other = make(feedback="history"), make(feedback="history")
    one.reset(seed=0)
    one.step("1 / 0")
    other.reset(seed=1)
    other.unwrapped.set_state(one.unwrapped.get_state())
    for code in ("x = (", HONEST):
        assert one.step(code) == other.step(code)


@pytest.mark.parametrize("cache", [True, False])
def test_the_same_code_gets_the_same_reward(cache: bool) -> None:
    code = """
import random
from sklearn.ensemble import RandomForestClassifier
model = RandomForestClassifier(20, max_depth=random.randint(2, 6)).fit(x_train, y_train)"""
    splits = []
    for _ in range(2):
        env = make(cache=cache)
        env.reset(seed=0)
        splits.append(env.step(code)[-1]["auc_splits"])
    assert splits[0] == splits[1]
    assert len(splits[0]) == 5


@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_vector_environments_without_a_cache(kind: Any) -> None:
    envs = kind([lambda: gym.make("DataSciCoding-balance-scale-v0", cache=False)] * 2)
    envs.reset(seed=0)
    encode = envs.single_action_space.encode
    texts, rewards, terminated, _, info = envs.step(np.stack([encode(HONEST), encode("1 / 0")]))
    assert rewards.tolist() == [pytest.approx(0.7858, abs=1e-4), -1.0]
    assert terminated.tolist() == [True, False]
    assert info["status"].tolist() == [Status.OK, Status.RUNTIME_ERROR]
    assert "ZeroDivisionError" in texts[1]
    envs.close()


# ---------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"dataset": "moons"}, "moons"),
        ({"feedback": "all"}, r"feedback to be one of .*; got 'all'"),
        ({"scoring": "f1"}, r"scoring to be one of .*; got 'f1'"),
        ({"confinement": "none"}, r"confinement to be one of .*; got 'none'"),
        ({"max_attempts": 0}, "max_attempts to be an integer from 1 to 1000000; got 0"),
        ({"max_attempts": 10**6 + 1}, "max_attempts to be an integer from 1 to 1000000; got 1000001"),
        ({"memory_limit": 1.5}, "memory_limit to be an integer from 1 to 1048576; got 1.5"),
        ({"memory_limit": 2**44}, "memory_limit to be an integer from 1 to 1048576; got 17592186044416"),
        ({"time_limit": 0}, "time_limit to be a positive number of seconds, at most 86400; got 0"),
        ({"time_limit": 10**400}, "time_limit to be a"),
        ({"time_limit": float("inf")}, "time_limit to be a positive number of seconds, at most 86400; got inf"),
        ({"time_limit": 1e6}, "time_limit to be a positive number of seconds, at most 86400; got 1000000.0"),
        ({"failure_reward": float("nan")}, "failure_reward to be a finite number; got nan"),
        ({"splits": 0}, "splits to be a number from 1 to 100"),
        ({"splits": 101}, "splits to be a number from 1 to 100"),
        ({"splits": (1, 1)}, "splits to be a number from 1 to 100, or that many different"),
        ({"splits": (-1,)}, "splits to be"),
        ({"splits": "05"}, "splits to be"),
        ({"splits": True}, "splits to be"),
        ({"banned": "SVC"}, "banned to be a sequence of names; got 'SVC'"),
        ({"banned": None}, "banned to be a sequence of names; got None. Fix: .* or \\(\\) for none"),
        ({"banned": ("not a name",)}, "banned to be a sequence of names"),
    ],
)
def test_bad_arguments(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"Expected .*{message}"):
        make(**kwargs)


@pytest.mark.parametrize("kwargs", [{"time_limit": 86_400}, {"memory_limit": 1 << 20}])
def test_the_largest_limits_work(kwargs: dict[str, Any]) -> None:
    env = make(cache=False, **kwargs)
    env.reset(seed=0)
    assert env.step(WORSE)[1] == 0.5


@pytest.mark.parametrize("name", ["terminate_on_success", "cache"])
def test_flags_are_flags(name: str) -> None:
    with pytest.raises(TypeError, match=f"Expected {name} to be True or False; got 1"):
        make(**{name: 1})
