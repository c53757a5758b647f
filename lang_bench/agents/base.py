"""The agent protocol: observations in, actions out, with their costs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from lang_envs import LangEnv, LangEnvsError

JSON: TypeAlias = "str | int | float | bool | Sequence[JSON] | Mapping[str, JSON] | None"
"""A value that a results line can hold."""


class AgentError(LangEnvsError, ValueError):
    """An agent that cannot be made as requested, or cannot continue."""


class Usage(NamedTuple):
    """Cost of an action; sums with `+`.

    Attributes:
        requests: Requests to a server that were answered.
        prompt_tokens: Tokens read.
        completion_tokens: Tokens written.
        cost: Price of the request, in the currency of the given prices.
    """

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0

    def __add__(self, other: Usage) -> Usage:  # type: ignore[override]  # a sum of costs, not a longer tuple
        return Usage(
            self.requests + other.requests,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cost + other.cost,
        )


class TokenCredit(NamedTuple):
    """Token credit of an action; all fields of equal length, or empty where an agent does not know them.

    Attributes:
        tokens: Texts of the tokens; together they are the action and its end token.
        log_probs: Log-probability of each token among those possible there, given the tokens before it.
        values: Value that the critic gives before each token.
    """

    tokens: tuple[str, ...]
    log_probs: tuple[float, ...]
    values: tuple[float, ...]


class Decision(NamedTuple):
    """An action of an agent.

    Attributes:
        text: Text of the action.
        usage: Cost of the action.
        credit: Credit of each token of the action, from agents that have it.
        note: Remark for the record: the thought before an action, the reply that held it.
    """

    text: str
    usage: Usage = Usage()
    credit: TokenCredit | None = None
    note: str = ""


class Agent(ABC):
    """Plays episodes, one at a time.

    Attributes:
        name: Name in tables, such as "openai:gpt-x".
        settings: Everything that identifies the agent in a results line: model, temperature, template, checksum of a
            checkpoint. No secrets.
        incidental: Names of settings without effect on its actions, such as a timeout: a resumed run may change them.
        records_steps: Whether the agent's steps are recorded; set before each episode. If not, no one reads
            `Decision.credit`.
    """

    name: str
    settings: dict[str, JSON]
    incidental: frozenset[str] = frozenset()
    records_steps: bool = True

    # Methods that an agent without memory need not override.
    def begin(self, env: LangEnv[Any], seed: int) -> None:  # noqa: B027
        """Start a new episode; the environment has been reset.

        Args:
            env: The environment without wrappers around it (`lang_envs.language_env`). Oracles look inside; honest
                agents do not.
            seed: Seed of all randomness of the agent in the episode, independent of earlier episodes.
        """

    @abstractmethod
    def act(self, observation: str, info: Mapping[str, Any]) -> Decision:
        """Choose an action.

        Args:
            observation: Current observation.
            info: Info with `info["admissible_actions"]`: a `list[str]`, or None where any text is an action.
        """

    def observe(  # noqa: B027
        self,
        decision: Decision,
        observation: str,
        reward: float,
        terminated: bool,
        truncated: bool,
        info: Mapping[str, Any],
    ) -> None:
        """Take in the outcome of an action; called after every step.

        Args:
            decision: Result of `act`.
            observation: Observation after the action.
            reward: Reward of the step.
            terminated: Whether the episode ended by success or failure.
            truncated: Whether the time limit ended the episode.
            info: Info of the step.
        """

    def step_fields(self) -> Mapping[str, JSON]:
        """Return further fields of the line of the last action; called after `act` where steps are recorded.

        For example `token_options` and `alternatives` of its tokens; see the page on results files.
        """
        return {}

    def final_value(self, observation: str, info: Mapping[str, Any]) -> float | None:
        """Return the value of the last observation of a truncated episode; None where there is no critic.

        Called after `observe`, where steps are recorded.

        Args:
            observation: Last observation of the episode.
            info: Info of the last observation.
        """
        return None

    def close(self) -> None:  # noqa: B027
        """Free the agent's resources."""
