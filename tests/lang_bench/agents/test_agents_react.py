"""ReAct around agents that write texts, and around others."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import pytest
from playing import play, texts

from lang_bench.agents import Agent, AgentError, make_agent
from lang_bench.agents.base import Decision
from lang_bench.agents.react import ReactAgent
from lang_bench.runner.episodes import Step, make_text_env, play_episode

FOOD, CODING = "VirtualHome-FoodPreparation-v0", "DataSciCoding-iris-v0"
Say = Callable[[str], str]


@pytest.fixture
def around(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Agent]:
    """ReAct around a function from text to text."""

    def make(say: Say, **settings: Any) -> Agent:
        module = ModuleType("an_inner_agent")
        module.say = say
        monkeypatch.setitem(sys.modules, module.__name__, module)
        return make_agent("react:an_inner_agent:say", **settings)

    return make


def test_the_thought_is_noted_and_the_action_is_taken(around: Callable[..., Agent]) -> None:
    agent = around(
        lambda _: "Thought: I am hungry.\nSo I go.\nAction: Walk to the living room.\nObservation: I made it"
    )
    (step,) = play(FOOD, agent, most=1)
    assert step.decision.note == "I am hungry.\nSo I go."
    assert step.decision.text == "walk to the living room"
    assert not step.info["invalid_action"]


@pytest.mark.parametrize(
    ("reply", "thought", "action"),
    [
        ("**Thought:** hm\n**Action:** jump", "hm", "jump"),
        ("jump", "", "jump"),
        ("Action: jump\nAction: run", "", "jump\nAction: run"),
        ("```\nThought: hm\nAction: jump\n```", "hm", "jump"),
        ("Thought: hm. Action: jump", "hm.", "jump"),
        ("Thought: Action: jump failed. Action: run. Observation: I ran", "Action: jump failed.", "run."),
        ("```python\naction: int = 3\n```", "", "```python\naction: int = 3\n```"),
        ("Thought: my Action: is clear\nAction: jump", "my Action: is clear", "jump"),
    ],
)
def test_answers_are_taken_apart(around: Callable[..., Agent], reply: str, thought: str, action: str) -> None:
    (step,) = play(FOOD, around(lambda _: reply), most=1)
    assert (step.decision.note, step.decision.text) == (thought, action)


def test_earlier_steps_of_this_episode_stand_before_the_observation(around: Callable[..., Agent]) -> None:
    seen: list[str] = []

    def say(prompt: str) -> str:
        seen.append(prompt)
        return f"Thought: number {len(seen)}\nAction: jump"

    agent = around(say)
    steps = play(FOOD, agent, most=3)
    past = [f"Observation: {step.observation}\nThought: number {n}\nAction: jump" for n, step in enumerate(steps, 1)]
    assert seen[0].count("Observation: ") == 1
    assert f"\n\n{past[0]}\n{past[1]}\nObservation: {steps[2].observation}\n\nThe action must be one" in seen[2]
    play(FOOD, agent, most=1)
    assert seen[3] == seen[0]


@pytest.mark.parametrize("show", [True, False])
def test_the_list_is_shown_as_the_inner_agent_is_told(around: Callable[..., Agent], *, show: bool) -> None:
    seen: list[str] = []
    (step,) = play(FOOD, around(lambda text: seen.append(text) or "jump", show_actions=show), most=1)
    assert (f"- {step.actions[0]}" in seen[0]) is show
    assert "nothing else:" not in seen[0]  # of an action alone, that is


def test_the_oldest_steps_are_left_out_beyond_the_budget(around: Callable[..., Agent]) -> None:
    seen: list[str] = []
    agent = around(lambda prompt: seen.append(prompt) or f"Action: jump {len(seen)}", budget=900)
    steps = play(FOOD, agent, most=9)
    shown = [n for n in range(1, 9) if f"Action: jump {n}\n" in seen[-1]]
    assert 0 < len(shown) < 8
    assert shown == list(range(9 - len(shown), 9))
    assert "(earlier steps are left out)" in seen[-1]
    assert len(seen[-1]) <= len(seen[0]) - len(steps[0].observation) + len(steps[-1].observation) + 900 + 200
    alone = around(lambda prompt: seen.append(prompt) or "jump", budget=0)
    play(FOOD, alone, most=2)
    assert "Action: jump" not in seen[-1]
    assert "(earlier steps are left out)" in seen[-1]


def test_a_program_in_a_fence_is_left_as_it_is(around: Callable[..., Agent]) -> None:
    for reply in (
        "```python\n# Action: fit\nmodel = GaussianNB().fit(x_train, y_train)\n```",
        "```\nThought: bayes\n```\nAction:\n```python\nmodel = GaussianNB().fit(x_train, y_train)\n```",
    ):
        (step,) = play(CODING, around(lambda _, reply=reply: reply), most=1)
        assert step.info["code"].endswith("model = GaussianNB().fit(x_train, y_train)")
        assert ("# Action: fit" in step.info["code"]) is ("# Action: fit" in reply)


def test_an_inner_agent_is_asked_for_fields_and_the_value_of_the_end() -> None:
    class Critic(Agent):
        name, settings, texts = "critic", {}, []

        def act(self, observation: str, info: Mapping[str, Any]) -> Decision:
            assert self.records_steps
            return Decision(info["admissible_actions"][0])

        def step_fields(self) -> Mapping[str, Any]:
            return {"token_options": [2]}

        def final_value(self, observation: str, info: Mapping[str, Any]) -> float:
            self.texts.append(observation)
            return 0.5

    steps: list[Step] = []
    env = make_text_env(FOOD, {"max_steps": 2})
    play_episode(env, ReactAgent(Critic()), 0, 1.0, steps.append)
    assert [dict(step.fields) for step in steps] == [{"token_options": [2]}] * 2
    assert [step.final_value for step in steps] == [None, 0.5]
    assert Critic.texts[0].count("Action: ") == 2  # the steps before it, as in `act`
    assert Critic.texts[0].endswith(steps[-1].next_observation)


def test_an_agent_that_writes_no_texts_acts_on_the_longer_text() -> None:
    agent = make_agent("react:random")
    assert texts(play(FOOD, agent, seed=2)) == texts(play(FOOD, make_agent("random"), seed=2))
    assert agent.name == "react:random"


def test_settings_go_to_who_knows_them(around: Callable[..., Agent]) -> None:
    assert around(lambda _: "", budget=7).settings["budget"] == 7
    assert make_agent("react:coder", spoiled=0.25, budget=3).settings["spoiled"] == 0.25
    with pytest.raises(AgentError, match=r"settings of 'coder'; got 'spoilt'. Known: spoiled"):
        make_agent("react:coder", spoilt=0.25)
    with pytest.raises(AgentError, match="budget in characters, 0 or more; got -1"):
        make_agent("react:random", budget=-1)
    with pytest.raises(AgentError, match="Expected budget of 'react' to be int; got 'much'"):
        make_agent("react:random", budget="much")
