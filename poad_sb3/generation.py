"""Free actions: several prompts continued together until each has ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from poad_sb3.candidates import Decision, TokenIds
from poad_sb3.lm import LanguageModel
from poad_sb3.sampling import Support, TokenSampling, draw, next_token_support

__all__ = ["Continuation", "Limits", "generate"]


class Limits(NamedTuple):
    """When a continuation ends, beside the model's own end tokens.

    Attributes:
        max_new_tokens: Bound on its tokens, end token included.
        stop: Texts that end it; what it says ends before the first of them.
    """

    max_new_tokens: int
    stop: tuple[str, ...] = ()


class Continuation(NamedTuple):
    """What was written after a prompt.

    Attributes:
        text: In words, without end token and stop text.
        tokens: As it was sampled, end token (or that which completed a stop text) included.
        log_probs: Of each token, under the distribution it was drawn from, `[n]`.
        decisions: What each token was drawn among.
    """

    text: str
    tokens: TokenIds
    log_probs: NDArray[np.float32]
    decisions: tuple[Decision, ...]


@torch.no_grad()
def generate(
    lm: LanguageModel,
    prompts: Sequence[TokenIds],
    limits: Limits,
    sampling: TokenSampling,
    uniforms: NDArray[np.float64] | None,
) -> list[Continuation]:
    """Continue prompts token by token.

    Rows that have ended leave the batch. What a row becomes does not depend on the others: each has random numbers of
    its own.

    Args:
        lm: The model.
        prompts: Token ids, at least one each.
        limits: When a continuation ends.
        sampling: What tokens are drawn by.
        uniforms: Numbers in [0, 1) to draw with, `[n, max_new_tokens]`; None for the most probable tokens.

    Raises:
        FloatingPointError: If the model's log-probabilities are not finite.
        ModelError: If a prompt leaves no room for a token.
    """
    written: list[Continuation | None] = [None] * len(prompts)
    with lm.decoding():
        for chunk in lm.decode_batches(prompts, limits.max_new_tokens):
            mine = None if uniforms is None else uniforms[chunk]
            batch = _Batch(lm, [prompts[index] for index in chunk], limits, sampling)
            for index, one in zip(chunk, batch.run(mine), strict=True):
                written[index] = one
    return [one for one in written if one is not None]


class _Batch:
    """Prompts that go through the model together."""

    def __init__(self, lm: LanguageModel, prompts: Sequence[TokenIds], limits: Limits, sampling: TokenSampling) -> None:
        self._lm, self._limits, self._sampling = lm, limits, sampling
        self._prompts = prompts
        self._tokens: list[list[int]] = [[] for _ in prompts]
        self._log_probs: list[list[float]] = [[] for _ in prompts]
        self._decisions: list[list[Decision]] = [[] for _ in prompts]

    def run(self, uniforms: NDArray[np.float64] | None) -> list[Continuation]:
        waiting = list(range(len(self._prompts)))
        decoding = self._lm.start_decoding(self._prompts)
        for place in range(self._limits.max_new_tokens):
            support = next_token_support(self._lm.vocabulary_logits(decoding.hidden), self._sampling)
            numbers = None if uniforms is None else torch.from_numpy(uniforms[waiting, place])
            self._take(waiting, support, numbers)
            keep = [row for row, index in enumerate(waiting) if not self._has_ended(index)]
            waiting = [waiting[row] for row in keep]
            if not waiting or place + 1 == self._limits.max_new_tokens:
                break
            decoding.advance(keep, [self._tokens[index][-1] for index in waiting])
        return [self._finished(index) for index in range(len(self._prompts))]

    def _take(self, waiting: Sequence[int], support: Support, uniforms: torch.Tensor | None) -> None:
        drawn = draw(support, uniforms)
        tokens, log_probs = drawn.tokens.tolist(), drawn.log_probs.tolist()
        if not np.isfinite(log_probs).all():
            raise FloatingPointError(
                f"Expected finite log-probabilities of tokens; got {log_probs}. "
                "Fix: the model diverged; lower the learning rate and continue from a checkpoint."
            )
        listed = [()] * len(tokens) if support.ids is None else _listed(support)
        for index, token, log_prob, children in zip(waiting, tokens, log_probs, listed, strict=True):
            choice = children.index(token) if children else token
            self._decisions[index].append(Decision(len(self._tokens[index]), children, choice))
            self._tokens[index].append(token)
            self._log_probs[index].append(log_prob)

    def _has_ended(self, index: int) -> bool:
        tokens = self._tokens[index]
        full = len(self._prompts[index]) + len(tokens) > self._lm.max_length
        if full or tokens[-1] in self._lm.prompter.end_tokens:
            return True
        return bool(self._limits.stop) and self._stopped(self._lm.prompter.action_text(tuple(tokens))) is not None

    def _stopped(self, text: str) -> int | None:
        """Where the first stop text begins."""
        places = [place for place in map(text.find, self._limits.stop) if place >= 0]
        return min(places, default=None)

    def _finished(self, index: int) -> Continuation:
        tokens = tuple(self._tokens[index])
        text = self._lm.prompter.action_text(tokens)
        log_probs = np.array(self._log_probs[index], dtype=np.float32)
        return Continuation(text[: self._stopped(text)], tokens, log_probs, tuple(self._decisions[index]))


def _listed(support: Support) -> list[TokenIds]:
    """The tokens in each row's support, ascending."""
    assert support.ids is not None
    return [tuple(sorted(ids[:size])) for ids, size in zip(support.ids.tolist(), support.sizes.tolist(), strict=True)]
