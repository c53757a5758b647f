"""`FreeDistribution`: token by token, among the whole vocabulary, until an end token or a stop text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from poad_sb3.distributions.action_trie import Decision, TokenIds
from poad_sb3.distributions.base import (
    ActionDistribution,
    SampledAction,
    ScoreCache,
    TokenChoice,
    TokenPath,
    decision_row,
)
from poad_sb3.distributions.token_sampling import Support, draw, next_token_support
from poad_sb3.errors import ObservationError
from poad_sb3.language_model.decoding import Decoding
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.prompts import Question
from poad_sb3.settings.sampling import SamplingSettings

__all__ = ["FreeDistribution", "choices_on_path", "free_action", "generate", "has_ended", "require_whole_vocabulary"]

OnEnd = Callable[[Decoding, Sequence[int], Mapping[int, SampledAction]], None]
"""Function of a decoding, the rows in it that have ended, and their continuations, by the numbers of the prompts."""
_SLICE = 32
"""Number of places of an action whose logits of the whole vocabulary are in memory together."""


class FreeDistribution(ActionDistribution):
    """Ordinary sampling from the model's next-token distribution.

    Args:
        lm: Language model.
        sampling: Sampling settings: temperature, top-k and top-p, and the end of an action.
    """

    def __init__(self, lm: LanguageModel, sampling: SamplingSettings) -> None:
        super().__init__(lm)
        self._sampling = sampling

    def sample(
        self, questions: Sequence[Question], rngs: Sequence[np.random.Generator], cache: ScoreCache
    ) -> list[SampledAction]:
        """See `ActionDistribution.sample`."""
        prompts = [self.prompt(question) for question in questions]
        uniforms = np.stack([rng.random(self._sampling.max_new_tokens) for rng in rngs])
        return generate(self.lm, prompts, self._sampling, uniforms)

    def mode(self, questions: Sequence[Question], cache: ScoreCache) -> list[SampledAction]:
        """Decode greedily: the most probable token at each place, not the most probable text."""
        return generate(self.lm, [self.prompt(question) for question in questions], self._sampling, None)

    def path(self, question: Question, text: str) -> TokenPath:
        """See `ActionDistribution.path`; any text that fits is an action, if every token can be sampled."""
        tokens, sampling = self.lm.action_ids(text), self._sampling
        require_whole_vocabulary(sampling)
        if ends := [end for end in sampling.stop if end in text]:
            raise ObservationError(
                f"Expected actions without the stop text {ends[0]!r}, where sampling ends; got {text[:60]!r}. "
                "Fix: leave stop out here, or the texts after it."
            )
        if len(tokens) > sampling.max_new_tokens:
            raise ObservationError(
                f"Expected actions of at most max_new_tokens={sampling.max_new_tokens} tokens; got one of "
                f"{len(tokens)}, {text[:60]!r}. Fix: a larger max_new_tokens."
            )
        decisions = tuple(Decision(position, (), token) for position, token in enumerate(tokens))
        return TokenPath(self.prompt(question), tokens, decisions, temperature=float(sampling.temperature))

    def probabilities(self, question: Question, cache: ScoreCache) -> dict[str, float]:
        """Refuse: any text is an action.

        Raises:
            ObservationError: Always.
        """
        raise ObservationError(
            "Expected a distribution over listed actions; any text is an action here. Fix: action_sampling='trie', if "
            "the environment lists its actions."
        )

    def token_choices(
        self, question: Question, path: TokenPath, cache: ScoreCache, *, most: int = 8
    ) -> list[TokenChoice]:
        """See `ActionDistribution.token_choices`; one more pass over prompt and action."""
        return choices_on_path(self.lm, path, most)

    def prompt(self, question: Question) -> TokenIds:
        """See `ActionDistribution.prompt`."""
        return self.lm.prompt_ids(question, reserve=self._sampling.max_new_tokens)


def require_whole_vocabulary(sampling: SamplingSettings) -> None:
    """Refuse settings under which some texts have no probability."""
    if sampling.restricts_tokens:
        raise ObservationError(
            f"Expected top_k=0 and top_p=1, with which every text has a probability; got {sampling.top_k} and "
            f"{sampling.top_p}. Fix: leave them out here, and give them to the training that follows."
        )


@torch.no_grad()
def choices_on_path(lm: LanguageModel, path: TokenPath, most: int) -> list[TokenChoice]:
    """Return the distributions at the decisions of a path, among the whole vocabulary or among listed tokens."""
    row = decision_row(path)
    if row is None:
        return []
    choices = []
    hidden = lm.hidden_states([row.row])
    for start in range(0, len(hidden), _SLICE):
        part = slice(start, start + _SLICE)
        logits = lm.vocabulary_logits(hidden[part]) / path.temperature
        for scaled, decision in zip(logits, path.decisions[part], strict=True):
            ids = torch.tensor(decision.children or range(len(scaled)), device=scaled.device)
            log_probs = scaled[ids].log_softmax(-1)
            best, at = log_probs.topk(min(most, len(ids)))
            entropy = float(torch.special.entr(log_probs.exp()).sum())
            listed = tuple(ids[at].tolist()), tuple(best.tolist())
            choices.append(TokenChoice(decision.position, *listed, entropy))
    return choices


@torch.no_grad()
def generate(
    lm: LanguageModel,
    prompts: Sequence[TokenIds],
    sampling: SamplingSettings,
    uniforms: NDArray[np.float64] | None,
    reserves: Sequence[int] | None = None,
    on_end: OnEnd | None = None,
) -> list[SampledAction]:
    """Continue prompts token by token.

    Rows that have ended leave the batch. The continuation of a row does not depend on the batch: each has random
    numbers of its own.

    Args:
        lm: Language model.
        prompts: Token ids of the prompts, at least one each.
        sampling: Sampling settings: temperature, top-k and top-p. A continuation ends after `max_new_tokens`, before
            the first of the texts in `stop`, or with one of the model's own end tokens.
        uniforms: Random numbers in [0, 1), `[n, max_new_tokens]`; None for the most probable tokens.
        reserves: Number of tokens of the model's context to leave behind each continuation; none by default.
        on_end: Function to call with rows that have ended, before they leave the batch.

    Raises:
        FloatingPointError: If the model's log-probabilities are not finite.
        ModelError: If a prompt leaves no room for a token.
    """
    written: dict[int, SampledAction] = {}
    reserves = [0] * len(prompts) if reserves is None else reserves
    for chunk in lm.decode_batches(prompts, sampling.max_new_tokens):
        chunk_uniforms = None if uniforms is None else uniforms[chunk]
        batch = _Batch(lm, [prompts[index] for index in chunk], sampling, [reserves[index] for index in chunk])
        written.update(zip(chunk, batch.run(chunk_uniforms, chunk, on_end), strict=True))
    written = lm.ranks.merge(written)
    return [written[index] for index in range(len(prompts))]


class _Batch:
    """Prompts that go through the model together."""

    def __init__(
        self, lm: LanguageModel, prompts: Sequence[TokenIds], sampling: SamplingSettings, reserves: Sequence[int]
    ) -> None:
        self._lm, self._sampling = lm, sampling
        self._prompts, self._reserves = prompts, reserves
        self._tokens: list[list[int]] = [[] for _ in prompts]
        self._log_probs: list[list[float]] = [[] for _ in prompts]
        self._decisions: list[list[Decision]] = [[] for _ in prompts]

    def run(
        self, uniforms: NDArray[np.float64] | None, chunk: Sequence[int], on_end: OnEnd | None
    ) -> list[SampledAction]:
        waiting = list(range(len(self._prompts)))
        decoding = self._lm.start_decoding(self._prompts)
        for position in range(self._sampling.max_new_tokens):
            support = next_token_support(self._lm.vocabulary_logits(decoding.hidden), self._sampling)
            numbers = None if uniforms is None else torch.from_numpy(uniforms[waiting, position])
            self._take(waiting, support, numbers)
            is_last = position + 1 == self._sampling.max_new_tokens
            keep = [row for row, index in enumerate(waiting) if not (is_last or self._has_ended(index))]
            if on_end is not None and len(keep) < len(waiting):
                ended = sorted({*range(len(waiting))} - {*keep})
                on_end(decoding, ended, {chunk[waiting[row]]: self._finished(waiting[row]) for row in ended})
            waiting = [waiting[row] for row in keep]
            if not waiting:
                break
            decoding.advance(keep, [self._tokens[index][-1] for index in waiting])
        return [self._finished(index) for index in range(len(self._prompts))]

    def _take(self, waiting: Sequence[int], support: Support, uniforms: torch.Tensor | None) -> None:
        drawn, drawn_log_probs = draw(support, uniforms)
        tokens, log_probs = drawn.tolist(), drawn_log_probs.tolist()
        if not np.isfinite(log_probs).all():
            raise FloatingPointError(
                f"Expected finite log-probabilities of tokens; got {log_probs}. "
                "Fix: the model diverged; lower the learning rate and continue from a checkpoint."
            )
        listed = [()] * len(tokens) if support.ids is None else _listed(support)
        for index, token, log_prob, children in zip(waiting, tokens, log_probs, listed, strict=True):
            if len(children) != 1:  # the only token that is left decides nothing; none are listed of a whole vocabulary
                choice = children.index(token) if children else token
                self._decisions[index].append(Decision(len(self._tokens[index]), children, choice))
            self._tokens[index].append(token)
            self._log_probs[index].append(log_prob)

    def _has_ended(self, index: int) -> bool:
        prompt, tokens = self._prompts[index], self._tokens[index]
        is_full = len(prompt) + len(tokens) + self._reserves[index] > self._lm.max_length
        return is_full or has_ended(self._lm, self._sampling, prompt, tokens)

    def _finished(self, index: int) -> SampledAction:
        written = self._tokens[index], self._log_probs[index], self._decisions[index]
        return free_action(self._lm, self._sampling, self._prompts[index], *written)


def has_ended(lm: LanguageModel, sampling: SamplingSettings, prompt: TokenIds, tokens: Sequence[int]) -> bool:
    """Return whether an action of these tokens is complete, `max_new_tokens` aside."""
    if len(prompt) + len(tokens) > lm.max_length or tokens[-1] in lm.prompter.end_tokens:
        return True
    return bool(sampling.stop) and _stop(lm.prompter.action_text(tuple(tokens)), sampling.stop) is not None


def free_action(
    lm: LanguageModel,
    sampling: SamplingSettings,
    prompt: TokenIds,
    tokens: Sequence[int],
    log_probs: Sequence[float],
    decisions: Sequence[Decision],
) -> SampledAction:
    """Return the action of the tokens written after a prompt; its text ends before the first stop text."""
    text = lm.prompter.action_text(tuple(tokens))
    path = TokenPath(prompt, tuple(tokens), tuple(decisions), temperature=float(sampling.temperature))
    return SampledAction(text[: _stop(text, sampling.stop)], path, np.array(log_probs, dtype=np.float32))


def _stop(text: str, stops: Sequence[str]) -> int | None:
    """Return the index where the first stop text begins; None without one."""
    return min((start for start in map(text.find, stops) if start >= 0), default=None)


def _listed(support: Support) -> list[TokenIds]:
    """Return the tokens in each row's support, ascending."""
    assert support.ids is not None
    return [tuple(sorted(ids[:size])) for ids, size in zip(support.ids.tolist(), support.sizes.tolist(), strict=True)]
