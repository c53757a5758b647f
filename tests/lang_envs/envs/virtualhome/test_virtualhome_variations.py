"""The generalisation kit of the homes: other nouns, phrasings, distractors, orders; drawn at a reset and kept."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from home_graph import HomeGraph, home_graph
from walk import same

from lang_envs.envs.virtualhome import describe
from lang_envs.envs.virtualhome.env import VirtualHomeEnv
from lang_envs.envs.virtualhome.rules import IN_HAND, HomeState, Verb
from lang_envs.envs.virtualhome.tasks import TASKS
from lang_envs.envs.virtualhome.wording import PHRASINGS, Wording

HEAT, WATCH = "food-preparation", "entertainment"
BOTH = pytest.mark.parametrize("name", [HEAT, WATCH])

NOUNS = {
    HEAT: {"pancake": ["pizza", "cheese", "soup"], "microwave": "oven"},
    WATCH: {"chips": "popcorn", "milk": ["juice", "lemonade"], "TV": ["projector", "laptop", "radio"]},
}
# Fields drawn at reset, and the number of their values.
OPEN: dict[str, tuple[str, dict[str, Any], int]] = {
    "two nouns": (WATCH, {"nouns": NOUNS[WATCH]}, 6),
    "phrasing": (HEAT, {"phrasing": "any"}, len(PHRASINGS)),
    "two distractors": (HEAT, {"distractors": 2}, 6 * 5 // 2),
}
EACH_OPEN = pytest.mark.parametrize(("name", "arguments", "n_ways"), OPEN.values(), ids=OPEN)

KITS: dict[str, tuple[str, dict[str, Any]]] = {
    **{key: (name, arguments) for key, (name, arguments, _) in OPEN.items()},
    "order": (WATCH, {"shuffle_actions": True}),
    "everything": (
        WATCH,
        {"nouns": NOUNS[WATCH], "phrasing": "any", "distractors": 1, "describe": "full", "shuffle_actions": True},
    ),
}
EACH_KIT = pytest.mark.parametrize(("name", "arguments"), KITS.values(), ids=KITS)


def fixed(env: VirtualHomeEnv) -> tuple[Any, ...]:
    """Fields that are constant in an episode."""
    return env.command_set, env.home_task, env.wording.phrasing, dict(env.wording.nouns)


def random_walk(env: VirtualHomeEnv, n_steps: int, seed: int) -> list[tuple[Any, ...]]:
    """Steps by commands of the set, listed or not; across the ends of episodes."""
    rng, steps = np.random.default_rng(seed), []
    for _ in range(n_steps):
        command = env.command_set[rng.integers(len(env.command_set))]
        text, reward, terminated, truncated, info = env.step_text(command)
        steps.append((command, text, reward, terminated, truncated, info["admissible_actions"], fixed(env)))
        if terminated or truncated:
            env.reset()
    return steps


def solve(env: VirtualHomeEnv) -> int:
    """Steps that the oracle takes to the goal."""
    for taken in range(1, 40):
        _, reward, terminated, truncated, info = env.step_text(env.oracle_action())
        assert info["command_succeeded"]
        assert not truncated
        if terminated:
            assert (reward, info["success"]) == (1.0, True)
            return taken
    raise AssertionError("the oracle does not reach the goal")


# ---------------------------------------------------------------------- drawn fields


@EACH_KIT
def test_a_draw_follows_from_the_seed(name: str, arguments: dict[str, Any]) -> None:
    env, other = (VirtualHomeEnv(name, **arguments) for _ in range(2))
    other.reset(seed=99)
    for seed in range(10):
        starts = [env.reset(seed=seed), other.reset(seed=seed)]
        assert same(starts[0], starts[1])
        assert fixed(env) == fixed(other)
        assert same(random_walk(env, 60, seed), random_walk(other, 60, seed))  # into a second episode


@EACH_OPEN
def test_every_draw_comes_up(name: str, arguments: dict[str, Any], n_ways: int) -> None:
    env = VirtualHomeEnv(name, **arguments)
    assert len({(env.reset(seed=seed)[0], env.command_set) for seed in range(10 * n_ways)}) == n_ways
    env.reset(seed=0)
    assert len({(env.reset()[0], env.command_set) for _ in range(10 * n_ways)}) == n_ways


def test_orders_differ_between_episodes_and_are_kept_in_one() -> None:
    plain, env = VirtualHomeEnv(WATCH), VirtualHomeEnv(WATCH, shuffle_actions=True)
    starts = set()
    for seed in range(20):
        _, info = env.reset(seed=seed)
        plain.reset(seed=seed)
        starts.add(tuple(info["admissible_actions"]))
        rank: dict[tuple[str, str], int] = {}
        for _ in range(15):
            command = env.oracle_action()
            listed = env.admissible_actions()
            assert listed == env.admissible_actions()
            assert sorted(listed) == sorted(plain.admissible_actions())
            for position, text in enumerate(listed):
                for other in listed[position + 1 :]:
                    assert rank.setdefault((text, other), 1) == 1
                    assert rank.setdefault((other, text), -1) == -1
            if env.step_text(command)[2]:
                break
            plain.step_text(command)
    assert len(starts) > 15


@EACH_KIT
def test_a_state_in_mid_episode_holds_the_draw(name: str, arguments: dict[str, Any]) -> None:
    env, other = (VirtualHomeEnv(name, **arguments) for _ in range(2))
    for seed in range(10):
        env.reset(seed=seed)
        random_walk(env, 20, seed)
        other.reset(seed=1000 + seed)
        other.set_state(env.get_state())
        assert fixed(other) == fixed(env)
        assert other.admissible_actions() == env.admissible_actions()
        # 60 more steps: the next draw is the same too
        assert same(random_walk(other, 60, seed), random_walk(env, 60, seed))
        assert same(other.get_state(), env.get_state())


# ---------------------------------------------------------------------- distractors


def say(env: VirtualHomeEnv, *texts: str) -> list[bool]:
    """Whether the home carries out each of some phrases, all of the set."""
    infos = [env.step_text(text)[-1] for text in texts]
    assert not any(info["invalid_action"] for info in infos)
    return [info["command_succeeded"] for info in infos]


@BOTH
def test_distractors_are_walked_to_grabbed_and_put_back(name: str) -> None:
    env = VirtualHomeEnv(name, distractors=["candle", "teapot"])
    text, _ = env.reset()
    assert env.command_set[-6:] == tuple(
        f"{verb} the {thing}" for thing in ("candle", "teapot") for verb in ("walk to", "grab", "put back")
    )
    assert "You also notice the candle and the teapot." in text
    start = env.home_state
    assert env.admissible_actions()[-2:] == ["walk to the candle", "walk to the teapot"]
    assert say(env, "grab the candle", "put back the candle") == [False, False]
    assert env.home_state == start
    assert say(env, "walk to the candle") == [True]
    assert env.admissible_actions()[-2:] == ["grab the candle", "walk to the teapot"]
    assert say(env, "grab the candle", "grab the candle") == [True, False]
    assert env.admissible_actions()[-2:] == ["put back the candle", "walk to the teapot"]
    assert say(env, "walk to the bedroom", "put back the candle") == [True, False]
    assert not any("candle" in listed or "teapot" in listed for listed in env.admissible_actions())
    assert say(env, "walk to the teapot", "walk to the kitchen", "put back the candle") == [False, True, True]
    assert say(env, "put back the candle", "grab the candle", "put back the candle") == [False, True, True]
    assert say(env, "walk to the bathroom", "walk to the kitchen") == [True, True]
    assert env.home_state == start


def without_distractors(state: HomeState, graph: HomeGraph) -> HomeState:
    n_items = len(graph.task.scene.items) - len(graph.task.distractors)
    return state._replace(items=state.items[:n_items], near=state.near - set(graph.task.distractors))


@pytest.mark.parametrize(("name", "lying"), [(HEAT, ("candle", "teapot")), (WATCH, ("candle",))])
def test_distractors_change_nothing_but_the_hands(name: str, lying: tuple[str, ...]) -> None:
    """Seen without its distractors every state is one of the plain home, with the same features, goal and list."""
    plain, graph = home_graph(name), home_graph(name, *lying)
    index = {state: number for number, state in enumerate(plain.states)}
    seen_as = np.array([index[without_distractors(state, graph)] for state in graph.states])
    n_own = len(plain.task.commands)
    assert set(seen_as) == set(index.values())
    assert graph.features == [plain.features[number] for number in seen_as]
    assert graph.goal.tolist() == plain.goal[seen_as].tolist()
    assert graph.listed[:, :n_own].tolist() == plain.listed[seen_as].tolist()
    short_of_hands = plain.succeeds[seen_as] & ~graph.succeeds[:, :n_own]
    assert not (graph.succeeds[:, :n_own] & ~plain.succeeds[seen_as]).any()
    for number, command in np.argwhere(short_of_hands):
        assert sum(item.place == IN_HAND for item in graph.states[number].items) == 2
        assert graph.task.commands[command].verb in (Verb.GRAB, Verb.OPEN, Verb.TURN_ON, Verb.TURN_OFF)
    then = seen_as[graph.after[:, :n_own]]
    assert (then == plain.after[seen_as])[~short_of_hands].all()
    for command, verb in enumerate(command.verb for command in graph.task.commands[n_own:]):
        if verb in (Verb.GRAB, Verb.PUT_BACK):
            assert (seen_as[graph.after[:, n_own + command]] == seen_as).all()


@BOTH
@pytest.mark.parametrize("described", ["published", "full"])
def test_what_is_told_of_distractors(name: str, described: Any) -> None:
    """All that is seen of them beside the full text of the plain home, and no more."""
    graph, told = home_graph(name, "candle"), {}
    wording = Wording({}, 0)
    for state, facts in zip(graph.states, graph.facts, strict=True):
        plain = frozenset(fact for fact in facts if "candle" not in fact)
        shown = describe.observation(TASKS[name], plain, wording, described)
        candle = "".join(sorted(fact[0] for fact in facts if fact[1] == "candle"))
        text = describe.observation(graph.task, facts, wording, described)
        assert told.setdefault(text, (shown, candle)) == (shown, candle), state
        assert ("candle" in text) is bool(candle)
    assert len(set(told.values())) == len(told)
    assert len({candle for _, candle in told.values()}) == 4  # unseen, seen, near, in hand


# ---------------------------------------------------------------------- everything together


@pytest.mark.parametrize("name", [HEAT, WATCH])
def test_every_combination_is_solved_by_the_oracle(name: str) -> None:
    names = ("nouns", "phrasing", "distractors", "describe", "shuffle_actions")
    choices = ([None, NOUNS[name]], (0, 2, "any"), (0, 1, ["teapot"]), ("published", "full"), (False, True))
    for values in product(*choices):
        arguments = dict(zip(names, values, strict=True))
        env = VirtualHomeEnv(name, **arguments)
        for seed in range(3):
            env.reset(seed=seed)
            assert solve(env) == home_graph(name).distance()[0], (arguments, seed)


# ---------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"task": "laundry"},
            r"Expected task to be one of \['food-preparation', 'entertainment'\]; got 'laundry'. Fix: ",
        ),
        ({"phrasing": len(PHRASINGS)}, r"Expected phrasing to be one of \[0, 1, 2, 'any'\]; got 3"),
        (
            {"nouns": {"milk": "juice"}},
            r"Expected every role in nouns to be one of \['pancake', 'microwave'\]; got 'milk'",
        ),
        ({"nouns": {"pancake": "x" * 33}}, r"Expected nouns\['pancake'\] to be .* 1 to 32 .*; got 'x{33}'"),
        ({"nouns": {"pancake": "microwave"}}, r"Expected every noun to mean one thing.*\['microwave'\]"),
        ({"distractors": 4}, "Expected 0 to 3 different distractors; got 4"),
        ({"distractors": ["sofa"]}, r"Expected every distractor to be one of \['candle', .*\]; got 'sofa'"),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        VirtualHomeEnv(**arguments)
