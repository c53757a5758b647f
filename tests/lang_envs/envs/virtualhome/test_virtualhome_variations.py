"""The generalisation kit of the homes: other nouns, phrasings, distractors, orders; drawn at a reset and kept."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from home_graph import home_graph
from walk import same

from lang_envs.envs.virtualhome.env import VirtualHomeEnv
from lang_envs.envs.virtualhome.wording import PHRASINGS

HEAT, WATCH = "food-preparation", "entertainment"

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
