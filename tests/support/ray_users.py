"""Environments that tests run in Ray actors, and what tests ask of the machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import psutil
from stable_baselines3.common.vec_env import VecEnv
from third_party import COLOURS, Doors

from lang_envs import LangEnv
from lang_envs.core import Outcome

MEASURED = ("episode", "wall_seconds", "cpu_seconds", "peak_rss")
"""Keys of infos that differ between two equal runs."""


class TracedLamps(LangEnv[tuple[str, int]]):
    """A lamp shows a colour; pressing its button pays 1. Every move leaves a file at its beginning.

    Actors import this module: it needs no package of a model, so that they start soon.

    Args:
        folder: Folder of the files.
        seconds: Length of a move.
        moves: Moves in an episode.
    """

    def __init__(self, folder: str, seconds: float = 0.0, moves: int = 3) -> None:
        super().__init__(max_action_length=64, max_observation_length=256)
        self.folder, self.seconds, self.moves = folder, seconds, moves
        self._world = ("red", moves)

    def _restart(self, options: Mapping[str, Any]) -> None:
        self._world = (self._draw(), self.moves)

    def _draw(self) -> str:
        return COLOURS[self.np_random.integers(len(COLOURS))]

    def _describe(self) -> str:
        return "The lamp is {}. You have {} moves left.".format(*self._world)

    def _listed_actions(self) -> list[str]:
        return [*(f"press the {colour} button" for colour in COLOURS), *(["wait"] if self._world[0] != "red" else [])]

    def _execute(self, text: str) -> Outcome | None:
        return self._move(1.0 if text == f"press the {self._world[0]} button" else -0.1)

    def _pass_time(self) -> Outcome:
        return self._move(-0.1)

    def _move(self, reward: float) -> Outcome:
        self._trace()
        time.sleep(self.seconds)
        self._world = (self._draw(), self._world[1] - 1)
        over = self._world[1] == 0
        return Outcome(reward, over, False, over)

    def _trace(self) -> None:
        Path(self.folder, f"{os.getpid()}-{time.monotonic_ns()}").touch()

    def _family_info(self, *, acted: bool) -> dict[str, Any]:
        return {"colour": self._world[0]}

    def process(self) -> int:
        return os.getpid()

    def hash_seed(self) -> str | None:
        return os.environ.get("PYTHONHASHSEED")


class Spelling(TracedLamps):
    """Every text is a move that pays for each "e": the free texts of an untrained model differ in reward."""

    def __init__(self) -> None:
        super().__init__("")

    def _execute(self, text: str) -> Outcome:
        return self._move(0.1 * text.count("e"))

    def _trace(self) -> None:
        """Leave no file."""


class HeldLamps(TracedLamps):
    """The same, whose moves wait for a file `go`."""

    def _trace(self) -> None:
        super()._trace()
        until(Path(self.folder, "go").exists, 300)


class LampsElsewhere(TracedLamps):
    """The same, as if other processes made the moves."""

    steps_elsewhere = True


class UnloadableError(Exception):
    """Pickles, and does not load: the pattern of errors of HTTP clients."""

    def __init__(self, message: str, *, response: int) -> None:
        super().__init__(message)
        self.response = response


class BrokenLamps(TracedLamps):
    """Waiting is a bug, and the green button raises an error that the driver cannot load."""

    def _execute(self, text: str) -> Outcome | None:
        if text == "wait":
            raise ValueError("the lamp is broken")
        if text == "press the green button":
            raise UnloadableError("the server is busy", response=503)
        return super()._execute(text)


class TracedDoors(Doors):
    """Third-party environments without a state."""

    def process(self) -> int:
        return os.getpid()


class UnsteadyDoors(TracedDoors):
    """The same, with randomness of its own."""

    def text(self) -> str:
        return f"{super().text()} {os.urandom(8).hex()}"


gym.register("RayUsers/Doors-v0", entry_point="ray_users:TracedDoors")
gym.register("RayUsers/HeldLamps-v0", entry_point="ray_users:HeldLamps")
gym.register("RayUsers/Spelling-v0", entry_point="ray_users:Spelling")


def choose(env: VecEnv, rng: np.random.Generator, infos: list[dict[str, Any]]) -> np.ndarray:
    """Return a random admissible action of every environment."""
    listed = [info["admissible_actions"] or ["x = 1"] for info in infos]
    return np.stack([env.action_space.encode(str(rng.choice(actions))) for actions in listed])


def play(env: VecEnv, n_steps: int = 12, at: dict[int, Callable[[], object]] | None = None, seed: int = 5) -> list[Any]:
    """Return the results of a reset and of steps with random actions.

    Args:
        env: The environments.
        n_steps: Number of steps.
        at: Functions to call before steps of these numbers.
        seed: Of environments and actions.
    """
    env.seed(seed)
    rng, results = np.random.default_rng(seed), [(env.reset(), [*env.unwrapped.reset_infos])]
    infos = env.unwrapped.reset_infos
    for number in range(n_steps):
        if at is not None and number in at:
            at[number]()
        observations, rewards, dones, infos = env.step(choose(env, rng, infos))
        assert rewards.dtype == np.float32
        for part in (observations, rewards, dones):
            assert part.flags.writeable
        kept_infos = [{key: value for key, value in info.items() if key not in MEASURED} for info in infos]
        results.append((observations, rewards, dones, kept_infos, [*env.unwrapped.reset_infos]))
        fresh = env.unwrapped.reset_infos
        infos = [new if done else info for info, done, new in zip(infos, dones, fresh, strict=True)]
    return results


def until(condition: Callable[[], Any], seconds: float = 90.0) -> Any:
    """Wait for a condition, and return its value."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "the condition does not come true"
        time.sleep(0.02)
    return value


def relatives(pid: int) -> set[int]:
    """Return the living processes that a process has started, directly or not."""
    try:
        return {child.pid for child in psutil.Process(pid).children(recursive=True)}
    except psutil.NoSuchProcess:
        return set()


def alive(pids: set[int]) -> set[int]:
    """Return those of these processes that have not ended."""
    living = set()
    for pid in pids:
        try:
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                living.add(pid)
        except psutil.NoSuchProcess:
            continue
    return living


def outside(pids: set[int]) -> list[str]:
    """Return the addresses beyond the loopback interface that these processes listen at."""
    return [
        f"{psutil.Process(pid).name()} {socket.laddr.ip}:{socket.laddr.port}"
        for pid in pids
        for socket in psutil.Process(pid).net_connections("inet")
        if socket.status == psutil.CONN_LISTEN and socket.laddr.ip not in ("127.0.0.1", "::1", "::ffff:127.0.0.1")
    ]
