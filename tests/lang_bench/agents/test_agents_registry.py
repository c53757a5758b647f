"""Agents by name: kinds, settings, and the allowed objects of a user's own module."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from pathlib import Path

import pytest
from playing import play, texts

from lang_bench.agents import AgentError, make_agent, registry
from lang_envs import MissingExtraError

FOOD = "VirtualHome-FoodPreparation-v0"
MODULE = '''
from lang_bench.agents import Agent, Decision

def first(text):
    return next(line for line in text.split("\\n") if line.startswith("- "))[2:]

def last(observation, info):
    return info["admissible_actions"][-1]

def chosen(observation, info, *, place=0):
    return info["admissible_actions"][place]

def drawn(observation, info, *, rng):
    return info["admissible_actions"][rng.integers(len(info["admissible_actions"]))]

class Counting:
    """A new one for every agent; it counts its calls."""
    def __init__(self, start=0):
        self.n = start
    def __call__(self, text):
        self.n += 1
        return str(self.n)

class Own(Agent):
    def __init__(self, word="wait"):
        self.settings = {"of": "mine"}
        self.word = word
    def act(self, observation, info):
        return Decision(self.word, note="said so")

def made():
    return Own("made")

own = Own("kept")
own.name = "kept"
many = lambda a, b, c: a
number = 3
nothing = lambda text: None
def broken(): return 7
'''


WRAPPED = """
import functools

def made():
    return Own()

@functools.wraps(first)
def wrapped(text):
    return first(text)

cached = functools.lru_cache(first)
part = functools.partial(chosen, place=0)
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's module, in the folder where the command is run."""
    (tmp_path / "agents_of_a_user.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "agents_of_a_user", raising=False)


def test_a_function_of_three_lines_from_text_to_text_is_an_agent() -> None:
    agent = make_agent("agents_of_a_user:first")
    steps = play(FOOD, agent, most=3)
    assert agent.name == "agents_of_a_user:first"
    assert not any(step.info["invalid_action"] for step in steps)
    assert len(agent.settings["source_sha256"]) == 16


@pytest.mark.parametrize("name", ["first", "Own", "cached"])
def test_another_text_of_the_file_is_another_agent(name: str) -> None:
    """The change may be in a prompt or a helper beside the function."""
    path = Path("agents_of_a_user.py")
    before = MODULE + WRAPPED

    def digest(text: str) -> object:
        path.write_text(text, encoding="utf-8")
        sys.modules.pop("agents_of_a_user", None)
        importlib.invalidate_caches()
        return make_agent(f"agents_of_a_user:{name}").settings["source_sha256"]

    assert digest(before) == digest(before) != digest(f"{before}\nPROMPT = 'Please!'\n")


def test_the_actions_stand_below_the_observation_unless_that_is_switched_off() -> None:
    seen: list[str] = []
    sys.modules["agents_of_a_user"] = type(sys)("agents_of_a_user")
    sys.modules["agents_of_a_user"].watch = lambda text: seen.append(text) or "?"
    steps = play(FOOD, make_agent("agents_of_a_user:watch"), most=1)
    play(FOOD, make_agent("agents_of_a_user:watch", show_actions=False), most=1)
    assert seen[1] == steps[0].observation
    assert seen[0].startswith(seen[1])
    assert "\n- walk to the " in seen[0]


def test_keyword_only_arguments_are_settings_and_rng_is_the_chance_of_the_episode() -> None:
    agent = make_agent("agents_of_a_user:chosen", place=1)
    assert agent.settings["place"] == 1
    drawn = make_agent("agents_of_a_user:drawn")
    first, second = (texts(play(FOOD, drawn, seed=seed)) for seed in (3, 4))
    assert texts(play(FOOD, drawn, seed=3)) == first != second
    with pytest.raises(AgentError, match=r"got 'rng'. Known: it has none"):
        make_agent("agents_of_a_user:drawn", rng=1)


def test_classes_functions_that_make_agents_and_agents_are_understood() -> None:
    assert texts(play(FOOD, make_agent("agents_of_a_user:Counting", start=5), most=2)) == ["6", "7"]
    own = make_agent("agents_of_a_user:Own", word="jump")
    assert play(FOOD, own, most=1)[0].decision.note == "said so"
    assert own.settings.items() >= {"of": "mine", "word": "jump"}.items()
    assert own.name == "agents_of_a_user:Own"
    assert texts(play(FOOD, make_agent("agents_of_a_user:made"), most=1)) == ["made"]
    assert make_agent("agents_of_a_user:own").name == "kept"
    assert make_agent("builtins:str.upper").act("hallo", {"admissible_actions": None}).text == "HALLO"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("agents_of_a_user:many", "needs 3 arguments"),
        ("agents_of_a_user:number", "Expected a callable or an Agent .* got int"),
        ("agents_of_a_user:broken", "to make an Agent or a callable; it made int"),
        ("no_such_module:agent", "cannot be imported .ModuleNotFoundError"),
        ("rondom", "Expected an agent as KIND.* got 'rondom'. Kinds: .*random"),
        ("random:3", "Expected 'random' alone"),
        ("scripted", "Expected scripted:FILE; got 'scripted' alone"),
    ],
)
def test_what_is_no_agent_is_refused(spec: str, message: str) -> None:
    with pytest.raises(AgentError, match=message):
        make_agent(spec)


@pytest.mark.parametrize("name", ["counting.count", "bound", "part_of_bound"])
def test_a_bound_method_remembers_as_its_object_does(name: str) -> None:
    more = """
import functools

class Bound(Counting):
    def count(self, text):
        return self(text)

class Forgets(Bound):
    def begin(self, env, seed):
        self.n = seed

counting = Bound()
def bound():
    return Bound().count
def part_of_bound():
    return functools.partial(Bound().count)
def forgets():
    return Forgets().count
"""
    Path("agents_of_a_user.py").write_text(MODULE + more, encoding="utf-8")
    agent = make_agent(f"agents_of_a_user:{name}")
    play(FOOD, agent, most=2)
    with pytest.raises(AgentError, match="its 'n' has changed since the first"):
        play(FOOD, agent, most=2)
    forgets = make_agent("agents_of_a_user:forgets")
    assert [texts(play(FOOD, forgets, seed=3, most=2)) for _ in range(2)] == [["4", "5"]] * 2


def test_unknown_settings_and_wrong_types_are_refused_with_what_is_known() -> None:
    with pytest.raises(AgentError, match=r"got 'spoilt'. Known: spoiled"):
        make_agent("coder", spoilt=0.1)
    with pytest.raises(AgentError, match=r"to be float; got True"):
        make_agent("coder", spoiled=True)
    assert make_agent("coder", spoiled=1).settings == {"spoiled": 1}
    with pytest.raises(AgentError, match=r"got 'place'. Known: show_actions"):
        make_agent("agents_of_a_user:first", place=0)


@pytest.mark.parametrize(
    ("spec", "package", "extra"),
    [("openai:m", "openai", "openai"), ("hf:pocket", "transformers", "llm")],
)
def test_a_missing_extra_is_named(spec: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def factory() -> None:
        raise ModuleNotFoundError("gone", name=package)

    monkeypatch.setattr(registry, "_factory", lambda _: lambda *argument: factory())
    with pytest.raises(MissingExtraError, match=rf"extra '{extra}' .*\[{extra}\]"):
        make_agent(spec)
