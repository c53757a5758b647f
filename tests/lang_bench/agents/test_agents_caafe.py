"""CAAFE's division of labour: features by a function that plays a language model, classifier fixed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import pytest
from playing import Played, play

from lang_bench.agents import Agent, make_agent
from lang_bench.agents.caafe import body, features_of
from lang_envs.sandbox.extraction import CodeSyntaxError

BALANCE = "DataSciCoding-balance-scale-v0"
TORQUE = """\
The law of the lever should help.

```python
def new_features(x):
    # torque of either arm
    return x[:, 0] * x[:, 1] - x[:, 2] * x[:, 3]
```
"""
NOISE = "def new_features(x):\n    return np.sin(np.outer(1e4 * x @ [1, 6, 36, 216], np.arange(1, 30)))"
BROKEN = "import math\ndef new_features(x):\n    return x.torque"
GOING_ON = {"terminate_on_success": False}


class Model:
    """Returns given texts in order, the last of them for ever, and records its prompts."""

    def __init__(self, *said: str) -> None:
        self.said, self.asked = said, []

    def begin(self, env: object, seed: int) -> None:
        """Keep the prompts of earlier episodes."""

    def __call__(self, prompt: str) -> str:
        self.asked.append(prompt)
        return self.said[min(len(self.asked), len(self.said)) - 1]


@pytest.fixture
def around(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Agent]:
    def make(model: Model, **settings: Any) -> Agent:
        module = ModuleType("a_language_model")
        module.write = model
        monkeypatch.setitem(sys.modules, module.__name__, module)
        return make_agent("caafe:a_language_model:write", **settings)

    return make


def scores(steps: Sequence[Played]) -> list[float]:
    return [round(step.reward, 4) for step in steps]


def test_features_that_raise_the_score_are_kept_and_others_dropped(around: Callable[..., Agent]) -> None:
    model = Model(NOISE, BROKEN, TORQUE, NOISE)
    steps = play(BALANCE, around(model), **GOING_ON)
    alone, noise, broken, torque, more_noise = scores(steps)
    assert steps[0].decision.text == body("logistic", [])
    assert noise < alone < torque
    assert broken == -1
    assert more_noise < torque
    assert [step.info["status"] for step in steps] == ["ok", "ok", "runtime_error", "ok", "ok"]
    assert "np.sin" not in steps[3].decision.text  # dropped
    assert "x[:, 0] * x[:, 1]" in steps[4].decision.text  # kept
    assert len(model.asked) == 4


def test_the_model_is_told_the_task_and_what_became_of_its_features(around: Callable[..., Agent]) -> None:
    model = Model(NOISE, BROKEN, TORQUE, NOISE)
    steps = play(BALANCE, around(model), **GOING_ON)
    assert steps[0].observation in model.asked[0]
    assert f"The best score so far is {steps[0].reward:.4f}." in model.asked[0]
    assert "What was tried" not in model.asked[0]
    last = model.asked[-1]
    assert f"# Dropped: the score was {steps[1].reward:.4f}, no gain.\ndef new_features(x):\n    return np.sin" in last
    assert "# Dropped: it failed. AttributeError" in last
    assert f"# Kept: the score rose to {steps[3].reward:.4f}.\n" in last
    assert f"The best score so far is {steps[3].reward:.4f}." in last
    assert steps[3].decision.note == TORQUE


def test_where_code_that_runs_ends_the_episode_features_come_first_and_the_classifier_last(
    around: Callable[..., Agent],
) -> None:
    (step,) = play(BALANCE, around(Model(TORQUE)))
    assert step.info["success"]
    assert "features_1" in step.decision.text
    steps = play(BALANCE, around(Model(BROKEN)), max_attempts=3)
    assert [step.info["status"] for step in steps] == ["runtime_error", "runtime_error", "ok"]
    assert steps[-1].decision.text == body("logistic", [])


def test_an_answer_without_code_is_asked_for_again_and_is_no_attempt(around: Callable[..., Agent]) -> None:
    model = Model("I cannot do that.", TORQUE)
    steps = play(BALANCE, around(model), max_attempts=2, **GOING_ON)
    assert scores(steps)[1] > scores(steps)[0]
    assert "Your last answer held no such function" in model.asked[1]
    assert "I cannot do that." in model.asked[1]
    stubborn = Model("I cannot do that.")
    steps = play(BALANCE, around(stubborn, replies=2), max_attempts=2, **GOING_ON)
    assert steps[0].decision.text == steps[1].decision.text
    assert len(stubborn.asked) == 2


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ("def new_features(x):\n    return x ** 2", "def new_features(x):\n    return x ** 2\nreturn new_features(x)"),
        ("    y = x[:, 0]\n    return y * 2", "y = x[:, 0]\nreturn y * 2"),
        (
            "```python\nimport math\ndef new_features(table):\n    return table\n```",
            "import math\n\ndef new_features(table):\n    return table\nreturn new_features(x)",
        ),
    ],
)
def test_features_are_found_in_an_answer(reply: str, code: str) -> None:
    assert features_of(reply) == code


@pytest.mark.parametrize(
    "reply",
    ["no idea", "y = x[:, 0]", "def new_features(a, b):\n    return a"],
)
def test_answers_without_features_are_told_apart(reply: str) -> None:
    with pytest.raises(CodeSyntaxError):
        features_of(reply)
