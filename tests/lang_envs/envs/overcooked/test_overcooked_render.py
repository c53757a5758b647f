"""Pictures of the kitchen: their shape, distinguishable states, and that drawing has no side effect."""

from __future__ import annotations

import numpy as np
import pytest

from lang_envs.envs.overcooked.env import OvercookedEnv
from lang_envs.envs.overcooked.kitchen import KitchenState

SHAPE = (528, 448, 3)
KITCHEN_ROWS = 448  # below it the status strip, whose clock differs from step to step anyway
LARGE = "tomato-lettuce-salad"


def kitchen_env(task: str, render_mode: str = "rgb_array", **arguments: int) -> OvercookedEnv:
    env = OvercookedEnv(task, render_mode=render_mode, **arguments)
    env.reset()
    return env


def put(env: OvercookedEnv, state: KitchenState) -> None:
    """Make `state` the current one, primitives and all else unchanged."""
    captured = env.get_state()
    del captured["digest"]
    env.set_state({**captured, "world": captured["world"]._replace(state=state)})


def text_of(env: OvercookedEnv) -> str:
    text = env.render()
    assert isinstance(text, str)
    return text


def visited_states(env: OvercookedEnv, n_steps: int) -> set[KitchenState]:
    rng, states = np.random.default_rng(0), {env.kitchen_state}
    for _ in range(n_steps):
        _, _, terminated, truncated, _ = env.step_text(str(rng.choice(env.admissible_actions())))
        states.add(env.kitchen_state)
        if terminated or truncated:
            env.reset()
    return states


@pytest.mark.parametrize("task", ["tomato-salad", LARGE])
def test_every_state_of_a_random_walk_is_drawn_and_looks_different(task: str) -> None:
    env = kitchen_env(task)
    states = visited_states(env, 200)
    frames = set()
    for state in states:
        put(env, state)
        frame = env.render()
        assert isinstance(frame, np.ndarray)
        assert (frame.shape, frame.dtype) == (SHAPE, np.uint8)
        frames.add(frame[:KITCHEN_ROWS].tobytes())
    assert len(frames) == len(states) > 10


@pytest.mark.parametrize("action", ["W" * 3000, "two\nlines\x00\ud800 漢字"])
def test_any_text_can_be_the_last_action(action: str | None) -> None:
    env = kitchen_env(LARGE)
    env.step_text(action)
    frame = np.asarray(env.render())
    assert frame.shape == SHAPE
    assert (frame[KITCHEN_ROWS:, -2:] == frame[-1, -1]).all()  # a margin: the right edge is empty
    env.render_mode = "ansi"
    lines = text_of(env).splitlines()
    assert len(lines) == 14
    assert all(line.isprintable() for line in lines)


def test_ansi_tells_the_facts() -> None:
    env = kitchen_env("tomato-salad", "ansi")
    text = text_of(env)
    assert text.splitlines()[:8] == [
        "Order: tomato salad = bowl with chopped tomato",
        "################T####",
        "[ ]    .  .  @  . ###",
        "###    .  .  .  . ###",
        "< >    .  .  .  . ###",
        "###               ###",
        "###               ###",
        "################U####",
    ]
    for fact in ("Things: whole tomato, empty bowl", "In hand: nothing", "Last action: (none yet)", "Moves 0 / 200"):
        assert fact in text.splitlines() or f"{fact}    Return +0.000" in text.splitlines()
    env.step_text("pick up the tomato")
    for fact in ("In hand: whole tomato", "Last action: pick up the tomato", "Moves 2 / 200    Return -0.002"):
        assert fact in text_of(env).splitlines()
    env.step_text(None)
    assert "Last action: (unfinished sentence)" in text_of(env)
