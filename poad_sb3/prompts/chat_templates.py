"""Chat, completion and fill-in-the-middle templates bound to a tokenizer: text, special tokens, end of an action."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from jinja2 import TemplateError

from poad_sb3.errors import ModelError, ObservationError
from poad_sb3.prompts.question import PastStep, Question

TokenIds = tuple[int, ...]
Steps = Sequence[PastStep]

_LONGEST_ANCHOR = 16
_MARK = "\ue000{}\ue001"
"""Placeholder for a content while a chat template is rendered; of the private use area, unknown to templates."""

_TAG = re.compile(r"[<\[◁][^<>\[\]◁▷\s]+[>\]▷]")
"""Tags of chat templates."""
_THOUGHT = re.compile("(?<!no)(?<!no.)(think|thought|reason)", re.IGNORECASE)
"""Name of a thought in a tag; `<no_think>` is none."""
_NO_THOUGHT = re.compile("no.?(think|thought|reason)", re.IGNORECASE)
_BEGINS = re.compile("begin|start", re.IGNORECASE)
_CLOSES = re.compile(r"/|(?<![a-z])end|end(?![a-z])|^<\w+\|>", re.IGNORECASE)
"""Mark of an end in a tag: `</think>`, `<|END_THINKING|>`, `<channel|>`."""


class Segment(NamedTuple):
    """A piece of a prompt.

    Attributes:
        text: Content of the message.
        is_content: Whether it comes from an environment: a special token's name in it is then just text.
    """

    text: str
    is_content: bool


class Layout(ABC):
    """A template bound to a tokenizer.

    Attributes:
        start: Token ids at the start of a prompt.
        separator: Text between prompt and action.
        anchor: Plain text right before the separator. Tokenizers treat the beginning of a text in their own ways
            (an added space, another token for the same word); behind the anchor an action has its usual tokens.
        end_token: Id of the token that ends an action.
        changed_template: Chat template of the prompts, where it is not the tokenizer's own; None elsewhere.
    """

    start: TokenIds = ()
    separator: str = ""
    anchor: str = ""
    end_token: int
    changed_template: str | None = None

    @abstractmethod
    def segments(
        self, question: Question, heads: Sequence[PastStep], tails: Sequence[PastStep], omitted: int
    ) -> list[Segment]:
        """Return the segments of the prompt.

        Args:
            question: Question to show.
            heads: Earlier steps, oldest first.
            tails: Later steps, after those that are left out.
            omitted: Number of steps that are left out between them.
        """

    def next_turn(self, text: str) -> list[Segment]:
        """Return the segments between an answer without its end token and the next answer, around an observation."""
        raise ModelError(
            "Expected prompt='chat' or prompt='completion' with keep_thoughts=True; got a prompt that fills a gap. "
            "Fix: another prompt, or leave keep_thoughts out."
        )


def omission(n_steps: int) -> str:
    """Return the line that stands for steps that are left out."""
    return f"({n_steps} earlier {'step is' if n_steps == 1 else 'steps are'} left out.)\n" if n_steps else ""


class CompletionLayout(Layout):
    """See `CompletionPrompt`."""

    def __init__(self, tokenizer: Any, separator: str) -> None:
        self.start, self.end_token = _start_of(tokenizer), int(tokenizer.eos_token_id)
        self.separator, self.anchor = separator, "a"

    def segments(
        self, question: Question, heads: Sequence[PastStep], tails: Sequence[PastStep], omitted: int
    ) -> list[Segment]:
        """See `Layout.segments`."""
        before, after = ("".join(map(self._line, steps)) for steps in (heads, tails))
        return [Segment(before + omission(omitted) + after + question.text, True)]

    def next_turn(self, text: str) -> list[Segment]:
        """See `Layout.next_turn`."""
        return [Segment(f"\n{text}", True)]

    def _line(self, step: PastStep) -> str:
        return f"{step.observation}{self.separator}{step.action}\n"


def _start_of(tokenizer: Any) -> TokenIds:
    """Return the tokens that the tokenizer itself puts before a text: the start token, if the model has one."""
    alone, with_it = tokenizer.encode("a", add_special_tokens=False), tokenizer.encode("a")
    added = len(with_it) - len(alone)
    for n in range(added + 1):
        if with_it[n : n + len(alone)] == alone and n:
            return tuple(with_it[:n])
    return ()


class ChatLayout(Layout):
    """See `ChatPrompt`. The chat template is rendered once for each number of messages, with marks for contents."""

    def __init__(self, tokenizer: Any, system: str, arguments: Mapping[str, Any]) -> None:
        if not getattr(tokenizer, "chat_template", None):
            raise ModelError(
                "Expected a tokenizer with a chat template for prompt='chat'; this one has none. "
                "Fix: prompt='completion', or set tokenizer.chat_template in the model's folder."
            )
        self._tokenizer, self._arguments, self._system = tokenizer, dict(arguments), system
        template = self._arguments.pop("chat_template", None) or tokenizer.chat_template
        self._chat_template: str | None = template.get("default") if isinstance(template, dict) else template
        date = str(arguments.get("date_string", ""))
        if date and self._chat_template and "strftime_now" in self._chat_template:
            clock = f"{{%- macro strftime_now(format) -%}}{date}{{%- endmacro +%}}"
            self.changed_template = self._chat_template = clock + self._chat_template
        self._has_system = bool(system) and self._knows_system()
        self._skeleton = lru_cache(maxsize=64)(self._render_skeleton)
        self._trims = f"\t{_MARK.format(0)}\t" not in self._render([_message("user", 0, "\t")], generate=True)
        unanswered = self._render([_message("user", 0)], generate=True)
        answered = self._render([_message("user", 0), _message("assistant", 1)], generate=False)
        before, _, ending = answered.partition(_MARK.format(1))
        opening = before[len(unanswered) :] if before.startswith(unanswered) else ""
        closing = self._closing(*(text.partition(_MARK.format(0))[2] for text in (unanswered + opening, before)))
        # Special tokens before an answer belong to the prompt: the agent is not to write them.
        is_plain = not closing and not any(name in opening for name in (*self._added_names(), *_TAG.findall(opening)))
        self.separator, suffix = (opening, "") if is_plain else ("", opening + closing)
        if suffix:
            generation = f"{{{{ {json.dumps(suffix, ensure_ascii=False)} if add_generation_prompt }}}}"
            # Jinja drops a newline at the end of a template.
            self.changed_template = self._chat_template = re.sub(r"\r?\n\Z", "", self._chat_template or "") + generation
        self.end_token = self._end_of_turn(ending)
        self.anchor = self._plain_tail(unanswered + suffix)
        self._check_contents()

    def segments(
        self, question: Question, heads: Sequence[PastStep], tails: Sequence[PastStep], omitted: int
    ) -> list[Segment]:
        """See `Layout.segments`."""
        contents: list[str] = [self._system] if self._has_system else []
        for number, step in enumerate((*heads, *tails)):
            gap = omission(omitted) if number == len(heads) else ""
            contents += [gap + step.observation, step.action]
        gap = omission(omitted) if not tails else ""
        contents.append(gap + question.text)
        if self._system and not self._has_system:
            contents[0] = f"{self._system}\n\n{contents[0]}"
        if self._trims:
            contents = [content.strip() for content in contents]
        pieces = self._skeleton(len(heads) + len(tails))
        segments = [Segment(pieces[0], False)]
        for content, piece in zip(contents, pieces[1:], strict=True):
            segments += [Segment(content, True), Segment(piece, False)]
        return segments

    def next_turn(self, text: str) -> list[Segment]:
        """See `Layout.next_turn`."""
        *_, before, behind = self._skeleton(1)
        return [Segment(before, False), Segment(text.strip() if self._trims else text, True), Segment(behind, False)]

    def _render_skeleton(self, n_past: int) -> tuple[str, ...]:
        """Return the texts of the template before, between and behind the contents."""
        roles = ["system"] * self._has_system + ["user", "assistant"] * n_past + ["user"]
        rest = self._render([_message(role, number) for number, role in enumerate(roles)], generate=True)
        pieces = []
        for number in range(len(roles)):
            piece, mark, rest = rest.partition(_MARK.format(number))
            if not mark:
                raise ModelError(
                    f"Expected a chat template that shows all {len(roles)} messages in their order; that of this "
                    f"tokenizer leaves out number {number + 1} ({roles[number]}). Fix: prompt='completion'."
                )
            pieces.append(piece)
        if _MARK[0] in "".join((*pieces, rest)):
            raise ModelError(
                "Expected a chat template that shows each message once; that of this tokenizer repeats some, or turns "
                "their order. Fix: prompt='completion'."
            )
        for role, piece in zip((*roles[1:], "assistant"), (*pieces[1:], rest), strict=True):
            if role == "assistant" and (tag := self._open_thought(piece)):
                raise self._thought_error(tag)
        return (*pieces, rest)

    def _check_contents(self) -> None:
        """Refuse a template that changes its contents, beyond the spaces around them."""
        words = 'Pick up "it" & wait.'
        segments = self.segments(Question(words, None), (), (), 0)
        roles = ["system"] * self._has_system + ["user"]
        contents = [segment.text for segment in segments if segment.is_content]
        talk = [{"role": role, "content": text} for role, text in zip(roles, contents, strict=True)]
        if "".join(segment.text for segment in segments) != self._render(talk, generate=True):
            raise ModelError(
                "Expected a chat template that shows messages as they are; that of this tokenizer changes "
                f"{words!r}. Fix: prompt='completion'."
            )

    def _render(self, messages: list[dict[str, str]], *, generate: bool) -> str:
        try:
            text: str = self._tokenizer.apply_chat_template(
                messages,
                tokenize=False,
                add_generation_prompt=generate,
                chat_template=self._chat_template,
                **self._arguments,
            )
        except (TemplateError, ValueError, TypeError, KeyError) as error:
            raise ModelError(
                f"Expected a chat template that takes {[message['role'] for message in messages]}; it fails with "
                f"{type(error).__name__}: {error}. Fix: prompt='completion'."
            ) from error
        return text

    def _closing(self, unanswered: str, answered: str) -> str:
        """Return the text that closes a thought which the template opens for the agent: it is to act.

        Args:
            unanswered: Text between a message of the user and the answer of the agent.
            answered: Text between such a message and an answer that was given.

        Raises:
            ModelError: If the end of the thought is unknown, or more than an empty thought is put before the answer.
        """
        tag = self._open_thought(unanswered)
        if tag:
            names: set[str] = {*_TAG.findall(self._chat_template or ""), *self._added_names()}
            ends = {name for name in names if _THOUGHT.search(name) and _CLOSES.search(name)}
            usual = re.sub(r"(?=\w)", "/", tag, count=1)
            if usual in ends or (not ends and tag[1].isalpha() and not _BEGINS.search(tag)):
                ends = {usual}
            if len(ends) != 1 or not unanswered.rstrip().endswith(tag):  # a thought that has begun
                raise self._thought_error(tag)
            n_newlines = len(unanswered) - len(unanswered.rstrip("\n"))
            return "\n" * max(0, 2 - n_newlines) + ends.pop() + "\n\n"
        header = answered.split()[-1:]
        rest = unanswered.rpartition(header[0])[2].strip() if header and header[0] in unanswered else ""
        tags = _TAG.findall(rest)
        is_thought = any(map(_THOUGHT.search, tags)) and bool(_TAG.sub("", rest).strip())
        is_open = bool(rest) and not any(map(_CLOSES.search, tags[-1:])) and not _NO_THOUGHT.search(rest)
        if is_open or is_thought:
            raise self._thought_error(rest)
        return ""

    def _open_thought(self, text: str) -> str:
        """Return the last tag of a thought in the text before an answer if it opens one; an empty text otherwise.

        Tags in the turn before, which may speak of thoughts, are no part of the answer.
        """
        marks = [*self._added_names(), *filter(_CLOSES.search, _TAG.findall(text))]
        ends = [text.rfind(mark) + len(mark) for mark in marks if mark in text and not _THOUGHT.search(mark)]
        tags = [tag for tag in _TAG.findall(text[max(ends, default=0) :]) if _THOUGHT.search(tag)]
        return tags[-1] if tags and not _CLOSES.search(tags[-1]) else ""

    def _thought_error(self, opened: str) -> ModelError:
        return ModelError(
            f"Expected a chat template that puts no text but an empty thought before an answer; got {opened!r} in "
            "that of this tokenizer. Fix: prompt='completion', or another template: "
            "prompt={'kind': 'chat', 'arguments': {'chat_template': ...}}."
        )

    def _knows_system(self) -> bool:
        try:
            return _MARK.format(0) in self._render([_message("system", 0), _message("user", 1)], generate=True)
        except ModelError:
            return False

    def _end_of_turn(self, ending: str) -> int:
        """Return the special token that follows an answer; the tokenizer's end token if none does."""
        special = set(self._tokenizer.all_special_ids) | set(self._tokenizer.added_tokens_decoder)
        ids = self._tokenizer.encode(ending, add_special_tokens=False)
        return next((int(token) for token in ids if token in special), int(self._tokenizer.eos_token_id))

    def _added_names(self) -> list[str]:
        return [str(token) for token in self._tokenizer.added_tokens_decoder.values() if str(token).strip()]

    def _plain_tail(self, text: str) -> str:
        """Return the plain characters after a prompt's last special token (it may have swallowed spaces)."""
        ids = self._tokenizer.encode(text, add_special_tokens=False)
        special = [index for index, token in enumerate(ids) if token in self._tokenizer.added_tokens_decoder]
        tail: str = self._tokenizer.decode(ids[max(special, default=-1) + 1 :], clean_up_tokenization_spaces=False)
        return tail[-_LONGEST_ANCHOR:]


def _message(role: str, number: int, around: str = "") -> dict[str, str]:
    return {"role": role, "content": f"{around}{_MARK.format(number)}{around}"}


class _FillInMiddleTokens(NamedTuple):
    """Special tokens of a family of models for a hole: before prefix, suffix and middle, and the end of the middle."""

    prefix: str
    suffix: str
    middle: str
    end: str | None = None


_FILL_IN_MIDDLE_TOKENS = (
    _FillInMiddleTokens("▁<PRE>", "▁<SUF>", "▁<MID>", "▁<EOT>"),  # CodeLlama
    _FillInMiddleTokens("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, SantaCoder
    _FillInMiddleTokens("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    _FillInMiddleTokens("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen2.5-Coder, CodeGemma
    _FillInMiddleTokens("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # noqa: RUF001 - DeepSeek-Coder's own bars
)
"""Special tokens by family. In DeepSeek-Coder the second marks the hole and the third the end of the suffix: the same
order of tokens."""


class FillInMiddleLayout(Layout):
    """See `FillInMiddlePrompt`: prefix mark, prefix, suffix mark, suffix, middle mark."""

    def __init__(self, tokenizer: Any, tokens: tuple[str, str, str] | None) -> None:
        vocabulary = tokenizer.get_vocab()
        wanted = _FILL_IN_MIDDLE_TOKENS if tokens is None else (_FillInMiddleTokens(*tokens),)
        marks = next((marks for marks in wanted if vocabulary.keys() >= set(marks[:3])), None)
        if marks is None:
            missing = [token for token in wanted[0][:3] if token not in vocabulary]
            raise ModelError(
                f"Expected a tokenizer with tokens for filling in the middle, such as {wanted[0][:3]}; its vocabulary "
                f"has no {missing[0]!r}. Fix: prompt='completion', or name tokens that it has: "
                "prompt={'kind': 'fim', 'tokens': [...]}."
            )
        self.start, self._marks = _start_of(tokenizer), marks
        self.end_token = int(vocabulary.get(marks.end, tokenizer.eos_token_id))

    def segments(
        self, question: Question, heads: Sequence[PastStep], tails: Sequence[PastStep], omitted: int
    ) -> list[Segment]:
        """See `Layout.segments`."""
        fields = dict(question.context.fields) if question.context is not None else {}
        if not {"prefix", "suffix"} <= fields.keys():
            raise ObservationError(
                "Expected info['prefix'] and info['suffix'] beside the observation for prompt='fim'; got "
                f"{sorted(fields)}. Fix: AdmissibleObservation(env, fields=('prefix', 'suffix')), or another prompt."
            )
        return [
            Segment(self._marks.prefix, False),
            Segment(fields["prefix"], True),
            Segment(self._marks.suffix, False),
            Segment(fields["suffix"], True),
            Segment(self._marks.middle, False),
        ]
