"""Pictures of the kitchen: their shape, distinguishable states, and that drawing has no side effect."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray
from walk import same

from lang_envs.envs.overcooked.env import OvercookedEnv
from lang_envs.envs.overcooked.kitchen import BOWL, HAND, IN_BOWL, Food, KitchenState
from lang_envs.envs.overcooked.tasks import TASKS, Cell

SHAPE = (528, 448, 3)
KITCHEN_ROWS = 448  # below it the status strip, whose clock differs from step to step anyway
LARGE = "tomato-lettuce-salad"
BADGE = ((0x2F, 0xA8, 0x66), (0xF4, 0xF1, 0xEA))  # green, and its letters


def kitchen_env(task: str, render_mode: str = "rgb_array", **arguments: int) -> OvercookedEnv:
    env = OvercookedEnv(task, render_mode=render_mode, **arguments)
    env.reset()
    return env


def put(env: OvercookedEnv, state: KitchenState) -> None:
    """Make `state` the current one, primitives and all else unchanged."""
    captured = env.get_state()
    del captured["digest"]
    env.set_state({**captured, "world": captured["world"]._replace(state=state)})


def kitchen_of(env: OvercookedEnv, state: KitchenState) -> NDArray[np.uint8]:
    """The frame of a state, without the strip."""
    put(env, state)
    frame = env.render()
    assert isinstance(frame, np.ndarray)
    return frame[:KITCHEN_ROWS]


def text_of(env: OvercookedEnv) -> str:
    text = env.render()
    assert isinstance(text, str)
    return text


def oracle_states(env: OvercookedEnv) -> list[KitchenState]:
    states, over = [env.kitchen_state], False
    while not over:
        _, _, over, _, _ = env.step_text(env.oracle_action())
        states.append(env.kitchen_state)
    return states


def visited_states(env: OvercookedEnv, n_steps: int) -> set[KitchenState]:
    rng, states = np.random.default_rng(0), {env.kitchen_state}
    for _ in range(n_steps):
        _, _, terminated, truncated, _ = env.step_text(str(rng.choice(env.admissible_actions())))
        states.add(env.kitchen_state)
        if terminated or truncated:
            env.reset()
    return states


@pytest.mark.matrix_after(3)
@pytest.mark.parametrize("task", TASKS)
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


@pytest.mark.matrix_after(2)
@pytest.mark.parametrize("task", TASKS)
def test_states_of_an_oracle_episode_look_different_at_a_glance(task: str) -> None:
    env = kitchen_env(task)
    frames = [kitchen_of(env, state) for state in oracle_states(env)]
    changed = [(left != right).any(axis=-1).sum() for left, right in combinations(frames, 2)]
    assert min(changed) > 100  # pixels: more than a stray dot


def test_every_stroke_of_the_knife_shows() -> None:
    env = kitchen_env("tomato-salad")
    board = env.task.boards[0]
    states = [env.kitchen_state.with_food(0, Food(board, chops)) for chops in range(4)]
    assert len({kitchen_of(env, state).tobytes() for state in states}) == 4


def test_what_is_in_hand_shows_with_the_cook_and_in_the_strip() -> None:
    env = kitchen_env(LARGE)
    start, chopped = env.kitchen_state, env.kitchen_state.with_food(0, Food(HAND, 3))
    filled = env.kitchen_state.with_food(0, Food(IN_BOWL, 3)).moved(BOWL, HAND)
    cooks, strips = set(), set()
    for state in (start, start.moved(0, HAND), chopped, start.moved(1, HAND), start.moved(BOWL, HAND), filled):
        put(env, state)
        frame = np.asarray(env.render())
        cooks.add(frame[64:128, 256:320].tobytes())  # its cell is (1, 4)
        strips.add(frame[KITCHEN_ROWS:].tobytes())
    assert len(cooks) == len(strips) == 6


def test_cells_out_of_view_are_darker() -> None:
    near, far = (np.asarray(kitchen_env("tomato-salad", view_radius=radius).render()) for radius in (2, 6))
    darker = (near[:KITCHEN_ROWS].astype(int) < far[:KITCHEN_ROWS]).all(axis=-1)
    assert darker[260:380, 70:380].all()  # floor below the view of radius 2 (it ends at row 256)
    assert not darker[10:250, 140:440].any()


def test_action_clock_and_return_show_in_the_strip() -> None:
    env = kitchen_env("tomato-salad")
    frames = [np.asarray(env.render())]
    for action in ("chop nothing", "a text outside the command set", "chop nothing"):  # the state stays
        env.step_text(action)
        frames.append(np.asarray(env.render()))
    assert all((frame[:KITCHEN_ROWS] == frames[0][:KITCHEN_ROWS]).all() for frame in frames)
    assert len({frame.tobytes() for frame in frames}) == 4


@pytest.mark.parametrize("action", [None, "", "W" * 3000, "two\nlines\x00", "\ud800 漢字", "i" * 99])
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


def test_frames_belong_to_the_caller() -> None:
    env = kitchen_env("tomato-salad")
    first = np.asarray(env.render())
    kept = first.copy()
    first[:] = 0
    assert (np.asarray(env.render()) == kept).all()


@pytest.mark.matrix_after(3)
@pytest.mark.parametrize("mode", ["ansi", "rgb_array"])
@pytest.mark.parametrize("task", TASKS)
def test_rendering_changes_nothing(task: str, mode: str) -> None:
    env, over = kitchen_env(task, mode), False
    while not over:
        _, _, over, _, _ = env.step_text(env.oracle_action())
        before = env.get_state()
        first, second = env.render(), env.render()
        assert same(env.get_state(), before)
        assert same(first, second)


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


def test_ansi_tells_chopped_filled_and_served() -> None:
    env = kitchen_env(LARGE, "ansi")
    boards = env.task.boards
    put(env, env.kitchen_state.with_food(0, Food(boards[0], 3)).with_food(1, Food(boards[1], 2)))
    text = text_of(env)
    assert "[t]" in text
    assert "[L]" in text
    assert "Things: chopped tomato, 2/3 chopped lettuce, whole onion, empty bowl" in text
    env.reset()
    oracle_states(env)
    lines = text_of(env).splitlines()
    assert any(line.startswith("<U> @ ") for line in lines)
    assert "bowl with chopped tomato + chopped lettuce" in lines[10]
    assert lines[-1] == "SERVED"
    assert f"Moves {env.elapsed_primitives} / 200    Return {env.episode_return:+.3f}" in lines


def test_served_is_written_only_after_the_delivery() -> None:
    env = kitchen_env("tomato-salad")
    state = env.kitchen_state
    put(env, state._replace(agent=Cell(3, 1)).with_food(0, Food(IN_BOWL, 3)))
    before = np.asarray(env.render())[KITCHEN_ROWS:]
    put(env, env.kitchen_state.moved(BOWL, env.task.serving))
    after = np.asarray(env.render())[KITCHEN_ROWS:]
    green, letters = ((after == color).all(axis=-1) & (before != after).any(axis=-1) for color in BADGE)
    assert green.sum() > 500
    assert letters.sum() > 20
    assert not (before == BADGE[0]).all(axis=-1).any()


def test_food_lies_within_its_bowl() -> None:
    from lang_envs.envs.overcooked.render import _bowl

    empty = np.asarray(_bowl((), 64)).astype(int)
    for contents in (("tomato",), ("tomato", "lettuce"), ("tomato", "lettuce", "onion")):
        rows, columns = np.nonzero((np.asarray(_bowl(contents, 64)) != empty).any(axis=-1))
        assert len(rows) > 100
        assert abs(columns.mean() - 32) < 4
        assert rows.mean() < 40
