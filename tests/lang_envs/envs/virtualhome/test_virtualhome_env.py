"""`VirtualHomeEnv`: steps, refusals, limits, returns, and the fields of its info."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from home_graph import LIMIT, home_graph

from lang_envs import LangEnvsError
from lang_envs.envs.virtualhome.env import VirtualHomeEnv
from lang_envs.envs.virtualhome.rules import AT_START, IN_HAND, ItemState

HEAT, WATCH = "food-preparation", "entertainment"
BOTH = pytest.mark.parametrize("name", [HEAT, WATCH])
FIELDS = {"admissible_actions", "features", "command_succeeded", "success", "invalid_action"}


def say(env: VirtualHomeEnv, *commands: int) -> tuple[str, float, bool, bool, dict[str, Any]]:
    """Say the phrases of some valid commands; return the last step."""
    for number in commands:
        step = env.step_text(env.command_set[number])
        assert step[-1]["invalid_action"] is False
    return step


def begun(name: str, *commands: int, **kwargs: Any) -> VirtualHomeEnv:
    """An environment after some commands; none may be refused or end the episode."""
    env = VirtualHomeEnv(name, **kwargs)
    env.reset(seed=0)
    for number in commands:
        _, _, terminated, truncated, info = say(env, number)
        assert (info["command_succeeded"], terminated, truncated) == (True, False, False)
    return env


# ---------------------------------------------------------------------- every step


@pytest.mark.parametrize(("name", "n_features"), [(HEAT, 11), (WATCH, 21)])
def test_info(name: str, n_features: int) -> None:
    env = VirtualHomeEnv(name)
    _, info = env.reset()
    assert set(info) == FIELDS
    assert (info["features"].dtype, info["features"].shape) == (np.int64, (n_features,))
    assert (info["command_succeeded"], info["success"], info["invalid_action"]) == (False, False, False)
    *_, info = say(env, 0)
    assert set(info) == FIELDS
    assert info["command_succeeded"] is env.last_command_succeeded is True
    *_, info = env.step_text("nonsense")
    assert set(info) == FIELDS
    assert info["command_succeeded"] is env.last_command_succeeded is False
    say(env, 0)
    _, info = env.reset()
    assert info["command_succeeded"] is env.last_command_succeeded is False


@pytest.mark.filterwarnings("ignore:.*after the end of the episode changes nothing")
def test_after_the_end_no_command_succeeds() -> None:
    env = begun(HEAT, 4, 6, 5, 8, 7)
    assert say(env, 9)[-1]["command_succeeded"] is True
    assert say(env, 9)[-1]["command_succeeded"] is False


@BOTH
def test_every_command_in_every_state(name: str) -> None:
    """Against the rules: next state, observation, and that a refused command costs only time."""
    env, graph = VirtualHomeEnv(name), home_graph(name)
    env.reset()
    captured = env.get_state()
    del captured["digest"]
    n_tried = 0
    for number in graph.going_on:
        world = captured["world"]._replace(state=graph.states[number], steps=7, succeeded=False)
        for command, phrase in enumerate(env.command_set):
            env.set_state(captured | {"world": world})
            _, reward, terminated, truncated, info = env.step_text(phrase)
            after = graph.after[number, command]
            assert env.home_state == graph.states[after]
            assert env.elapsed_steps == 8
            assert (reward, terminated, truncated) == (float(graph.goal[after]), graph.goal[after], False)
            assert info["success"] is terminated
            assert info["invalid_action"] is False
            assert info["command_succeeded"] is bool(graph.succeeds[number, command])
            assert tuple(info["features"]) == graph.features[after]
            if not terminated:
                assert tuple(map(env.command_set.index, info["admissible_actions"])) == graph.lists[after]
            n_tried += 1
    assert n_tried == {HEAT: 51 * 10, WATCH: 572 * 17}[name]


@BOTH
def test_an_invalid_text_changes_nothing_but_the_time_in_every_state(name: str) -> None:
    env, graph = VirtualHomeEnv(name), home_graph(name)
    env.reset()
    captured = env.get_state()
    del captured["digest"]
    for number in graph.going_on:
        world = captured["world"]._replace(state=graph.states[number], steps=7, succeeded=True)
        env.set_state(captured | {"world": world})
        listed = env.admissible_actions()
        _, reward, terminated, truncated, info = env.step_text("walk to the attic")
        assert env.get_state()["world"] == world._replace(steps=8, succeeded=False)
        assert (reward, terminated, truncated) == (0.0, False, False)
        assert (info["invalid_action"], info["command_succeeded"], info["success"]) == (True, False, False)
        assert info["admissible_actions"] == listed


# name: (task, commands before, the listed command that is then refused)
REFUSED = {
    "putting into a closed microwave": (HEAT, (4, 6, 5), "put the pancake in the microwave"),
    "opening an open door": (HEAT, (5, 8), "open the microwave"),
    "closing a closed door": (HEAT, (5,), "close the microwave"),
    "turning off a TV that is off": (WATCH, (0, 7), "turn off the TV"),
    "turning on with both hands full": (WATCH, (4, 9, 5, 10, 0, 7), "turn on the TV"),
    "standing up while standing": (WATCH, (0, 7, 13, 8), "stand up from the sofa"),
    "walking while sitting": (WATCH, (0, 7, 13, 8, 15), "walk to the kitchen"),
    "walking to the milk on the table instead of the chips": (WATCH, (5, 10, 0, 6, 12, 1), "walk to the milk"),
    "walking to the chips on the table instead of the milk": (WATCH, (4, 9, 0, 6, 11, 1), "walk to the chips"),
}


@pytest.mark.parametrize(("name", "before", "phrase"), REFUSED.values(), ids=REFUSED)
def test_listed_but_refused(name: str, before: tuple[int, ...], phrase: str) -> None:
    env = begun(name, *before)
    state = env.home_state
    assert phrase in env.admissible_actions()
    _, reward, terminated, truncated, info = env.step_text(phrase)
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert (info["command_succeeded"], info["invalid_action"]) == (False, False)
    assert (env.home_state, env.elapsed_steps) == (state, len(before) + 1)


# name: (task, commands before, the unlisted command that then succeeds)
UNLISTED = {
    "taking back out of the microwave": (HEAT, (4, 6, 5, 8, 7), "grab the pancake"),
    "taking back from the coffee table": (WATCH, (4, 9, 0, 6, 11), "grab the chips"),
    "taking back where only the table is near": (WATCH, (5, 10, 0, 6, 12, 0, 6), "grab the milk"),
    "walking to the room one is in": (HEAT, (), "walk to the kitchen"),
    "walking to the chips in hand in the living room": (WATCH, (4, 9, 0), "walk to the chips"),
    "walking to the milk on the coffee table": (WATCH, (5, 10, 0, 6, 12), "walk to the milk"),
    "sitting while the TV is off": (WATCH, (0, 8), "sit on the sofa"),
    "putting the second thing down": (WATCH, (4, 9, 5, 10, 0, 6, 11), "put the milk on the coffee table"),
    "turning off a TV that is on": (WATCH, (0, 7, 13), "turn off the TV"),
    "standing up while sitting": (WATCH, (0, 8, 15), "stand up from the sofa"),
}


@pytest.mark.parametrize(("name", "before", "phrase"), UNLISTED.values(), ids=UNLISTED)
def test_unlisted_but_executed(name: str, before: tuple[int, ...], phrase: str) -> None:
    env = begun(name, *before)
    assert phrase not in env.admissible_actions()
    *_, info = env.step_text(phrase)
    assert (info["command_succeeded"], info["invalid_action"]) == (True, False)


def test_a_walk_to_what_is_carried_leads_to_the_room_on_record() -> None:
    env = begun(HEAT, 4, 6, 2, 1)  # fetched, carried to the bathroom and back
    assert "walk to the pancake" in env.admissible_actions()
    *_, info = env.step_text("walk to the pancake")
    assert info["command_succeeded"] is True
    assert info["features"][:4].tolist() == [0, 1, 0, 0]  # in the bathroom again
    *_, info = env.step_text("walk to the pancake")
    assert info["features"][:4].tolist() == [1, 0, 0, 0]
    say(env, 1)  # a second walk inside the room repairs the record
    *_, info = env.step_text("walk to the pancake")
    assert info["features"][:4].tolist() == [1, 0, 0, 0]


# ---------------------------------------------------------------------- optimal plans


@pytest.mark.parametrize(
    ("name", "return_95", "return_99"),
    [(HEAT, "0.7737809375", "0.9509900499"), (WATCH, "0.5987369392", "0.9043820750")],
)
def test_optimal_plans(name: str, return_95: str, return_99: str) -> None:
    env, plans = VirtualHomeEnv(name), home_graph(name).plans()
    assert len(plans) == {HEAT: 1, WATCH: 8}[name]
    for plan in plans:
        _, info = env.reset()
        rewards, terminated = [], False
        for number in plan:
            assert not terminated
            assert env.command_set[number] in info["admissible_actions"]
            _, reward, terminated, truncated, info = say(env, number)
            rewards.append(reward)
        assert (terminated, truncated, info["success"]) == (True, False, True)
        assert rewards == [0.0] * (len(plan) - 1) + [1.0]
        assert f"{np.dot(rewards, 0.95 ** np.arange(len(plan))):.10f}" == return_95
        assert f"{np.dot(rewards, 0.99 ** np.arange(len(plan))):.10f}" == return_99


@BOTH
@pytest.mark.parametrize("described", ["published", "full"])
def test_oracle_episode(name: str, described: Any) -> None:
    env = VirtualHomeEnv(name, describe=described)
    env.reset()
    terminated = False
    while not terminated:
        assert env.oracle_action() in env.admissible_actions()
        _, _, terminated, truncated, _ = env.step_text(env.oracle_action())
        assert not truncated
    assert env.elapsed_steps == home_graph(name).distance()[0]


# ---------------------------------------------------------------------- the limit

WASTE = {"succeeding": "walk to the bedroom", "refused": "close the microwave", "invalid": "dance"}


@BOTH
@pytest.mark.parametrize("text", WASTE.values(), ids=WASTE)
def test_fifty_wasted_steps_truncate(name: str, text: str) -> None:
    env = begun(name)
    ends = [env.step_text(text)[1:4] for _ in range(LIMIT)]
    assert ends == [(0.0, False, False)] * (LIMIT - 1) + [(0.0, False, True)]


@BOTH
@pytest.mark.parametrize(("too_late", "flags"), [(0, (True, False, True)), (1, (False, True, False))])
def test_success_on_the_last_step_terminates_and_does_not_truncate(
    name: str, too_late: int, flags: tuple[bool, ...]
) -> None:
    plan = home_graph(name).plans()[0]
    env = begun(name, *[1] * (LIMIT - len(plan) + too_late), *plan[: -1 - too_late])
    _, reward, terminated, truncated, info = say(env, plan[-1 - too_late])
    assert env.elapsed_steps == LIMIT
    assert (terminated, truncated, info["success"]) == flags
    assert reward == float(terminated)


def test_the_limit_is_an_argument() -> None:
    env = begun(HEAT, 0, 0, max_steps=3)
    assert say(env, 0)[2:4] == (False, True)
    env.reset()
    assert env.elapsed_steps == 0


# ---------------------------------------------------------------------- start and state


@BOTH
def test_each_reset_starts_alike_and_draws_nothing(name: str) -> None:
    env = VirtualHomeEnv(name)
    starts = []
    for seed in (0, 1, None):
        _, info = env.reset(seed=seed)
        before = env.np_random.bit_generator.state
        text, info = env.reset()
        say(env, 0)
        assert env.np_random.bit_generator.state == before
        starts.append((text, info["admissible_actions"], info["features"].tolist()))
    assert starts == [starts[0]] * 3
    vectors = {HEAT: [1, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0], WATCH: [int(n in (0, 4, 8)) for n in range(21)]}
    assert starts[0][2] == vectors[name]


def test_the_state_of_another_home_is_refused() -> None:
    heat, watch = begun(HEAT, 4), begun(WATCH, 4)
    before = heat.get_state()
    with pytest.raises(LangEnvsError, match=r"Expected a state of .*food-preparation.*; got one of .*entertainment"):
        heat.set_state(watch.get_state())
    assert heat.get_state() == before


CARRIED, LYING = ItemState(IN_HAND, "kitchen"), ItemState(AT_START)
BROKEN_STATES = {
    "room": {"room": "attic"},
    "near a list": {"near": ["pancake"]},
    "near something else": {"near": frozenset({"sofa"})},
    "item missing": {"items": ()},
    "item too many": {"items": (LYING, LYING)},
    "item no item": {"items": (("hand", "kitchen"),)},
    "place": {"items": (ItemState("coffee table"),)},
    "carried without a record": {"items": (ItemState(IN_HAND),)},
    "record of what lies": {"items": (ItemState(AT_START, "kitchen"),)},
    "record of no room": {"items": (ItemState(IN_HAND, "attic"),)},
    "opened None": {"opened": None},
    "lit": {"lit": frozenset({"TV"})},
    "seats": {"seats_taken": {"sofa"}},
    "sitting": {"sitting": 1},
    "facing": {"facing": None},
}
BROKEN_WORLDS = {
    "state None": {"state": None},
    "state a tuple": {"state": ("kitchen",)},
    "steps negative": {"steps": -1},
    "steps None": {"steps": None},
    "steps True": {"steps": True},
    "succeeded None": {"succeeded": None},
    "draw None": {"draw": None},
    "draw a tuple": {"draw": (0, (), ())},
}
BROKEN_DRAWS = {
    "phrasing": {"phrasing": 1},
    "phrasing None": {"phrasing": None},
    "nouns None": {"nouns": None},
    "nouns of another role": {"nouns": (("pancake", "pizza"),)},
    "distractor": {"distractors": ("candle",)},
    "distractors None": {"distractors": None},
}
BROKEN_DISTRACTORS = [
    (1, ()),
    (1, ("sofa",)),
    (1, ("candle", "teapot")),
    (2, ("candle", "candle")),
    (["candle"], ("teapot",)),
]


def refused(env: VirtualHomeEnv, **change: Any) -> None:
    before = env.get_state()
    with pytest.raises(LangEnvsError, match=r"Expected an intact state"):
        env.set_state(before | {"world": before["world"]._replace(**change)})
    assert env.get_state() == before


@pytest.mark.parametrize("change", BROKEN_WORLDS.values(), ids=BROKEN_WORLDS)
def test_a_broken_world_is_refused(change: dict[str, Any]) -> None:
    refused(begun(HEAT, 4, 6), **change)


@pytest.mark.parametrize("change", BROKEN_STATES.values(), ids=BROKEN_STATES)
def test_a_broken_home_is_refused(change: dict[str, Any]) -> None:
    env = begun(HEAT, 4, 6)
    assert env.home_state.items == (CARRIED,)
    refused(env, state=env.home_state._replace(**change))


@pytest.mark.parametrize("change", BROKEN_DRAWS.values(), ids=BROKEN_DRAWS)
def test_a_broken_draw_is_refused(change: dict[str, Any]) -> None:
    env = begun(HEAT, 4, 6)
    refused(env, draw=env.get_state()["world"].draw._replace(**change))


@pytest.mark.parametrize(("asked", "lying"), BROKEN_DISTRACTORS, ids=str)
def test_distractors_that_cannot_be_drawn_are_refused(asked: Any, lying: tuple[str, ...]) -> None:
    env = begun(HEAT, distractors=asked)
    refused(env, draw=env.get_state()["world"].draw._replace(distractors=lying))


def test_without_render_mode_nothing_is_drawn() -> None:
    assert begun(HEAT).render() is None
