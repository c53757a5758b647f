"""`TextAgent`: agents that answer a text with a text."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lang_bench.agents.base import Agent, AgentError, Decision, Usage
from lang_envs import answers


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
        return parse_reply(
            self.reply(answers.show_actions(observation, actions if self.show_actions else None)), actions
        )


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


def parse_reply(reply: Reply, actions: Sequence[str] | None) -> Decision:
    """Match a reply to an action; keep the reply as a note where it has other words."""
    text = answers.parse_action(reply.text, actions)
    notes = [*([reply.text] if text != reply.text else []), *([reply.note] if reply.note else [])]
    return Decision(text, reply.usage, note="\n".join(notes))
