"""Misbehaving agents of a user's module, for the tests of the runner."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lang_bench.agents.base import Agent, Decision, TokenCredit, Usage

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
            "nan": Decision(text, Usage(cost=float("nan"))),
            "note": Decision(text, note=object()),  # type: ignore[arg-type]
            "credit": Decision(text, credit=TokenCredit(("a",), (), (float("inf"),))),
        }
        return answers[self._which]


class Unnamable(First):
    settings = {"model": object()}  # type: ignore[dict-item]  # noqa: RUF012


class Marked(First):
    """Tokens that a page, a picture and a file could stumble over."""

    def act(self, observation: str, info: Mapping[str, Any]) -> Decision:
        tokens = ("\ud800<script>alert('1')</script>\x00", '" onmouseover="x', "z" * 20_000, "\u2028")
        return Decision(super().act(observation, info).text, credit=TokenCredit(tokens, (-0.1,) * 4, (0.1,) * 4))


class Remembers:
    """Acts by a memory of all its episodes."""

    def __init__(self) -> None:
        self.n = 0

    def __call__(self, observation: str, info: Mapping[str, Any]) -> str:
        self.n += 1
        listed = info["admissible_actions"]
        return str(listed[self.n % len(listed)])


class RemembersAnEpisode(Remembers):
    def begin(self, env: Any, seed: int) -> None:
        self.n = 0


remembering = RemembersAnEpisode()


def remembers_with(*, colour: str) -> None:
    """Cannot be made without its setting."""


class Unmade(First):
    def __init__(self) -> None:
        raise KeyError("model")


class Steps(First):
    """Has more options than tokens."""

    def act(self, observation: str, info: Mapping[str, Any]) -> Decision:
        return super().act(observation, info)._replace(credit=TokenCredit(("a", "b"), (), ()))

    def step_fields(self) -> Mapping[str, Any]:
        return {"token_options": [1] * 7}


class Hangs(First):
    """Never answers, and leaves a file that says so."""

    def __init__(self, seconds: float) -> None: ...

    def act(self, observation: str, info: Mapping[str, Any]) -> Decision:
        Path(f"hangs-{os.getpid()}-{threading.get_ident()}").touch()
        time.sleep(1000)
        return super().act(observation, info)
