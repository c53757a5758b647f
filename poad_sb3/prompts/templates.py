"""Prompt templates: data for making prompts, that can be saved with a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, NamedTuple

from poad_sb3.errors import ModelError
from poad_sb3.prompts.chat_templates import ChatLayout, CompletionLayout, FillInMiddleLayout, Layout

__all__ = ["ChatPrompt", "CompletionPrompt", "ContextSpec", "FillInMiddlePrompt", "PromptTemplate"]

DEFAULT_SYSTEM = (
    "You act in a world that is described in words. Each message tells what you see. Answer with your next action and "
    "nothing else."
)
_FIXED_DATE = "26 Jul 2024"
"""Date for chat templates that print today's: the same run would have another prompt tomorrow."""


class ContextSpec(NamedTuple):
    """Fields that a template needs beside the observation.

    Attributes:
        history: Number of steps of the episode.
        fields: Names of fields of `info`.
    """

    history: int = 0
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PromptTemplate(ABC):
    """Template of a prompt around an observation.

    Attributes:
        version: Version of the rules behind this kind of template; a change of them gets a new number.
    """

    kind: ClassVar[str]
    newest: ClassVar[int] = 1
    version: int = 1

    def __post_init__(self) -> None:
        """Refuse unknown versions."""
        if self.version not in range(1, self.newest + 1):
            raise ModelError(
                f"Expected a version of the {self.kind} prompt up to {self.newest}; got {self.version!r}. "
                "Fix: use the version of this package that the run was made with, or leave version out."
            )

    @property
    def context_spec(self) -> ContextSpec:
        """Fields that the template needs beside the observation."""
        return ContextSpec()

    @property
    def history_tokens(self) -> int | None:
        """Bound on the tokens of the history; None for the model's own limit alone."""
        return None

    @abstractmethod
    def bind(self, tokenizer: Any) -> Layout:
        """Return the template for one tokenizer.

        Raises:
            ModelError: If the tokenizer lacks a token or a usable chat template.
        """

    def to_dict(self) -> dict[str, Any]:
        """Return the template as JSON values; `template_of` reads them."""
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True, kw_only=True)
class _WithHistory(PromptTemplate):
    """A template that can show earlier steps.

    Attributes:
        history: Number of the latest steps of the episode that are shown.
        max_history_tokens: Maximum number of their tokens; None for the model's context alone.
    """

    history: int = 0
    max_history_tokens: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value, minimum in (("history", self.history, 0), ("max_history_tokens", self.max_history_tokens, 1)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < minimum):
                raise ModelError(f"Expected {name} of a prompt to be an integer of at least {minimum}; got {value!r}.")

    @property
    def context_spec(self) -> ContextSpec:
        return ContextSpec(history=self.history)

    @property
    def history_tokens(self) -> int | None:
        return self.max_history_tokens


@dataclass(frozen=True, kw_only=True)
class CompletionPrompt(_WithHistory):
    """The observation itself; the action follows after a space. Earlier steps are lines before it.

    ```text
    {observation} {action}
    {observation} {action}
    {observation}
    ```

    Attributes:
        separator: Text between observation and action.
    """

    kind: ClassVar[str] = "completion"
    separator: str = " "

    def bind(self, tokenizer: Any) -> Layout:
        """See `PromptTemplate.bind`."""
        return CompletionLayout(tokenizer, self.separator)


@dataclass(frozen=True, kw_only=True)
class ChatPrompt(_WithHistory):
    """A conversation by the tokenizer's own chat template: observations by the user, actions by the assistant.

    Attributes:
        system: Instructions before the conversation; empty for none. Where a template knows no system role, they are
            the beginning of the first message.
        arguments: Variables of the template beside the messages. Thinking is off by default.
    """

    kind: ClassVar[str] = "chat"
    system: str = DEFAULT_SYSTEM
    arguments: Mapping[str, Any] = field(default_factory=lambda: {"enable_thinking": False, "date_string": _FIXED_DATE})

    def bind(self, tokenizer: Any) -> Layout:
        """See `PromptTemplate.bind`."""
        return ChatLayout(tokenizer, self.system, self.arguments)

    def __hash__(self) -> int:
        return hash((self.version, self.history, self.max_history_tokens, self.system))


@dataclass(frozen=True, kw_only=True)
class FillInMiddlePrompt(PromptTemplate):
    """`info["prefix"]` and `info["suffix"]` around a hole, for models that are trained to fill one.

    Attributes:
        tokens: Special tokens of the model: before the prefix, before the suffix, and before the text of the hole.
            Found by the vocabulary if None.
    """

    kind: ClassVar[str] = "fim"
    tokens: tuple[str, str, str] | None = None

    @property
    def context_spec(self) -> ContextSpec:
        """Fields of the two sides of the hole."""
        return ContextSpec(fields=("prefix", "suffix"))

    def bind(self, tokenizer: Any) -> Layout:
        """See `PromptTemplate.bind`."""
        return FillInMiddleLayout(tokenizer, self.tokens)
