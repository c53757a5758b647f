"""`TextAgent`: agents that answer a text with a text; their prompt, and matching of the answer to an action."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.agents.base import Agent, AgentError, Decision, Usage

_ASKED = "Answer with one of these actions, word for word, and nothing else:"
_FENCED = re.compile(r"(`{3,})[\w+-]*\n(.*?)\n?\1", re.DOTALL)
_LABEL = re.compile(r"^(?:next |my )?(?:action|answer)\s*:\s*", re.IGNORECASE)
_BULLET = re.compile(r"^(?:[-*>]|\d+[.)])(?=\s|[^\W\d_])\s*")
"""A bullet or number; not the sign or the first digits of a number."""
_NARROW = "`'\"*.!,; "
_STRIPPED = (_NARROW, f"{_NARROW}?()\u201c\u201d\u201e\u2018\u2019\xab\xbb")
"""Characters around an answer that do not count; the wider set where the narrow one finds no action."""


class Reply(NamedTuple):
    """An answer.

    Attributes:
        text: Text as the agent returned it.
        usage: Cost of the answer.
        note: Remark for the record.
    """

    text: str
    usage: Usage = Usage()
    note: str = ""


class TextAgent(Agent):
    """An agent that reads the observation with the admissible actions below it, and writes one of them.

    Where any text is an action, it reads the observation alone, and its answer is the action: `DataSciCoding` finds the
    code in it, in a Markdown fence too.

    Attributes:
        show_actions: Whether the prompt lists the admissible actions below the observation.
        needs_info: Whether the agent reads `info` or the history too; agents around it do not pass these on.
    """

    show_actions: bool = True
    needs_info: bool = False

    @abstractmethod
    def reply(self, prompt: str) -> Reply:
        """Answer a text. A wrapper may call several times for one action, or for a text that is no action."""

    def act(self, observation: str, info: Mapping[str, Any]) -> Decision:
        """See `Agent.act`."""
        actions = info["admissible_actions"]
        return parse_reply(self.reply(shown(observation, actions if self.show_actions else None)), actions)


def require_text_alone(inner: TextAgent) -> None:
    """Refuse to be around an agent that reads more than the text it is given.

    Raises:
        AgentError: If the agent reads more.
    """
    if inner.needs_info:
        raise AgentError(
            f"Expected an agent whose prompts show the text that it is given; those of {inner.name!r} show fields of "
            "`info` or the history too. Fix: another prompt=..., or the agent without what is around it."
        )


def shown(observation: str, actions: Sequence[str] | None, asked: str = _ASKED) -> str:
    """Join observation, request and admissible actions; where any text is an action, return the observation."""
    if actions is None:
        return observation
    return "\n".join([observation, "", asked, *(f"- {action}" for action in actions)])


def parse_reply(reply: Reply, actions: Sequence[str] | None) -> Decision:
    """Match a reply to an action; keep the reply as a note where it has other words."""
    text = parse_action(reply.text, actions)
    notes = [*([reply.text] if text != reply.text else []), *([reply.note] if reply.note else [])]
    return Decision(text, reply.usage, note="\n".join(notes))


def parse_action(text: str, actions: Sequence[str] | None) -> str:
    """Match a text to an admissible action.

    The action itself; else the one action that is the same but for case, spaces, quotation marks, brackets, a fence,
    bullets, numbers and "Action:" before it or a full stop or question mark behind it. Any other text stays as it is:
    an invalid action, counted by the environment.

    Args:
        text: Text of the answer.
        actions: Admissible actions; None where any text is one.
    """
    if actions is None or text in actions:
        return text
    for around in _STRIPPED:
        plain = _plain(text, around)  # once: an answer may be long
        meant = {action for action in actions if plain and _plain(action, around) == plain}
        if meant:
            return meant.pop() if len(meant) == 1 else text
    return text


def _plain(text: str, around: str) -> str:
    fenced = _FENCED.fullmatch(text.strip())
    plain = " ".join((fenced[2] if fenced else text).split()).strip(around)
    plain = _BULLET.sub("", plain, count=1).strip(around)
    labelled = _LABEL.match(plain)
    if labelled:  # "1. Action: ..." or "Action: 1. ..."
        plain = _BULLET.sub("", plain[labelled.end() :].strip(around), count=1).strip(around)
    return plain.casefold()
