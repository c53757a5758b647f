"""A tiny third-party environment that keeps the contract, and what more than one test file needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import hypothesis
import numpy as np
import torch
from stable_baselines3.common.vec_env import DummyVecEnv

from lang_envs import LangEnv, LangEnvsError
from lang_envs.core import Outcome
from lang_envs.wrappers.admissible import admissible_observation
from poad_sb3 import POAD

COLOURS = ("red", "green", "blue")

properties = hypothesis.settings(deadline=None, derandomize=True, database=None, max_examples=60)


class LampEnv(LangEnv[tuple[str, int]]):
    """A lamp shows a colour. Pressing the button of that colour pays 1, anything else costs 0.1.

    Args:
        moves: Moves in an episode.
        truncates: Whether the last move runs into a time limit instead of ending the task.
        forced: Colours at which waiting is the only admissible action.
    """

    def __init__(self, *, moves: int = 3, truncates: bool = False, forced: Sequence[str] = ()) -> None:
        super().__init__(max_action_length=64, max_observation_length=256)
        self.moves, self.truncates, self.forced = moves, truncates, tuple(forced)
        self.colour, self.left = COLOURS[0], moves

    def _restart(self, options: Mapping[str, Any]) -> None:
        self.left = self.moves
        self._switch()

    def _switch(self) -> None:
        self.colour = COLOURS[self.np_random.integers(len(COLOURS))]

    def _describe(self) -> str:
        return f"The lamp is {self.colour}. You have {self.left} moves left."

    def _listed_actions(self) -> list[str]:
        """Waiting is not listed while the lamp is red, so prompts differ in the number of their actions."""
        if self.colour in self.forced:
            return ["wait"]
        presses = [f"press the {colour} button" for colour in COLOURS]
        return [*presses, "press the red lever", *(["wait"] if self.colour != "red" else [])]

    def _execute(self, text: str) -> Outcome | None:
        if text not in self.admissible_actions():
            return None
        return self._move(1.0 if text == f"press the {self.colour} button" else -0.1)

    def _pass_time(self) -> Outcome:
        return self._move(-0.1)

    def _move(self, reward: float) -> Outcome:
        self.left -= 1
        self._switch()
        over = self.left == 0
        return Outcome(reward, over and not self.truncates, over and self.truncates, over and not self.truncates)

    def _family_info(self, *, acted: bool) -> dict[str, Any]:
        return {"colour": self.colour, "acted": acted}

    def _get_world(self) -> tuple[str, int]:
        return self.colour, self.left

    def _set_world(self, world: tuple[str, int]) -> None:
        colour, left = world
        if colour not in COLOURS or not 0 <= left <= self.moves:
            raise LangEnvsError(f"Expected a colour and the moves left; got {world}.")
        self.colour, self.left = world

    def _configuration(self) -> dict[str, Any]:
        return {"moves": self.moves, "truncates": self.truncates, "forced": self.forced}


class Collector(POAD):
    """POAD without its update: `learn` fills the rollout buffer and leaves the rest to the test."""

    def train(self) -> None:
        """Nothing."""


def make_agent(
    kind: type[POAD] = POAD, *, n_envs: int = 1, env: Mapping[str, Any] | None = None, **kwargs: Any
) -> POAD:
    """An agent on lamps, with a small critic and rollouts of 16 steps unless told otherwise."""
    make = partial(LampEnv, **(env or {}))
    lamps = make() if n_envs == 1 else DummyVecEnv([make] * n_envs)
    kwargs = {"n_steps": 16, "seed": 0, "policy_kwargs": {"critic_arch": (32, 16)}, **kwargs}
    return kind("LLMPolicy", lamps, **kwargs)


def randomise(module: torch.nn.Module, seed: int = 0, scale: float = 0.1) -> None:
    """A fresh adapter changes nothing (its B is 0), a fresh critic says 0; these do not."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "lora_B" in name or ("critic" in name and not parameter.any()):
                parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))


def batch_of(questions: Sequence[tuple[str, Sequence[str]]]) -> dict[str, np.ndarray]:
    """A batched observation of texts and their admissible actions."""
    single = [admissible_observation(text, list(actions)) for text, actions in questions]
    return {key: np.array([one[key] for one in single], dtype=object) for key in single[0]}
