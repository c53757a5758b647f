"""Episodes as GIFs, and the agents that play them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import third_party  # noqa: F401 - registers its ids
from PIL import Image

from lang_envs import LangEnvsError
from lang_envs.agents import oracle_agent, random_agent
from lang_envs.recording import record_episode, record_gif
from lang_envs.wrappers import TextAction

FULL = "ThirdParty/FullDoors-v0"


# ---------------------------------------------------------------------- GIFs


@pytest.mark.parametrize("env_id", ["Overcooked-TomatoSalad-v0", "KeyToken-v0"])
def test_a_gif_shows_the_episode(env_id: str, tmp_path: Path) -> None:
    path = tmp_path / "new" / "episode.gif"
    recording = record_gif(env_id, oracle_agent(), path)
    assert (recording.terminated, recording.truncated, recording.success) == (True, False, True)
    assert len(recording.frames) == len(recording.actions) + 1
    with Image.open(path) as image:
        assert (image.format, image.n_frames) == ("GIF", len(recording.frames))
        assert (image.height, image.width, 3) == recording.frames[0].shape
        durations = []
        for number in range(image.n_frames):
            image.seek(number)
            durations.append(image.info["duration"])
    pace = durations[1] if len(durations) > 2 else None
    assert bool(pace) is (len(recording.actions) > 1)
    assert all(duration == pace < min(durations[0], durations[-1]) for duration in durations[1:-1])
    assert [file.name for file in path.parent.iterdir()] == ["episode.gif"]


def test_a_recording_is_what_gymnasium_shows() -> None:
    recording = record_episode(FULL, random_agent(np.random.default_rng(3)), seed=5, n_tries=4)
    env, total = TextAction(gym.make(FULL, render_mode="rgb_array", n_tries=4)), 0.0
    env.reset(seed=5)
    frames = [env.render()]
    for action in recording.actions:
        _, reward, terminated, truncated, info = env.step(action)
        total += reward
        frames.append(env.render())
    assert all(np.array_equal(*pair) for pair in zip(frames, recording.frames, strict=True))
    assert recording[2:] == (total, terminated, truncated, info["success"])
    assert terminated or truncated


def test_an_agent_gets_the_environment_whose_actions_are_tokens() -> None:
    def first(env: gym.Env[Any, Any], text: str, actions: Any) -> str:
        return env.action_space.decode(env.action_space.encode(actions[0]))

    assert record_episode("KeyToken-v0", first).actions


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "episode.gif"
    path.write_bytes(b"old")

    def full(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[:10])
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="no space left"):
        record_gif(FULL, oracle_agent(), path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("env_id", "arguments", "error", "message"),
    [
        ("ThirdParty/Doors-v0", {}, LangEnvsError, r"Expected an environment with render mode 'rgb_array'; .* Fix: "),
        (FULL, {"max_frames": 0}, ValueError, "Expected max_frames of at least 1; got 0"),
    ],
    ids=["no drawing", "no frames"],
)
def test_what_cannot_be_recorded(env_id: str, arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        record_episode(env_id, oracle_agent(), **arguments)


# ---------------------------------------------------------------------- agents


def test_random_play_is_uniform_and_seeded() -> None:
    env, listed = gym.make(FULL), ["a", "b", "c"]
    choices = [random_agent(np.random.default_rng(seed))(env, "", listed) for seed in range(300)]
    assert choices == [random_agent(np.random.default_rng(seed))(env, "", listed) for seed in range(300)]
    assert min(choices.count(action) for action in listed) > 70
