"""ReAct: a thought before every action, and a memory of the episode (arXiv 2210.03629), around another agent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from lang_bench.agents.base import JSON, Agent, AgentError, Decision
from lang_bench.agents.texts import TextAgent, require_text_alone
from lang_envs import LangEnv
from lang_envs.answers import parse_action, show_actions

INSTRUCTIONS = """\
You solve a task step by step. Every step is an observation, your thought about it, and one action. Answer with a
thought and an action, in this form and with nothing after them:
Thought: what you know, what is missing, and what to do next
Action: the action"""
_ACTION = re.compile(r"^[ \t*#]*action[ \t]*+\d*+[ \t*]*+:[ \t*]*", re.IGNORECASE | re.MULTILINE)
_IN_LINE = re.compile(r"(?<=[.!?;])[ \t*]+Action[ \t]*+\d*+[ \t*]*+:[ \t*]*")
_INVENTED_IN_LINE = re.compile(r"(?<=[.!?;])[ \t*]+(?:Observation|Thought)[ \t]*+\d*+[ \t*]*+:")
_THOUGHT = re.compile(r"^[\s*#]*thought[ \t]*+\d*+[ \t*]*+:[ \t*]*", re.IGNORECASE)
_INVENTED = re.compile(r"^[ \t*#]*(?:observation|thought)[ \t]*+\d*+[ \t*]*+:", re.IGNORECASE | re.MULTILINE)
_FENCED = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_IN_FENCE = re.compile(
    r"\s*```(?:text)?\n((?=[\s*]*(?:thought|action)[ \t]*+\d*+[ \t*]*+:)(?:(?!```).)*)```\s*", re.DOTALL | re.IGNORECASE
)
"""A whole answer in one fence, without further fences inside."""
_ASKED = "The action must be one of these, word for word:"
_GAP = "(earlier steps are left out)"


class Step(NamedTuple):
    """A step of the episode: observation, thought and action."""

    observation: str
    thought: str
    action: str

    def __str__(self) -> str:
        """Format the step as the prompt shows it."""
        thought = f"Thought: {self.thought}\n" if self.thought else ""
        return f"Observation: {self.observation}\n{thought}Action: {self.action}"


class ReactAgent(Agent):
    """Shows the inner agent the latest steps of the episode before the observation, and parses its answer.

    An agent that writes texts is prompted to think first, and its answer is parsed: the action is the text after the
    first "Action:" (at the beginning of a line, if there is one), up to an observation or a thought that it invents
    behind it; an answer without "Action:" is an action. Any other agent acts on the longer text as on an observation.

    Args:
        inner: Agent that answers.
        budget: Maximum number of characters of the steps that are shown; the oldest are left out first.
        instructions: Beginning of the prompt for an agent that writes texts.

    Raises:
        AgentError: If the budget is below 0, or the inner agent's prompts show more than the text.
    """

    def __init__(self, inner: Agent, *, budget: int = 4_000, instructions: str = INSTRUCTIONS) -> None:
        if budget < 0:
            raise AgentError(f"Expected budget in characters, 0 or more; got {budget}.")
        if isinstance(inner, TextAgent):
            require_text_alone(inner)
        self.name = f"react:{inner.name}"
        self.settings = {"inner": inner.name, "budget": budget, "instructions": instructions, **inner.settings}
        self.incidental = inner.incidental
        self._inner, self._budget, self._instructions = inner, budget, instructions
        self._steps: list[Step] = []
        self._now = Step("", "", "")

    def begin(self, env: LangEnv[Any], seed: int) -> None:
        """See `Agent.begin`."""
        self._steps = []
        self._inner.records_steps = self.records_steps
        self._inner.begin(env, seed)

    def act(self, observation: str, info: Mapping[str, Any]) -> Decision:
        """See `Agent.act`."""
        if not isinstance(self._inner, TextAgent):
            decision = self._inner.act(self._with_history(observation), info)
            self._now = Step(observation, "", decision.text)
            return decision
        actions = info["admissible_actions"]
        question = show_actions(observation, actions if self._inner.show_actions else None, _ASKED)
        reply = self._inner.reply(f"{self._instructions}\n\n{self._with_history(f'Observation: {question}')}")
        thought, text = _parsed(reply.text)
        action = parse_action(text if actions is None else text.strip(), actions)
        self._now = Step(observation, thought, action)
        note = "\n".join(part for part in (thought, reply.note) if part)
        return Decision(action, reply.usage, note=note)

    def step_fields(self) -> Mapping[str, JSON]:
        """See `Agent.step_fields`."""
        return self._inner.step_fields()

    def final_value(self, observation: str, info: Mapping[str, Any]) -> float | None:
        """See `Agent.final_value`: of the text with the steps before it, as the inner agent acts on it."""
        return self._inner.final_value(self._with_history(observation), info)

    def observe(
        self,
        decision: Decision,
        observation: str,
        reward: float,
        terminated: bool,
        truncated: bool,
        info: Mapping[str, Any],
    ) -> None:
        """See `Agent.observe`."""
        self._steps.append(self._now)
        self._inner.observe(decision, observation, reward, terminated, truncated, info)

    def close(self) -> None:
        """See `Agent.close`."""
        self._inner.close()

    def _with_history(self, now: str) -> str:
        """Return the latest whole steps that fit the budget, then the present."""
        kept: list[str] = []
        left = self._budget
        for text in map(str, reversed(self._steps)):
            left -= len(text) + 1
            if left < 0:
                break
            kept.append(text)
        gap = [_GAP] if len(kept) < len(self._steps) else []
        return "\n".join([*gap, *reversed(kept), now])


def _parsed(text: str) -> tuple[str, str]:
    """Return thought and action of an answer.

    Lines between fences are code in any form, unless the whole answer is in one and begins with a label.
    """
    whole = _IN_FENCE.fullmatch(text)
    text = whole[1] if whole else text
    prose = _FENCED.sub(lambda match: " " * len(match[0]), text)
    match, end_of_action = _ACTION.search(prose), _INVENTED
    if match is None and _THOUGHT.match(prose):  # all on one line: a thought may speak of actions, so the last counts
        *_, match = (None, *_IN_LINE.finditer(prose))
        end_of_action = _INVENTED_IN_LINE
    if match is None:
        return "", text
    thought = _THOUGHT.sub("", text[: match.start()], count=1).strip()
    invented = end_of_action.search(prose, match.end())
    return thought, text[match.end() : invented.start() if invented else None].rstrip()
