"""`TrieDistribution`: token by token, among the children of the trie of admissible actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch

from poad_sb3.distributions.action_trie import (
    ActionTrie,
    TokenIds,
    action_log_probs,
    build_trie,
    path_log_probs,
    sample_index,
)
from poad_sb3.distributions.base import (
    ActionDistribution,
    DecisionRow,
    RowScores,
    SampledAction,
    ScoreCache,
    TokenPath,
)
from poad_sb3.distributions.lru_cache import LRUCache
from poad_sb3.errors import ObservationError
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.language_model.packing import tree_row
from poad_sb3.prompts import Question

_NOTHING = np.empty(0, dtype=np.float32)


class TokenizedQuestion(NamedTuple):
    """A question in tokens: its prompt, the trie of its actions, and the one row that scores them all."""

    prompt: TokenIds
    trie: ActionTrie
    row: DecisionRow


class TrieDistribution(ActionDistribution):
    """At each node of the trie the model's next-token distribution, restricted to the node's children."""

    def __init__(self, lm: LanguageModel) -> None:
        super().__init__(lm)
        self.tokenized = LRUCache(self._tokenized, maxsize=512)

    def sample(
        self, questions: Sequence[Question], rngs: Sequence[np.random.Generator], cache: ScoreCache
    ) -> list[SampledAction]:
        """See `ActionDistribution.sample`."""
        return self._choose(questions, rngs, cache)

    def mode(self, questions: Sequence[Question], cache: ScoreCache) -> list[SampledAction]:
        """See `ActionDistribution.mode`."""
        return self._choose(questions, [None] * len(questions), cache)

    def probabilities(self, question: Question, cache: ScoreCache) -> dict[str, float]:
        """See `ActionDistribution.probabilities`."""
        one = self.tokenized(question)
        log_probs = action_log_probs(one.trie, self._scores_of([one], cache)[0].edges)
        return dict(zip(question.actions or (), np.exp(log_probs).tolist(), strict=True))

    def prompt(self, question: Question) -> TokenIds:
        """See `ActionDistribution.prompt`; at the end of an episode the list of actions may be empty."""
        return self.tokenized(question).prompt if question.actions else self.lm.prompt_ids(question)

    def _tokenized(self, question: Question) -> TokenizedQuestion:
        prompt, trie = tokenize(self.lm, question)
        return TokenizedQuestion(prompt, trie, branch_row(prompt, trie.branches))

    def _choose(
        self, questions: Sequence[Question], rngs: Sequence[np.random.Generator | None], cache: ScoreCache
    ) -> list[SampledAction]:
        tokenized = [self.tokenized(question) for question in questions]
        chosen = []
        scored = self._scores_of(tokenized, cache)
        for question, one, scores, rng in zip(questions, tokenized, scored, rngs, strict=True):
            of_actions = action_log_probs(one.trie, scores.edges)
            pick = int(of_actions.argmax()) if rng is None else sample_index(of_actions, rng)
            chosen.append(self._sampled((question.actions or ())[pick], one, scores, pick))
        return chosen

    def _sampled(self, text: str, one: TokenizedQuestion, scores: RowScores, pick: int) -> SampledAction:
        path = TokenPath(one.prompt, one.trie.sequences[pick], one.trie.decisions[pick])
        return SampledAction(text, path, path_log_probs(one.trie, scores.edges, pick))

    @torch.no_grad()
    def _scores_of(self, tokenized: Sequence[TokenizedQuestion], cache: ScoreCache) -> list[RowScores]:
        """Return the scores of each question's row; only unknown ones are computed."""
        known = cache.current()
        missing = list(dict.fromkeys(one.row for one in tokenized if one.row not in known))
        for row in [row for row in missing if not row.children]:
            known[row] = RowScores(_NOTHING, _NOTHING)
            missing.remove(row)
        for chunk in self.lm.chunks([row.row for row in missing]):
            rows = [missing[index] for index in chunk]
            found = self.edges(rows)
            n_decisions = np.cumsum([len(row.decisions) for row in rows[:-1]], dtype=np.int64)
            edges = np.split(found.log_probs.cpu().numpy(), found.starts.cpu().numpy()[n_decisions])
            tokens = [_NOTHING] * len(rows)
            if found.token_log_probs is not None:
                n_tokens = np.cumsum([sum(map(len, row.children)) for row in rows[:-1]], dtype=np.int64)
                tokens = np.split(found.token_log_probs.cpu().numpy(), n_tokens)
            known.update(zip(rows, map(RowScores, edges, tokens), strict=True))
        return [known[one.row] for one in tokenized]


def tokenize(lm: LanguageModel, question: Question) -> tuple[TokenIds, ActionTrie]:
    """Return the token ids of a prompt, and the trie of its admissible actions.

    Raises:
        ObservationError: If any text is allowed, so that there is no trie; or if two different actions are the same to
            the tokenizer.
    """
    if question.actions is None:
        raise ObservationError(
            "Expected a list of admissible actions; got none (an open action space), on which neither a trie nor "
            "candidates can be made. Fix: action_sampling='free' (POAD, NTPO, ARCHER), which is the default where the "
            "environment declares metadata['actions']='text', or an environment that lists admissible actions."
        )
    words: dict[TokenIds, str] = {}
    for action in question.actions:
        ids = lm.action_ids(action)
        if ids in words:
            raise ObservationError(
                f"Expected admissible actions that the model's tokenizer tells apart; got {words[ids]!r} and "
                f"{action!r}, which are the same tokens (unknown words, case or accents that it drops). "
                "Fix: a model with another tokenizer, or other words in the environment."
            )
        words[ids] = action
    prompt = lm.prompt_ids(question, reserve=max(map(len, words), default=1))
    try:
        return prompt, build_trie(tuple(words))
    except ValueError as error:
        raise ObservationError(f"Admissible actions {list(question.actions[:5])}: {error}") from error


def branch_row(prompt: TokenIds, branches: Mapping[TokenIds, TokenIds]) -> DecisionRow:
    """Return the row of a prompt that reads every branch point of a trie of actions; see `ActionTrie.branches`."""
    return DecisionRow(tree_row(prompt, [*branches]), (*branches.values(),))
