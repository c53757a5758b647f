"""Pictures of recorded episodes: the episode is played again, and its frames are stored as tiles."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from lang_envs.redaction import without_private
from lang_envs.registration import creator, registered
from lang_envs.report.replaying import recorded_arguments, replayed
from lang_envs.text import printable
from lang_envs.wrappers import TextAction

__all__ = ["TILE", "Picture", "Tiles", "changes", "frames_of"]

Frame = NDArray[np.uint8]

TILE = 16
"""Width and height of a tile in pixels."""


def frames_of(header: Mapping[str, Any], episode: Mapping[str, Any]) -> list[Frame] | str:
    """Play a recorded episode again and return its frames: one after the reset, and one after each action.

    Args:
        header: Header of the results file.
        episode: Line of the episode, with its steps under `steps_list`.

    Returns:
        uint8 arrays `[height, width, 3]`; or a sentence, where the environment is not registered, draws no images or
        runs code, or where an observation or a reward differs from the recorded one.
    """
    env_id, steps = registered(episode["env"]), episode["steps_list"]
    if not steps:
        return "The steps of this episode were not recorded."
    if env_id is None:
        return f"{episode['env']} is not registered where this report was written."
    try:
        metadata: Mapping[str, Any] = getattr(creator(env_id), "metadata", {})
        if metadata.get("actions") == "code":
            return f"{env_id} runs code, and is not played again for pictures."
        if "rgb_array" not in metadata.get("render_modes", ()):
            return f"{env_id} draws no images."
        env = TextAction(gym.make(env_id, **_arguments(header)))
        try:
            return _frames(env, int(episode["reset_seed"]), steps)
        finally:
            env.close()
    except Exception as error:  # an environment and its arguments in a file may raise anything
        text = without_private(printable(str(error)))[:200]
        return f"{env_id} failed when it was played again: {type(error).__name__}: {text}"


def _arguments(header: Mapping[str, Any]) -> dict[str, Any]:
    return {**recorded_arguments(header), "render_mode": "rgb_array", "disable_env_checker": True}


def _frames(env: TextAction, seed: int, steps: Sequence[Mapping[str, Any]]) -> list[Frame] | str:
    frames: list[Frame] = []
    for moment in replayed(env, seed, steps):
        if moment.differences:
            return (
                "The episode differs from the recorded one when it is played again, as after a change of the "
                f"environment ({', '.join(moment.differences)})."
            )
        frames.append(np.array(env.render(), dtype=np.uint8))
    if any(frame.ndim != 3 or frame.shape != (*frames[0].shape[:2], 3) for frame in frames):
        return "The images of this episode have different sizes."
    return frames


class Picture(NamedTuple):
    """A frame as tiles.

    Attributes:
        width: Width in pixels.
        height: Height in pixels.
        tiles: Indices of its tiles in the atlas, row by row; tiles at the right and lower edge may reach beyond it.
    """

    width: int
    height: int
    tiles: list[int]


class Tiles:
    """Tiles of all frames, each distinct one stored once; `atlas` is a picture of them."""

    def __init__(self) -> None:
        self._places: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._places)

    @property
    def columns(self) -> int:
        """Number of tiles in a row of the atlas: 64, or more where it would be higher than WebP allows."""
        return max(64, -(-len(self) // 1000))

    def add(self, frame: Frame) -> Picture:
        """Cut a frame, uint8 `[height, width, 3]`, into tiles."""
        height, width, _ = frame.shape
        padded = np.pad(frame, ((0, -height % TILE), (0, -width % TILE), (0, 0)), mode="edge")
        rows, columns = padded.shape[0] // TILE, padded.shape[1] // TILE
        cut = padded.reshape(rows, TILE, columns, TILE, 3).swapaxes(1, 2).reshape(rows * columns, -1)
        return Picture(width, height, [self._places.setdefault(tile.tobytes(), len(self._places)) for tile in cut])

    def atlas(self) -> bytes:
        """Return lossless WebP; tile n is in row `n // columns` and column `n % columns`. Equal tiles, equal bytes."""
        from PIL import Image  # here, because importing lang_envs is to stay fast

        rows = -(-len(self) // self.columns)
        tiles = np.zeros((rows * self.columns, TILE, TILE, 3), dtype=np.uint8)
        for index, tile in enumerate(self._places):
            tiles[index] = np.frombuffer(tile, dtype=np.uint8).reshape(TILE, TILE, 3)
        pixels = tiles.reshape(rows, self.columns, TILE, TILE, 3).swapaxes(1, 2)
        image = Image.fromarray(pixels.reshape(rows * TILE, self.columns * TILE, 3))
        file = io.BytesIO()
        image.save(file, "WEBP", lossless=True, quality=100, method=0)
        return file.getvalue()


def changes(previous: Picture | None, picture: Picture) -> list[int]:
    """Return the tiles of a picture that differ from the one before it, as a flat list of pairs: place, tile.

    Both numbers are differences from the pair before, the first pair from (0, 0): neighbours often are neighbours in
    the atlas as well, and lists of small numbers take a fourth of the bytes when they are compressed.

    Args:
        previous: Picture of the same size; None before the first one, and all tiles are returned.
        picture: Picture to show.
    """
    codes = []
    last_place = last_tile = 0
    for index, tile in enumerate(picture.tiles):
        if previous is None or previous.tiles[index] != tile:
            codes += [index - last_place, tile - last_tile]
            last_place, last_tile = index, tile
    return codes
