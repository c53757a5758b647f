"""Pictures of the home: their shape, distinguishable states, and that drawing has no side effect."""

from __future__ import annotations

import random
import time
from itertools import combinations
from statistics import median

import gymnasium as gym
import numpy as np
import pytest
from numpy.typing import NDArray
from rich.cells import cell_len
from walk import IDS, same

from lang_envs.envs.virtualhome.env import VirtualHomeEnv
from lang_envs.envs.virtualhome.rules import AT_START, HomeState, Rules
from lang_envs.envs.virtualhome.tasks import DISTRACTORS, TASKS, HomeTask
from lang_envs.rendering import COLORS, THINGS, fitted, font, sprite

SHAPE = (528, 640, 3)
PLAN = 448  # rows; below them the status strip, whose clock differs from step to step anyway
KITCHEN, LIVING_ROOM = (slice(0, 212), slice(0, 404)), (slice(236, 448), slice(232, 640))
BOX = (slice(12, 70), slice(296, 380))  # the microwave
EAT, WATCH = TASKS
LONG = "extraordinarily long-winded noun"  # as long as may be
HEAT = (
    "walk to the pancake",
    "grab the pancake",
    "walk to the microwave",
    "open the microwave",
    "put the pancake in the microwave",
    "close the microwave",
)


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


@pytest.mark.parametrize("name", TASKS)
def test_what_nobody_can_see_does_not_show(name: str) -> None:
    env, task = home_env(name), TASKS[name]
    alike: dict[object, list[HomeState]] = {}
    for state in reachable(task):
        alike.setdefault(visible(task, state), []).append(state)
    several = [states for states in alike.values() if len(states) > 1]
    assert len(several) > 5
    for states in several[:40]:
        assert len({plan_of(env, state).tobytes() for state in states}) == 1


def test_with_distractors_states_look_different() -> None:
    env = home_env(WATCH, distractors=("candle", "teapot", "newspaper"))
    states = reachable(env.home_task, limit=3000)
    looks = {visible(env.home_task, state): state for state in states[:: len(states) // 200]}
    assert len({plan_of(env, state).tobytes() for state in looks.values()}) == len(looks) > 100


@pytest.mark.parametrize("name", TASKS)
def test_frames_of_an_oracle_episode_differ_at_a_glance(name: str) -> None:
    frames = [frame[:PLAN] for frame in oracle_frames(home_env(name))]
    changed = [(left != right).any(axis=-1).sum() for left, right in combinations(frames, 2)]
    assert min(changed) > 200  # pixels: more than a stray dot


def test_the_thing_in_the_box_shows_only_while_it_is_open() -> None:
    env = home_env()
    empty, shut = after(env, *HEAT[:3])[BOX], after(env, *HEAT[3:])[BOX]
    env.reset()
    opened, filled = after(env, *HEAT[:4])[BOX], after(env, HEAT[4])[BOX]
    assert (empty == shut).all()
    assert (opened != shut).any(axis=-1).sum() > 500
    assert (filled != opened).any(axis=-1).sum() > 200


def test_rooms_out_of_sight_are_darker() -> None:
    env = home_env()
    start = after(env).astype(int)
    bedroom = after(env, "walk to the bedroom").astype(int)
    assert start[KITCHEN].mean() > 1.3 * bedroom[KITCHEN].mean()
    assert start[260:440, 10:220].mean() < 0.8 * bedroom[260:440, 10:220].mean()
    assert (start[LIVING_ROOM] == bedroom[LIVING_ROOM]).all()


def test_what_is_in_hand_shows_with_the_person_and_in_the_strip() -> None:
    env = home_env(WATCH)
    frames = [after(env)]
    for action in ("walk to the chips", "grab the chips", "walk to the milk", "grab the milk"):
        frames.append(after(env, action))
    one, two = frames[2], frames[4]
    for rows in (slice(146, 206), slice(PLAN, 528)):  # by the door
        assert len({frame[rows, :143].tobytes() for frame in (frames[0], one, two)}) == 3


def test_sitting_facing_and_the_mark_on_the_sofa_show() -> None:
    env = home_env(WATCH)
    frames = [after(env, "walk to the living room", "walk to the sofa")]
    for action in ("sit on the sofa", "stand up from the sofa", "walk to the sofa"):
        frames.append(after(env, action))
    assert len({frame[LIVING_ROOM].tobytes() for frame in frames}) == 4
    assert "@ you stand, facing TV" in "".join(text_of(env, "sit on the sofa", "stand up from the sofa"))
    assert "* sofa: sat on" in "".join(text_of(env))


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


@pytest.mark.parametrize("action", [None, "", "W" * 3000, "two\nlines\x00\t", "\ud800 漢字 🥞", "i" * 99])
def test_any_text_can_be_the_last_action(action: str | None) -> None:
    env = home_env()
    frame = after(env, action)
    assert (frame.shape, frame.dtype) == (SHAPE, np.uint8)
    assert (frame[PLAN:, -4:] == frame[-1, -1]).all()  # a margin: the right edge is empty
    lines = text_of(env)
    assert len(lines) == len(text_of(home_env()))
    assert all(line.isprintable() for line in lines)


@pytest.mark.matrix_after(3)
@pytest.mark.parametrize("noun", [LONG, "W" * 32, "漢字 🥞", "x", "{0} {pancake}"])
@pytest.mark.parametrize("role", ["pancake", "microwave"])
def test_any_noun_can_be_drawn(role: str, noun: str) -> None:
    env, plain = home_env(nouns={role: noun}), home_env()
    for action in ("", *HEAT):
        frame, usual = after(env, action.replace(role, noun)), after(plain, action)
        assert (frame.shape, frame.dtype) == (SHAPE, np.uint8)
        changed = (frame != usual).any(axis=-1)
        changed[:206, 6:398] = False  # labels keep inside the walls of the kitchen ...
        assert not changed[:PLAN].any()
        assert not changed[PLAN:, -4:].any()  # ... and of the strip ...
        assert not changed[PLAN:, 143:153].any()  # ... and of the card there
        widths = {cell_len(line) for line in text_of(env)[1:16]}
        assert widths == {79}
        assert all(line.isprintable() for line in text_of(env))


def test_long_nouns_leave_the_state_legible() -> None:
    env = home_env(nouns={"microwave": LONG})
    names = [f"{verb} the {LONG}" for verb in ("walk to", "open")]
    closed, opened = after(env, names[0]), after(env, names[1])
    assert (closed[15:36, 240:400] != opened[15:36, 240:400]).any()  # its label
    assert "* extraordinar...: open" in "".join(text_of(env))


@pytest.mark.parametrize("env_id", [env_id for env_id in IDS if env_id.startswith("VirtualHome")])
def test_things_of_every_id_have_drawings_of_their_own(env_id: str) -> None:
    env = gym.make(env_id, render_mode="rgb_array").unwrapped
    assert isinstance(env, VirtualHomeEnv)
    env.reset(seed=0)
    nouns = {env.wording.the(role).removeprefix("the ") for role in env.home_task.scene.item_index}
    assert nouns <= THINGS
    assert after(env).shape == SHAPE


def test_distractors_have_drawings_and_no_two_drawings_are_alike() -> None:
    assert set(DISTRACTORS) < THINGS
    assert len({sprite(noun, 34).tobytes() for noun in THINGS}) == len(THINGS)


def test_boxes_look_like_what_they_are() -> None:
    boxes = ("microwave", "oven", "dishwasher", "washing machine", "safe")
    for opened in (False, True):
        frames = set()
        for box in boxes:
            frame = after(home_env(nouns={"microwave": box}), f"walk to the {box}", *[f"open the {box}"] * opened)
            frames.add(frame[34:80, 296:380].tobytes())  # without the label
        assert len(frames) == len(boxes)


def test_clock_and_return_show_in_the_strip() -> None:
    env = home_env()
    frames = [after(env, "sing") for _ in range(3)]
    assert all((frame[:PLAN] == frames[0][:PLAN]).all() for frame in frames)
    assert len({frame.tobytes() for frame in frames}) == 3


def test_frames_belong_to_the_caller() -> None:
    env = home_env()
    first = after(env)
    kept = first.copy()
    first[:] = 0
    assert (after(env) == kept).all()


@pytest.mark.matrix_after(2)
@pytest.mark.parametrize("mode", ["ansi", "rgb_array"])
@pytest.mark.parametrize("name", TASKS)
def test_rendering_changes_nothing_and_draws_no_numbers(name: str, mode: str) -> None:
    env, over = home_env(name, mode, distractors=2), False
    while not over:
        _, _, over, _, _ = env.step_text(env.oracle_action())
        before, python, numpy = env.get_state(), random.getstate(), np.random.get_state()
        first, second = env.render(), env.render()
        assert same(env.get_state(), before)
        assert same(first, second)
        assert random.getstate() == python
        assert same(np.random.get_state(), numpy)


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_frames_are_quick(name: str) -> None:
    env, rng, seconds = home_env(name, distractors=3), np.random.default_rng(0), []
    for _ in range(60):
        env.step_text(str(rng.choice(env.command_set)))
        start = time.process_time()
        env.render()
        seconds.append(time.process_time() - start)
        if env.elapsed_steps == env.max_steps:
            env.reset()
    assert median(seconds) < 0.025  # 2 to 3 ms where it was written; machines differ


def test_ansi_tells_the_facts() -> None:
    env = home_env(WATCH, distractors=("spoon", "candle"))
    assert text_of(env) == [
        "Goal: Watch the TV from the sofa, with chips and milk.",
        "+- KITCHEN ----------------------------+- bathroom (out of sight) ------------+",
        "|@ you stand                           |                                      |",
        "|- chips (kitchen counter)             |                                      |",
        "|- milk (kitchen table)                |                                      |",
        "|- spoon (kitchen counter)             |                                      |",
        "|- candle (window sill)                |                                      |",
        "|                                      |                                      |",
        "+- bedroom (out of sight) -------------+- living room (out of sight) ---------+",
        "|                                      |- coffee table                        |",
        "|                                      |- TV: off                             |",
        "|                                      |- sofa                                |",
        "|                                      |                                      |",
        "|                                      |                                      |",
        "|                                      |                                      |",
        "+--------------------------------------+--------------------------------------+",
        "Legend: @ you  * near you  - not near you",
        "In hands: nothing",
        "Last action: (none yet)",
        "Steps 0 / 50    Return +0.000",
    ]
    walk = ("walk to the chips", "grab the chips", "walk to the living room", "walk to the coffee table")
    lines = text_of(env, *walk, "walk to the spoon")
    assert "In hands: chips" in lines
    assert "Last action: walk to the spoon [REFUSED]" in lines
    lines = text_of(env, "put the chips on the coffee table", "walk to the TV", "turn on the TV")
    assert [line[40:-1].rstrip() for line in lines[8:14]] == [
        "- LIVING ROOM ------------------------",
        "@ you stand",
        "- coffee table",
        "* TV: on",
        "- sofa",
        "- chips (on coffee table)",
    ]
    assert lines[2] == f"|{'- milk (kitchen table)':38}|{'':38}|"
    assert env.home_state.items[0].place != AT_START


def test_a_line_is_cut_where_it_ends() -> None:
    assert fitted("spoon", 11, 60) == "spoon"
    cut = fitted("W" * 500, 11, 60)
    assert cut.endswith("...")
    assert font(11).getlength(cut) <= 60 < font(11).getlength(f"W{cut}")
