"""Checks of drawings."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from lang_envs.env_checker.base import Make, NotApplicableError, expect
from lang_envs.env_checker.walks import N_STEPS, Step, expect_same_walk, randomly, walk, walk_from_reset, where

FRAME_SECONDS = 0.1
"""Longest time of a frame in seconds: a slower one would dominate the recording of any episode."""

_N_FRAMES = 6


def render_ansi(make: Make) -> None:
    """Render mode "ansi" gives text."""
    for drawing in _drawings(make, "ansi"):
        expect(isinstance(drawing, str) and drawing.strip() != "", "a str from render()", drawing, "return the drawing")


def render_rgb_array(make: Make) -> None:
    """Render mode "rgb_array" gives uint8 images (height, width, 3) of one size, quickly."""
    shape, seconds, started = None, [], time.perf_counter()
    for frame in _drawings(make, "rgb_array"):
        seconds.append(time.perf_counter() - started)
        good = isinstance(frame, np.ndarray) and frame.dtype == np.uint8 and frame.ndim == 3 and frame.shape[2] == 3
        got = f"{frame.dtype} {frame.shape}" if isinstance(frame, np.ndarray) else frame
        expect(good, "a uint8 array (height, width, 3) from render()", got, "np.asarray(image.convert('RGB'))")
        shape = shape or frame.shape
        expect(frame.shape == shape, f"every frame to have the shape {shape}", got, "draw on one canvas")
        started = time.perf_counter()
    # the quickest of them: an occupied machine delays some frames, not all
    quick, fix = min(seconds) < FRAME_SECONDS, "draw less, or keep what does not change"
    expect(quick, f"a step and its frame within {FRAME_SECONDS} s", f"{min(seconds):.2f} s", fix)


def _drawings(make: Make, mode: str) -> Any:
    """Render at a reset and along a random walk."""
    _needs_mode(make, mode)
    with make(render_mode=mode) as env:
        now = env.reset(seed=0)
        yield env.render()
        for _ in range(_N_FRAMES):
            now = where(walk(env, randomly(0), 1, now), now)
            yield env.render()


def rendering_changes_nothing(make: Make) -> None:
    """Drawing has no side effect: an environment that is drawn goes on as one that is not."""
    mode = _needs_mode(make, "rgb_array", "ansi")
    with make(render_mode=mode) as drawn, make() as plain:
        agent, start = randomly(0), drawn.reset(seed=0)
        steps: list[Step] = []
        for _ in range(N_STEPS // 2):
            drawn.render()
            steps += walk(drawn, agent, 1, where(steps, start))
        wanted = walk_from_reset(plain, randomly(0), N_STEPS // 2, seed=0)
        fix = "read the world in render(), draw nothing random and change nothing"
        expect_same_walk((start[0], steps), wanted, expected="rendering to change nothing", fix=fix)


def _needs_mode(make: Make, *modes: str) -> str:
    """Return the first of some render modes that the environment has.

    Raises:
        NotApplicableError: If the environment has none of them.
    """
    with make() as env:
        render_modes: list[str] = env.metadata.get("render_modes", [])
    mode = next((mode for mode in modes if mode in render_modes), None)
    if mode is None:
        raise NotApplicableError(f"the environment has no render mode {' or '.join(map(repr, modes))}")
    return mode
