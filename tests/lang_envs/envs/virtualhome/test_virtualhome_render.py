"""Pictures of the home: their shape, distinguishable states, and that drawing has no side effect."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from lang_envs.envs.virtualhome.env import VirtualHomeEnv
from lang_envs.envs.virtualhome.rules import HomeState, Rules
from lang_envs.envs.virtualhome.tasks import TASKS, HomeTask
from lang_envs.rendering import COLORS

SHAPE = (528, 640, 3)
PLAN = 448  # rows; below them the status strip, whose clock differs from step to step anyway
EAT, WATCH = TASKS


def home_env(task: str = EAT, render_mode: str = "rgb_array", **arguments: object) -> VirtualHomeEnv:
    env = VirtualHomeEnv(task, render_mode=render_mode, **arguments)  # type: ignore[arg-type]
    env.reset(seed=0)
    return env


def after(env: VirtualHomeEnv, *actions: str | None) -> NDArray[np.uint8]:
    """The frame after some actions."""
    for action in actions:
        env.step_text(action)
    frame = env.render()
    assert isinstance(frame, np.ndarray)
    return frame


def plan_of(env: VirtualHomeEnv, state: HomeState) -> NDArray[np.uint8]:
    """The frame of a state, all else unchanged, without the strip."""
    captured = env.get_state()
    del captured["digest"]
    env.set_state({**captured, "world": captured["world"]._replace(state=state)})
    return after(env)[:PLAN]


def text_of(env: VirtualHomeEnv, *actions: str | None) -> list[str]:
    for action in actions:
        env.step_text(action)
    env.render_mode = "ansi"
    text = env.render()
    env.render_mode = "rgb_array"
    assert isinstance(text, str)
    return text.splitlines()


def oracle_frames(env: VirtualHomeEnv) -> list[NDArray[np.uint8]]:
    frames, over = [after(env)], False
    while not over:
        _, _, over, _, _ = env.step_text(env.oracle_action())
        frames.append(after(env))
    return frames


def reachable(task: HomeTask, limit: int = 10_000) -> list[HomeState]:
    """States in the order of discovery, about `limit` at most."""
    rules = Rules(task.scene)
    states = {rules.start(): None}
    queue = [*states]
    for state in queue:
        if len(queue) > limit:
            break
        for command in task.commands:
            following = rules.execute(state, command)
            if following is not None and following not in states:
                states[following] = None
                queue.append(following)
    return queue


def visible(task: HomeTask, state: HomeState) -> tuple[object, ...]:
    """The visible part of a state: all but the recorded room of a thing in hand, and nearness of hidden things."""
    near = frozenset(fact[1] for fact in Rules(task.scene).perceive(state) if fact[0] == "near")
    return (tuple(item.place for item in state.items), state._replace(near=near, items=()))


@pytest.mark.parametrize("name", TASKS)
def test_every_visible_difference_shows_in_picture_and_text(name: str) -> None:
    env, task = home_env(name), TASKS[name]
    looks = {visible(task, state): state for state in reachable(task)}
    pictures, texts = set(), set()
    for state in looks.values():
        pictures.add(plan_of(env, state).tobytes())
        texts.add("\n".join(text_of(env)))
    assert len(pictures) == len(texts) == len(looks) > 20


def n_pixels(frame: NDArray[np.uint8], color: str) -> int:
    rgb = tuple(bytes.fromhex(COLORS[color][1:]))
    return int((frame[PLAN:] == rgb).all(axis=-1).sum())


def test_a_refused_command_is_marked() -> None:
    env = home_env()
    start = after(env)
    refused, unknown, unfinished = after(env, "open the microwave"), after(env, "sing"), after(env, None)
    obeyed = after(env, "walk to the microwave")
    for frame in (refused, unknown, unfinished):
        assert n_pixels(frame, "awning") > 500
        assert (frame[:PLAN] != start[:PLAN]).any(axis=-1).sum() > 50  # over the person
    assert n_pixels(start, "awning") == n_pixels(obeyed, "awning") == 0
    assert "Last action: open the microwave" in text_of(env, "open the microwave")
    assert "Last action: open the microwave [REFUSED]" in text_of(env, "open the microwave")
    assert "Last action: sing [NO SUCH COMMAND]" in text_of(env, "sing")
    assert "Last action: (unfinished sentence) [NO SUCH COMMAND]" in text_of(env, None)


@pytest.mark.parametrize("name", TASKS)
def test_success_is_written_at_the_goal_and_only_there(name: str) -> None:
    env = home_env(name)
    *before, end = [n_pixels(frame, "good") for frame in oracle_frames(env)]
    assert end > 2000
    assert not any(before)
    assert text_of(env)[-1] == "SUCCESS"
    env.reset()
    assert "SUCCESS" not in text_of(env)


@pytest.mark.parametrize("action", ["W" * 3000, "two\nlines\x00\t\ud800 漢字 🥞"])
def test_any_text_can_be_the_last_action(action: str | None) -> None:
    env = home_env()
    frame = after(env, action)
    assert (frame.shape, frame.dtype) == (SHAPE, np.uint8)
    assert (frame[PLAN:, -4:] == frame[-1, -1]).all()  # a margin: the right edge is empty
    lines = text_of(env)
    assert len(lines) == len(text_of(home_env()))
    assert all(line.isprintable() for line in lines)
