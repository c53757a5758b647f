"""Misbehaving agents of a user's module, for the tests of the runner."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.agents.base import Agent, Decision, TokenCredit, Usage

HOSTILE = "_<img src=x> | $x$ `a` [b](javascript:c)\n\\frac{$ [/red]"
"""A name that Markdown, HTML, Matplotlib and Rich would all read as something else."""


class First(Agent):
    """The first action of the list; says neither its name nor settings."""

    def act(self, observation: str, info: Mapping[str, Any]) -> Decision:
        return Decision(info["admissible_actions"][0])


class Cheats(First):
    """Writes into its observation and info."""

    def act(self, observation: str, info: Mapping[str, Any]) -> Decision:
        actions = info["admissible_actions"]
        decision = super().act(observation, info)
        actions.clear()
        return decision

    def observe(
        self,
        decision: Decision,
        observation: str,
        reward: float,
        terminated: bool,
        truncated: bool,
        info: Mapping[str, Any],
    ) -> None:
        assert isinstance(info, dict)
        info.update(success=True, invalid_action=True, primitive_steps=1_000, key_correct=True)


class Exits(First):
    def act(self, observation: str, info: Mapping[str, Any]) -> Decision:
        sys.exit(0)


class Dies(First):
    def act(self, observation: str, info: Mapping[str, Any]) -> Decision:
        os._exit(9)


class Answers(First):
    """Returns a malformed answer, chosen by name."""

    def __init__(self, *, which: str) -> None:
        self._which = which

    def act(self, observation: str, info: Mapping[str, Any]) -> Decision:
        text = super().act(observation, info).text
        answers: dict[str, Decision] = {
            "numpy": Decision(text, Usage(np.int64(1), np.int64(2), np.int64(3), np.float32(0.5))),  # type: ignore[arg-type]
            "nan": Decision(text, Usage(cost=float("nan"))),
            "negative": Decision(text, Usage(prompt_tokens=-1)),
            "tuple": Decision(text, (1, 2, 3)),  # type: ignore[arg-type]
            "note": Decision(text, note=object()),  # type: ignore[arg-type]
            "credit": Decision(text, credit=TokenCredit(("a",), (), (float("inf"),))),
        }
        return answers[self._which]


class Unnamable(First):
    settings = {"model": object()}  # type: ignore[dict-item]  # noqa: RUF012


class Counts(First):
    """Knows whether another episode acts between its steps."""

    def begin(self, env: Any, seed: int) -> None:
        self._n = 0

    def act(self, observation: str, info: Mapping[str, Any]) -> Decision:
        self._n += 1
        before = self._n
        time.sleep(0.0005)
        assert self._n == before, "another episode acted"
        return super().act(observation, info)


class Marked(First):
    """Tokens that a page, a picture and a file could stumble over."""

    def act(self, observation: str, info: Mapping[str, Any]) -> Decision:
        tokens = ("\ud800<script>alert('1')</script>\x00", '" onmouseover="x', "z" * 20_000, "\u2028")
        return Decision(super().act(observation, info).text, credit=TokenCredit(tokens, (-0.1,) * 4, (0.1,) * 4))


one_object = Counts()
