"""A user's own module: agents of a few lines, good and bad, for the tests of the runner."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lang_bench.agents.base import Agent, Decision, TokenCredit, Usage
from lang_bench.runner.plan import Job


class Valued(Agent):
    """Says a listed action, and has values, costs and a note; slowly, if asked to."""

    incidental = frozenset({"seconds"})

    def __init__(self, *, seconds: float = 0.0, temper: str = "calm") -> None:
        self.name, self.settings = "valued", {"temper": temper}
        self._seconds = seconds

    def begin(self, env: Any, seed: int) -> None:
        self._seed = seed

    def act(self, observation: str, info: Mapping[str, Any]) -> Decision:
        time.sleep(self._seconds)
        actions = info["admissible_actions"]
        self._seed = (self._seed * 1_103_515_245 + 12_345) % 2**31
        text = actions[self._seed // 65_536 % len(actions)]
        tokens = (*text.split(), "</s>")
        values = tuple((self._seed % 97 + place) / 97 for place in range(len(tokens)))
        credit = TokenCredit(tokens, tuple(-0.5 for _ in tokens), values)
        return Decision(text, Usage(1, len(observation), len(tokens), 0.25), credit, f"seed {self._seed}")


class Fails(Valued):
    """Raises in its third episode, until somebody mends it."""

    def begin(self, env: Any, seed: int) -> None:
        super().begin(env, seed)
        self._episode = seed - Job("KeyToken-v0", 0, 0).reset_seed

    def act(self, observation: str, info: Mapping[str, Any]) -> Decision:
        if self._episode == 2 and not Path(os.environ["MENDED"]).exists():
            raise RuntimeError("the server is gone")
        return super().act(observation, info)


class SaysNothing(Valued):
    def act(self, observation: str, info: Mapping[str, Any]) -> Decision:
        return None  # type: ignore[return-value]


class LosesCount(Valued):
    def act(self, observation: str, info: Mapping[str, Any]) -> Decision:
        decision = super().act(observation, info)
        assert decision.credit is not None
        return decision._replace(credit=decision.credit._replace(values=(0.0,)))


class Closes(Valued):
    """Leaves a mark when it is closed."""

    def close(self) -> None:
        with Path(os.environ["CLOSED"]).open("a") as file:
            file.write("x")
