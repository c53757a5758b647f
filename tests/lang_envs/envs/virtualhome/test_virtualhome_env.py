"""`VirtualHomeEnv`: steps, refusals, limits, returns, and the fields of its info."""

from __future__ import annotations

from typing import Any

import pytest
from home_graph import LIMIT, home_graph

from lang_envs import LangEnvsError
from lang_envs.envs.virtualhome.env import VirtualHomeEnv

HEAT, WATCH = "food-preparation", "entertainment"
BOTH = pytest.mark.parametrize("name", [HEAT, WATCH])


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


# ---------------------------------------------------------------------- the limit


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


# ---------------------------------------------------------------------- start and state


def refused(env: VirtualHomeEnv, **change: Any) -> None:
    before = env.get_state()
    with pytest.raises(LangEnvsError, match=r"Expected an intact state"):
        env.set_state(before | {"world": before["world"]._replace(**change)})
    assert env.get_state() == before
