"""Environments that keep the contract without deriving from `LangEnv`: registered by importing this module."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from lang_envs import TextSpace, TokenSequence

COLOURS = ("red", "green", "blue", "white")


class Doors(gym.Env):
    """Three rooms in a row, each with more doors than the last; the text names the one that is open.

    As little as the contract asks for: no oracle, no state, no drawing.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self, *, n_tries: int = 8, render_mode: str | None = None) -> None:
        self.observation_space, self.action_space = TextSpace(64), TokenSequence(max_length=40)
        self.n_tries, self.render_mode = n_tries, render_mode
        self.flags: tuple[bool, bool] | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.room, self.tries, self.flags, self.door = 0, 0, (False, False), self.draw(2)
        return self.text(), self.info()

    def draw(self, n_doors: int) -> str:
        return COLOURS[self.np_random.integers(n_doors)]

    def listed(self) -> list[str] | None:
        return [f"take the {colour} door" for colour in COLOURS[: 2 + self.room]]

    def text(self) -> str:
        return f"Room {self.room}. The {self.door} door is open. You"

    def info(self, *, invalid: bool = False) -> dict[str, Any]:
        return {"admissible_actions": self.listed(), "invalid_action": invalid, "success": self.flags[0]}

    def understand(self, action: Any) -> str | None:
        return self.action_space.decode_finished(action)

    def is_command(self, text: str | None) -> bool:
        return text in self.listed()

    def step(self, action: Any) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if self.flags is None:
            raise gym.error.ResetNeeded("Expected reset() before step(). Fix: call it.")
        text = self.understand(action)
        if any(self.flags):
            warnings.warn("the episode is over", stacklevel=2)
            return self.text(), 0.0, *self.flags, self.info()
        invalid, reward = not self.is_command(text), self.go(text)
        self.tries += 1
        self.flags = self.ends()
        return self.text(), reward, *self.flags, self.info(invalid=invalid)

    def ends(self) -> tuple[bool, bool]:
        return self.room == 3, self.tries == self.n_tries and self.room < 3

    def go(self, text: str | None) -> float:
        if text != f"take the {self.door} door":
            return -0.1
        self.room += 1
        self.door = self.draw(2 + self.room % 3)
        return 1.0


class OpenDoors(Doors):
    """Any sentence may be tried."""

    def listed(self) -> list[str] | None:
        return None

    def is_command(self, text: str | None) -> bool:
        return text is not None


class FullDoors(Doors):
    """With everything that the contract lets out."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 2}

    def oracle_action(self) -> str:
        return f"take the {self.door} door"

    def admissible_actions(self) -> list[str] | None:
        return self.listed()

    def get_state(self) -> dict[str, Any]:
        world = (self.room, self.tries, self.door, self.flags)
        return {"world": world, "generator": self.np_random.bit_generator.state}

    def set_state(self, state: dict[str, Any]) -> None:
        self.room, self.tries, self.door, self.flags = state["world"]
        self.np_random.bit_generator.state = state["generator"]

    def render(self) -> Any:
        if self.render_mode == "ansi":
            return f"[{self.room}] {self.door}"
        frame = np.zeros((32, 48, 3), dtype=np.uint8)
        frame[:, : 16 * self.room] = 255
        return frame


class OneDoor(FullDoors):
    """A task of one step, which the first text ends, whatever it is."""

    def ends(self) -> tuple[bool, bool]:
        return True, False

    def info(self, *, invalid: bool = False) -> dict[str, Any]:
        return {**super().info(invalid=invalid), "success": self.room == 1}


class PaidDoors(Doors):
    """Doors with one reward."""

    def __init__(self, *, pay: Any = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pay = pay

    def go(self, text: str | None) -> Any:
        super().go(text)
        return self.pay


class LoopingDoors(FullDoors):
    """Breaks the contract: its oracle is wrong."""

    def oracle_action(self) -> str:
        return "take the red door" if self.door != "red" else "take the green door"


gym.register("ThirdParty/Doors-v0", entry_point="third_party:Doors")
gym.register("ThirdParty/FullDoors-v0", entry_point="third_party:FullDoors")
gym.register("ThirdParty/OpenDoors-v0", entry_point="third_party:OpenDoors")
gym.register("ThirdParty/OneDoor-v0", entry_point="third_party:OneDoor")
gym.register("ThirdParty/PaidDoors-v0", entry_point="third_party:PaidDoors")
gym.register("ThirdParty/LoopingDoors-v0", entry_point="third_party:LoopingDoors")
