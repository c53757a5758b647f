"""Agents of the benchmark: the protocol, and adapters for functions from text to text.

`make_agent("random")`, `make_agent("my_module:function")`, `make_agent("react:openai:MODEL", base_url=...)`.
"""

from lang_bench.agents.base import JSON, Agent, AgentError, Decision, TokenCredit, Usage
from lang_bench.agents.registry import KINDS, Kind, make_agent
from lang_bench.agents.texts import Reply, TextAgent

__all__ = [
    "JSON",
    "KINDS",
    "Agent",
    "AgentError",
    "Decision",
    "Kind",
    "Reply",
    "TextAgent",
    "TokenCredit",
    "Usage",
    "make_agent",
]
