"""`Prompter`: token ids of prompts and actions, and the text of token ids."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from functools import partial
from itertools import pairwise
from typing import Any

from poad_sb3.errors import ModelError, ObservationError
from poad_sb3.prompts.chat_templates import Segment
from poad_sb3.prompts.question import PastStep, Question
from poad_sb3.prompts.templates import PromptTemplate

TokenIds = tuple[int, ...]


class Prompter:
    """A template bound to a tokenizer.

    Prompt and action are tokenised apart and their ids joined, so the sampled ids are the scored ids, for any
    tokenizer.

    Args:
        tokenizer: Tokenizer of the model.
        template: Template of the prompts.
        max_length: Maximum number of tokens of the model's context.
        other_ends: Ids of further tokens that end a generated text, beside the layout's.
    """

    def __init__(
        self,
        tokenizer: Any,
        template: PromptTemplate,
        max_length: int,
        other_ends: Iterable[int] = (),
    ) -> None:
        self.template, self.layout, self.max_length = template, template.bind(tokenizer), max_length
        self.end_token = self.layout.end_token
        added = tokenizer.added_tokens_decoder
        # A model's settings may name an ordinary word: left-over defaults of a config do.
        added_ends = {int(token) for token in other_ends if token in added}
        self.end_tokens = frozenset({self.end_token, int(tokenizer.eos_token_id)} | added_ends)
        self._tokenizer = tokenizer
        # Words such as "<think>" are no special tokens, but tokens with a meaning all the same. Runs of spaces are not;
        # unknown text is encoded by the unknown token.
        meaningful = {number: str(token) for number, token in added.items() if str(token).replace("\u2581", "").strip()}
        self._meaningful = frozenset(meaningful) - {tokenizer.unk_token_id}
        names = "|".join(map(re.escape, meaningful.values()))
        self._names = re.compile(names, re.IGNORECASE) if names else None
        self._anchor_ids = self._encode(self.layout.anchor, is_content=True)
        self._anchor_text = self._decode(self._anchor_ids)
        self._has_warned = False

    # ------------------------------------------------------------------ prompts

    def prompt_ids(self, question: Question, reserve: int = 1) -> TokenIds:
        """Return the token ids of a prompt.

        With a `question.past`, the prompt is the past followed by the new observation. A past that does not fit is
        dropped.

        Without a past, steps of a history that is too long are left out from its middle, since the first and the latest
        steps matter most; a mark shows their number. The task and the present observation are never cut.

        Args:
            question: Question to encode.
            reserve: Number of tokens to leave for the action.

        Raises:
            ObservationError: If there is no token (the first action token would have no predecessor), or the
                observation lacks a field of the template.
            ModelError: If the prompt is too long even without history.
        """
        if question.past:
            turn = self._encode_segments(self.layout.next_turn(question.text))
            is_ended = question.past[-1] in self.end_tokens  # the layout writes what ends an answer
            ids = (*(question.past[:-1] if is_ended else question.past), *turn)
            if self._fits(ids, turn, reserve):
                return ids
        past = self._history(question)
        ids = self._joined(question, past, len(past))
        bare = self._joined(question, (), 0) if past else ids
        if past and not self._fits(ids, bare, reserve):
            kept, ids = self._longest(question, past, bare, reserve)
            self._warn_once(len(past) - kept, len(past))
        if len(ids) > self.max_length:  # with a smaller reserve, a shorter action may still fit
            raise ModelError(
                f"Expected a prompt of at most {self.max_length} tokens (the model's limit); an observation of "
                f"{len(question.text)} characters takes {len(ids)}. Fix: shorten the observation (or the instructions "
                "of a chat), or use a model with a longer context."
            )
        return ids

    def _longest(
        self, question: Question, past: tuple[PastStep, ...], bare: TokenIds, reserve: int
    ) -> tuple[int, TokenIds]:
        """Return the most steps that fit, and the prompt with them, by bisection: prompts grow with their steps."""
        kept, best = 0, bare  # without any history, and without the mark of a gap
        low, high = 0, len(past) - 1
        while low <= high:
            middle = (low + high) // 2
            ids = self._joined(question, past, middle)
            if self._fits(ids, bare, reserve):
                kept, best, low = middle, ids, middle + 1
            else:
                high = middle - 1
        return kept, best

    def _history(self, question: Question) -> tuple[PastStep, ...]:
        wanted = self.template.context_spec.history
        if not wanted:
            return ()
        if question.context is None:
            raise ObservationError(
                f"Expected the latest steps beside the observation: the prompt shows {wanted}. "
                f"Fix: AdmissibleObservation(env, history={wanted}), as model.get_env() has it."
            )
        return question.context.history[-wanted:]

    def _joined(self, question: Question, past: tuple[PastStep, ...], kept: int) -> TokenIds:
        n_heads = kept // 2
        heads, tails = past[:n_heads], past[len(past) - (kept - n_heads) :]
        segments = self.layout.segments(question, heads, tails, len(past) - kept)
        ids = (*self.layout.start, *self._encode_segments(segments))
        if not ids:
            raise ObservationError(
                f"Expected an observation of at least one token; got {question.text!r}, and this tokenizer has no "
                "start token. Fix: let the environment describe its state in words."
            )
        return ids

    def _fits(self, ids: TokenIds, bare: TokenIds, reserve: int) -> bool:
        bound = self.template.history_tokens
        return len(ids) + reserve <= self.max_length and (bound is None or len(ids) - len(bare) <= bound)

    def _warn_once(self, n_omitted: int, n_steps: int) -> None:
        if n_omitted and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"The history does not fit into the prompt: {n_omitted} of {n_steps} steps are left out from its "
                "middle. (Said once.) Fix: a smaller history, more max_history_tokens, shorter texts, or a model "
                "with a longer context.",
                stacklevel=2,
            )

    def _encode_segments(self, segments: list[Segment]) -> TokenIds:
        """Return the token ids of a prompt's segments.

        They are encoded as one text, as in the models' training, or one by one if a content spells a special token.
        """
        if all(segment.is_content for segment in segments) or self._spell_specials(segments):
            return tuple(
                token for segment in segments for token in self._encode(segment.text, is_content=segment.is_content)
            )
        return self._encode("".join(segment.text for segment in segments), is_content=False)

    def _spell_specials(self, segments: list[Segment]) -> bool:
        """Return whether a content would be read as a special token."""
        return self._names is not None and any(
            self._names.search(segment.text) for segment in segments if segment.is_content
        )

    def _encode(self, text: str, *, is_content: bool) -> TokenIds:
        encode = partial(self._tokenizer.encode, add_special_tokens=False, split_special_tokens=is_content)
        text = text.encode(errors="replace").decode()  # tokenizers take no lone surrogates: each becomes "?"
        ids = tuple(encode(text))
        if not is_content or self._meaningful.isdisjoint(ids):
            return ids
        # Text from an environment is text: a "</s>" in it must not become the end token. Text that the tokenizer takes
        # for one all the same is cut inside of the word, and if that does not help, everywhere.
        for pieces in (self._cut(text), list(text)):
            ids = tuple(token for piece in pieces for token in encode(piece))
            if self._meaningful.isdisjoint(ids):
                break
        return ids

    def _cut(self, text: str) -> list[str]:
        """Return the text, cut inside of every name of a token with a meaning."""
        matches = () if self._names is None else self._names.finditer(text)
        cuts = [0, *(match.start() + 1 for match in matches), len(text)]
        return [text[start:end] for start, end in pairwise(cuts)]

    def mark_ids(self, text: str) -> TokenIds:
        """Return the token ids of a mark of the format, as a special token where the tokenizer has one.

        Raises:
            ObservationError: If the tokenizer cannot spell it.
        """
        ids = self._encode(text, is_content=False)
        if text.strip() not in self._decode(ids):
            raise ObservationError(
                f"Expected a mark that the tokenizer can spell; got {text!r}, which it reads as {self._decode(ids)!r}. "
                "Fix: other thought_marks, in words of the model's vocabulary."
            )
        return ids

    # ------------------------------------------------------------------ actions

    def action_ids(self, text: str) -> TokenIds:
        """Return the token ids of an action that continues a prompt, end token included."""
        whole = self._encode(self.layout.anchor + self.layout.separator + text, is_content=True)
        n = len(self._anchor_ids)
        if whole[:n] == self._anchor_ids:
            return (*whole[n:], self.end_token)
        return (*self._encode(self.layout.separator + text, is_content=True), self.end_token)

    def action_text(self, ids: TokenIds) -> str:
        """Return the text of an action's tokens, without the separator before it and the end token."""
        kept = ids[:-1] if ids and ids[-1] in self.end_tokens else ids
        text = self._decode((*self._anchor_ids, *kept))
        return text.removeprefix(self._anchor_text).removeprefix(self.layout.separator)

    def _decode(self, ids: TokenIds) -> str:
        # A special token that a model writes in the middle is spelled out: left out, the action could be another one.
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text
