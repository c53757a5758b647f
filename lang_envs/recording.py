"""Record an episode: its frames, how it ended, and an animated GIF of it."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from lang_envs.agents import Agent
from lang_envs.arguments import finite_reward
from lang_envs.core import language_env
from lang_envs.errors import LangEnvsError
from lang_envs.files import write_bytes
from lang_envs.wrappers import TextAction

__all__ = ["Recording", "encode_gif", "record_episode", "record_gif"]

Frame = NDArray[np.uint8]

_COLORS = 128
_FIRST_MS, _FRAME_MS, _LAST_MS = 1400, 900, 2600  # the start and the outcome are looked at longer


class Recording(NamedTuple):
    """One episode, or its beginning.

    Attributes:
        frames: One uint8 array of shape (height, width, 3) after the reset and one after every action.
        actions: Texts of the actions.
        episode_return: Undiscounted sum of the rewards.
        terminated: Whether the episode ended by success or failure.
        truncated: Whether the time limit ended the episode.
        success: Whether the goal was reached.
    """

    frames: list[Frame]
    actions: list[str]
    episode_return: float
    terminated: bool
    truncated: bool
    success: bool


def record_episode(
    env_id: str,
    agent: Agent,
    *,
    seed: int = 0,
    max_frames: int = 60,
    **kwargs: Any,
) -> Recording:
    """Let an agent play one episode, and keep its frames.

    Args:
        env_id: Gymnasium id, `"module:Id-v0"` for one that a module registers.
        agent: Agent that plays.
        seed: Seed of the reset.
        max_frames: Maximum number of frames; the recording stops there, whether or not the episode is over.
        kwargs: Arguments for `gym.make`.

    Raises:
        LangEnvsError: If the environment does not draw images.
        TypeError: If the actions are not token sequences.
        ValueError: If `max_frames` is not positive.
    """
    if max_frames < 1:
        raise ValueError(f"Expected max_frames of at least 1; got {max_frames}.")
    with TextAction(_make_drawing(env_id, **kwargs)) as env:
        inner = language_env(env)  # whose actions are tokens
        text, info = env.reset(seed=seed)
        frames, actions, total = [_frame(env)], [], 0.0
        terminated = truncated = False
        while not (terminated or truncated) and len(frames) < max_frames:
            actions.append(agent(inner, text, info["admissible_actions"]))
            text, reward, terminated, truncated, info = env.step(actions[-1])
            total += finite_reward(reward, env.unwrapped)
            frames.append(_frame(env))
    return Recording(frames, actions, total, terminated, truncated, bool(info.get("success", False)))


def _make_drawing(env_id: str, **kwargs: Any) -> gym.Env[Any, Any]:
    with gym.make(env_id, disable_env_checker=True, **kwargs) as env:
        modes = env.metadata.get("render_modes", [])
    if "rgb_array" not in modes:
        raise LangEnvsError(
            f"Expected an environment with render mode 'rgb_array'; {env_id} has {modes or 'none'}. "
            f"Fix: use an id that draws images, or lang-envs play {env_id} for its texts."
        )
    return gym.make(env_id, render_mode="rgb_array", disable_env_checker=True, **kwargs)


def _frame(env: gym.Env[Any, Any]) -> Frame:
    return np.asarray(env.render(), dtype=np.uint8)


def encode_gif(frames: Sequence[Frame]) -> bytes:
    """Return an endless animated GIF of 128 colours, equal in all frames; the first and the last frame stay longer.

    Args:
        frames: At least one uint8 array of shape (height, width, 3), all of one shape.
    """
    from PIL import Image  # here, because importing lang_envs is to stay fast

    # One palette, or a colour would change from frame to frame; octrees keep colours of small areas, as of a dot.
    palette = Image.fromarray(np.concatenate(frames)).quantize(_COLORS, Image.Quantize.FASTOCTREE)
    images = [Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    durations = [_FRAME_MS] * len(images)
    durations[0] = _FIRST_MS
    durations[-1] = _LAST_MS
    file = io.BytesIO()
    images[0].save(file, "GIF", save_all=True, append_images=images[1:], duration=durations, loop=0, optimize=True)
    return file.getvalue()


def record_gif(
    env_id: str,
    agent: Agent,
    path: str | os.PathLike[str],
    *,
    seed: int = 0,
    max_frames: int = 60,
    **kwargs: Any,
) -> Recording:
    """Record an episode as an animated GIF; a reader never sees half a file.

    Args:
        env_id: Gymnasium id, `"module:Id-v0"` for one that a module registers.
        agent: Agent that plays.
        path: Path of the file; missing folders are created.
        seed: Seed of the reset.
        max_frames: Maximum number of frames.
        kwargs: Arguments for `gym.make`.
    """
    recording = record_episode(env_id, agent, seed=seed, max_frames=max_frames, **kwargs)
    write_bytes(Path(path), encode_gif(recording.frames))
    return recording
