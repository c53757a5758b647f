"""Pictures of recorded episodes: the drawings of the environment, small, and none where anything differs."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import report_data
from numpy.typing import NDArray
from PIL import Image

from lang_envs import LangEnv
from lang_envs.report import read_results
from lang_envs.report.pictures import TILE, Picture, Tiles, changes, frames_of
from lang_envs.wrappers import TextAction

HEADER: dict[str, Any] = {"env_settings": {}}


def runs_code(env_id: str) -> bool:
    return env_id.startswith("DataSciCoding")


def played(env_id: str, n_steps: int, seed: int = 3) -> tuple[dict[str, Any], list[NDArray[np.uint8]]]:
    """Play at random; return the record of the episode, as read from a file, and the drawings."""
    rng = np.random.default_rng(seed)
    steps = []
    with TextAction(gym.make(env_id, render_mode="rgb_array", disable_env_checker=True)) as env:
        observation, info = env.reset(seed=seed)
        frames = [np.array(env.render())]
        for _ in range(n_steps):
            listed = info["admissible_actions"] or ["a sentence", "another one"]
            action = "sing a song" if len(steps) == 2 else listed[rng.integers(len(listed))]
            shown = observation
            observation, reward, terminated, truncated, info = env.step(action)
            ends = {"terminated": terminated, "truncated": truncated}
            steps.append({"observation": str(shown), "action": action, "reward": float(reward), **ends})
            frames.append(np.array(env.render()))
            if terminated or truncated:
                steps[-1]["final_observation"] = str(observation)
                break
    return json.loads(json.dumps({"env": env_id, "reset_seed": seed, "steps_list": steps})), frames


def rebuilt(tiles: Tiles, pictures: list[Picture]) -> Iterator[NDArray[np.uint8]]:
    """Yield the frames as a page draws them: from the atlas and the changes."""
    atlas = np.asarray(Image.open(io.BytesIO(tiles.atlas())))
    previous = None
    for picture in pictures:
        columns = -(-picture.width // TILE)
        if previous is None:
            canvas = np.zeros((-(-picture.height // TILE) * TILE, columns * TILE, 3), dtype=np.uint8)
        position = tile = 0
        flat = changes(previous, picture)
        for position_step, tile_step in zip(flat[::2], flat[1::2], strict=True):
            position, tile = position + position_step, tile + tile_step
            (y, x), (top, left) = divmod(position, columns), divmod(tile, tiles.columns)
            part = atlas[top * TILE : (top + 1) * TILE, left * TILE : (left + 1) * TILE]
            canvas[y * TILE : (y + 1) * TILE, x * TILE : (x + 1) * TILE] = part
        yield canvas[: picture.height, : picture.width].copy()
        previous = picture


def test_pictures_are_the_drawings_of_the_environment(env_id: str) -> None:
    if runs_code(env_id):
        assert frames_of(HEADER, fake(env_id)) == f"{env_id} runs code, and is not played again for pictures."
        return
    episode, drawn = played(env_id, 6)
    frames = frames_of(HEADER, episode)
    assert not isinstance(frames, str), frames
    tiles = Tiles()
    pictures = [tiles.add(frame) for frame in frames]
    for frame, drawing in zip(rebuilt(tiles, pictures), drawn, strict=True):
        assert frame.shape == drawing.shape
        assert frame.tobytes() == drawing.tobytes()


# ---------------------------------------------------------------------- reasons why there are none


def fake(env_id: str) -> dict[str, Any]:
    step = {"observation": "a", "action": "b", "reward": 0.0, "terminated": True, "truncated": False}
    return {"env": env_id, "reset_seed": 0, "steps_list": [step]}


@pytest.mark.parametrize(
    ("number", "field", "value", "reason"),
    [
        (
            1,
            "reward",
            0.125,
            r"differs from the recorded one .* \(step 2: reward \S+ instead of 0.125",
        ),
        (0, "observation", "Another kitchen.", "step 1: another observation"),
        (-1, "final_observation", "Another kitchen.", "step 30: another final observation"),
    ],
)
def test_any_difference_is_the_reason(tmp_path: Path, number: int, field: str, value: object, reason: str) -> None:
    results = read_results(report_data.small(tmp_path, n_episodes=1)[0])
    episode = results.episodes[0]
    assert episode["steps"] == 30
    assert isinstance(frames_of(results.header, episode), list)
    step = episode["steps_list"][number]
    assert step[field] != value
    step[field] = value
    problem = frames_of(results.header, episode)
    assert isinstance(problem, str)
    assert re.search(reason, problem)


class TextsOnly(LangEnv[int]):
    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012


class Raises(gym.Env[str, str]):
    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, **_: object) -> None:
        raise RuntimeError("no\nscreen")


@pytest.fixture
def texts_only() -> Iterator[tuple[str, str]]:
    names = "TextsOnly-v0", "Raises-v0"
    gym.register(names[0], entry_point=TextsOnly)
    gym.register(names[1], entry_point=Raises)
    yield names
    for name in names:
        del gym.registry[name]


def test_environments_without_pictures_are_the_reason(texts_only: tuple[str, str], tmp_path: Path) -> None:
    assert frames_of(HEADER, fake(texts_only[0])) == "TextsOnly-v0 draws no images."
    failed = "Raises-v0 failed when it was played again: RuntimeError: no\\nscreen"
    assert frames_of(HEADER, fake(texts_only[1])) == failed
    assert frames_of(HEADER, fake("Nowhere-v0")) == "Nowhere-v0 is not registered where this report was written."
    assert (
        frames_of(HEADER, {**fake("KeyToken-v0"), "steps_list": None}) == "The steps of this episode were not recorded."
    )
    settings = {"env_settings": {"no_such_argument": 1}}
    problem = frames_of(settings, fake("KeyToken-v0"))
    assert isinstance(problem, str)
    assert problem.startswith("KeyToken-v0 failed when it was played again: TypeError: ")


def test_a_module_named_in_a_file_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "planted_module.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert frames_of(HEADER, fake("planted_module:Nothing-v0")) == (
        "planted_module:Nothing-v0 is not registered where this report was written."
    )
    assert "another observation" in frames_of(HEADER, fake("planted_module:KeyToken-v0"))
    assert not (tmp_path / "ran").exists()
