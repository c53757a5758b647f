"""Observations as bytes, for algorithms that want arrays."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from lang_envs.core import Tokens
from lang_envs.spaces import TextSpace


class ByteObservation(gym.ObservationWrapper[NDArray[np.uint8], Tokens, str], gym.utils.RecordConstructorArgs):
    """The observation as UTF-8 bytes, zero-padded: `Box(0, 255, (max_bytes,), uint8)`.

    With it an environment passes SB3's own `check_env` and stock `PPO("MlpPolicy", env)` runs.

    Args:
        env: An environment with `TextSpace` observations.
        max_bytes: Length of the array; by default four bytes for each character of the space, so that every text fits.

    Raises:
        TypeError: If the observations are not text.
        ValueError: If an observation does not fit `max_bytes`; cutting it would hide part of the state.
    """

    def __init__(self, env: gym.Env[str, Tokens], max_bytes: int | None = None) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, max_bytes=max_bytes)
        gym.ObservationWrapper.__init__(self, env)
        if not isinstance(env.observation_space, TextSpace):
            raise TypeError(
                f"Expected an environment with TextSpace observations; got {env.observation_space}. "
                "Fix: wrap a lang_envs environment directly."
            )
        self.max_bytes = 4 * env.observation_space.max_length if max_bytes is None else int(max_bytes)
        self.observation_space = gym.spaces.Box(0, 255, (self.max_bytes,), np.uint8)

    def observation(self, observation: str) -> NDArray[np.uint8]:
        """Encode a text as bytes."""
        data = observation.encode("utf-8", errors="replace")
        if len(data) > self.max_bytes:
            raise ValueError(
                f"Expected an observation of at most {self.max_bytes} bytes; got {len(data)}. "
                f"Fix: ByteObservation(env, max_bytes={len(data)}) or more."
            )
        array = np.zeros(self.max_bytes, dtype=np.uint8)
        array[: len(data)] = np.frombuffer(data, dtype=np.uint8)
        return array
