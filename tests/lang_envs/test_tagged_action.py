"""`TaggedAction`: what answers of thought and action mean, and that everything of the environment works through it."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import gymnasium as gym
import pytest
from third_party import Doors, OpenDoors
from walk import same

from lang_bench.agents import make_agent
from lang_bench.runner.episodes import make_text_env, play_episode
from lang_envs import InfoError, LangEnvsError, TextObservation, language_env, oracle, show_actions
from lang_envs.agents import oracle_agent
from lang_envs.env_checker import Status, run_checks
from lang_envs.recording import record_episode
from lang_envs.wrappers import AdmissibleObservation, TaggedAction, TextAction

KITCHEN = "Overcooked-TomatoSalad-v0"
BOWL = "<action>take the bowl</action>"


def tagged(task: str = KITCHEN, **kwargs: Any) -> TaggedAction:
    return TaggedAction(gym.make(task, disable_env_checker=True, **kwargs))


gym.register("Tagged-v0", entry_point="test_tagged_action:tagged")


def after(answer: str, env: gym.Env[Any, Any] | None = None) -> tuple[float, dict[str, Any]]:
    """Reward and info after an answer at the start."""
    texts = TextAction(env or tagged(invalid_action_reward=-7.0))
    texts.reset(seed=0)
    _, reward, _, _, info = texts.step(answer)
    return float(reward), info


# ---------------------------------------------------------------------- answers

UNDERSTOOD = {
    BOWL: "",
    f"<think>It is empty.</think>\n{BOWL}\n": "It is empty.",
    f"It is empty.</think>{BOWL}": "It is empty.",
    "<THINK>It is empty.</Think> <ACTION>Take the bowl.</Action>": "It is empty.",
    f"<think>a</think>b<think>c</think>{BOWL}": "a\nbc",
    f"<think>Or {BOWL[:-9]}x</action>?</think>{BOWL}": "Or <action>take the bowlx</action>?",
    f"<think><think>a</think></think>{BOWL}": "a",
    f"<action>pick up the tomato</action> No, {BOWL}": "",
    f"<action>{BOWL}</action>": "",
    f"<action>pick up {BOWL}": "",
    f"{BOWL} <action>pick up": "",
    f"{BOWL}</action>": "",
    "<action>\n1. Action: 'take  the bowl'\n</action> as I said": "",
    f"<think>{'hm ' * 1000}</think>{BOWL}": ("hm " * 1000).strip(),
}


@pytest.mark.parametrize("answer", UNDERSTOOD, ids=lambda answer: answer[:60])
def test_an_answer_is_understood(answer: str) -> None:
    reward, info = after(answer)
    assert (info["thought"], info["answer_error"], info["invalid_action"]) == (UNDERSTOOD[answer], "", False)
    plain = gym.make(KITCHEN).unwrapped
    plain.reset(seed=0)
    assert reward == plain.step_text("take the bowl")[1]  # type: ignore[attr-defined]


WRONG = {
    "": "no <action>",
    "take the bowl": "no <action>",
    "take the bowl</action>": "no <action>",
    f"<think>{BOWL}</think>": "no <action>",
    f"{BOWL}</think>": "no <action>",
    f"<think>It is empty. {BOWL}": "no </think>",
    f"<think>a</think><think>{BOWL}": "no </think>",
    "<action>take the bowl": "no </action>",
    "</action>take the bowl<action>": "no </action>",
    "<action></action>": "nothing in <action>",
    f"{BOWL}<action> \n </action>": "nothing in <action>",
    "<action>eat the bowl</action>": "not an admissible action",
    "<action>take the bowl, pick up the tomato</action>": "not an admissible action",
    f"<action>{'bowl ' * 40}</action>": "not an admissible action",
    "<action>" * 500: "no </action>",
    f"<think>{'x' * 10_000}</think>{BOWL}": "too long",
}


@pytest.mark.parametrize("answer", WRONG, ids=lambda answer: answer[:60])
def test_a_wrong_answer_is_an_invalid_action_with_a_reason(answer: str) -> None:
    reward, info = after(answer)
    assert (info["answer_error"], info["invalid_action"]) == (WRONG[answer], True)
    plain = gym.make(KITCHEN, invalid_action_reward=-7.0).unwrapped
    plain.reset(seed=0)
    assert reward == plain.step_text(None)[1] < -6  # type: ignore[attr-defined]


def test_a_long_thought_takes_a_longer_space() -> None:
    env = TaggedAction(gym.make(KITCHEN), max_thought_length=10_100)
    _, info = after(f"<think>{'x' * 10_000}</think>{BOWL}", env)
    assert (len(info["thought"]), info["answer_error"]) == (10_000, "")


def test_tags_are_arguments() -> None:
    env = TaggedAction(gym.make(KITCHEN), ["[", "]"], ("(do)", "(done)"))
    assert "between [ and ], then write" in env.reset(seed=0)[0]
    assert after("[a*] (do)take the bowl(done)", env)[1]["thought"] == "a*"
    assert after(f"[a] {BOWL}", env)[1]["answer_error"] == "no (do)"
    assert oracle(env).startswith("(do)")


@pytest.mark.parametrize("tags", [("<a>", "<A>"), ("<a>", " "), ("<a>",), ("<a>", 3)])
def test_tags_that_cannot_be_told_apart_are_refused(tags: Any) -> None:
    with pytest.raises(LangEnvsError, match=r"Expected four different tags, two and two; got .* Fix: "):
        TaggedAction(gym.make(KITCHEN), action_tags=tags)


# ---------------------------------------------------------------------- environments


def test_the_observation_lists_the_actions_and_says_how_to_answer() -> None:
    plain, env = gym.make(KITCHEN), tagged(oracle_info=True)
    (text, info), (shown, outside) = plain.reset(seed=3), env.reset(seed=3)
    asked = "Think between <think> and </think>, then write one of these actions, word for word, between <action> and "
    assert shown == show_actions(text, info["admissible_actions"], f"{asked}</action>:")
    assert isinstance(shown, TextObservation)
    assert shown.admissible_actions is outside["admissible_actions"] is None
    assert env.get_wrapper_attr("admissible_actions")() == info["admissible_actions"]
    assert outside["oracle_action"] == oracle(env) == f"<action>{oracle(plain)}</action>"
    assert (plain.metadata.get("actions"), env.metadata["actions"]) == (None, "text")


def test_free_actions_stay_free_and_programs_programs() -> None:
    env = TaggedAction(OpenDoors())
    text, _ = env.reset(seed=0)
    asked = "Think between <think> and </think>, then write your action between <action> and </action>."
    assert text.endswith(f"You\n\n{asked}")
    assert after("<action>Open SESAME.</action>", env)[1]["invalid_action"] is False
    assert after("Open SESAME.", env)[1]["invalid_action"] is True
    assert tagged("DataSciCoding-iris-v0").metadata["actions"] == "code"


def shouted(env: TaggedAction, n_steps: int) -> list[Any]:
    """Steps whose answers need the list of actions to be understood."""
    return [env.step(env.action_space.encode(oracle(env).upper())) for _ in range(n_steps)]


def with_the_state_of(env: TaggedAction) -> TaggedAction:
    other = tagged("VirtualHome-Entertainment-v0", shuffle_actions=True)
    other.reset(seed=6)  # other actions are listed there
    other.unwrapped.set_state(env.unwrapped.get_state())  # type: ignore[attr-defined]
    return other


@pytest.mark.parametrize("move", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env)), with_the_state_of])
def test_an_episode_goes_on_in_a_copy_and_from_a_state(move: Any) -> None:
    env = tagged("VirtualHome-Entertainment-v0", shuffle_actions=True)
    env.reset(seed=5)
    shouted(env, 5)
    other = move(env)
    steps = shouted(env, 4)
    assert same(shouted(other, 4), steps)
    assert not any(info["answer_error"] for *_, info in steps)


NOTHING_LISTED = {"admissible_actions_method", "listed_actions", "near_misses"}
MINIMAL = {"state", "oracle", "render_ansi", "render_rgb_array", "rendering_changes_nothing"}


@pytest.mark.parametrize(
    ("kwargs", "left_out"),
    [({"oracle_info": True}, set()), ({"task": "third_party:ThirdParty/OpenDoors-v0"}, MINIMAL)],
    ids=["listed", "free, minimal"],
)
def test_the_contract_holds(kwargs: dict[str, Any], left_out: set[str]) -> None:
    results = run_checks("Tagged-v0", **kwargs)
    assert [result for result in results if result.status is Status.FAILED] == []
    assert {result.name for result in results if result.status is Status.SKIPPED} == NOTHING_LISTED | left_out


def test_oracles_answer_in_tags() -> None:
    assert isinstance(language_env(TextAction(gym.make("Tagged-v0"))), TaggedAction)
    assert record_episode("Tagged-v0", oracle_agent()).success
    assert play_episode(make_text_env("Tagged-v0"), make_agent("oracle"), 0, 1.0).success
    bare = TaggedAction(Doors())
    bare.reset(seed=0)
    with pytest.raises(NotImplementedError, match="has no oracle"):
        oracle(bare)


def test_what_is_no_language_environment_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Expected an environment with TextSpace observations and .* Fix: "):
        TaggedAction(AdmissibleObservation(gym.make(KITCHEN)))  # type: ignore[arg-type]
    unlisted = Doors()
    unlisted.info = lambda **_: {}  # type: ignore[method-assign, assignment]
    with pytest.raises(InfoError, match="admissible_actions"):
        TaggedAction(unlisted).reset()
