"""`TrieDistribution`: token by token, among the children of the trie of admissible actions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from poad_sb3.distributions.action_trie import (
    ActionTrie,
    Decision,
    Mixture,
    TokenIds,
    action_log_probs,
    build_trie,
    path_log_probs,
    sample_index,
)
from poad_sb3.distributions.base import (
    ActionDistribution,
    DecisionRow,
    Edges,
    Leaves,
    SampledAction,
    ScoreCache,
    TokenChoice,
    TokenPath,
    token_choice,
)
from poad_sb3.errors import ObservationError
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.language_model.packing import TokenRow, tree_row
from poad_sb3.prompts import Question

_NO_SCORES = np.empty(0, dtype=np.float32)


class TokenizedActions(NamedTuple):
    """A list of admissible actions in tokens.

    Attributes:
        trie: Trie of the actions.
        branches: Children of the nodes that are scored, by the tokens that lead there.
        mixture: Mixture of a softmax over whole actions; None elsewhere.
    """

    trie: ActionTrie
    branches: Mapping[TokenIds, TokenIds]
    mixture: Mixture | None = None


class TokenizedQuestion(NamedTuple):
    """A question in tokens: its prompt, the trie of its actions, and the one row that scores them all."""

    prompt: TokenIds
    trie: ActionTrie
    row: DecisionRow


class TrieDistribution(ActionDistribution):
    """The model's next-token distribution at each node of the trie, restricted to the node's children.

    Args:
        lm: Language model.
        temperature: Sampling temperature, which divides the logits at each node.
    """

    max_branch_points: int = 512
    """Maximum number of branch points that are all scored in one pass for a sample; of a larger trie only those on its
    path are scored.

    The cost of one pass grows with the square of their number, that of a path with its length.
    """

    def __init__(self, lm: LanguageModel, temperature: float = 1.0) -> None:
        super().__init__(lm)
        self.temperature = temperature
        self.tokenized = lru_cache(512)(self._tokenized)
        self._actions = lru_cache(512)(self._tokenized_actions)

    def sample(
        self, questions: Sequence[Question], rngs: Sequence[np.random.Generator], cache: ScoreCache
    ) -> list[SampledAction]:
        """See `ActionDistribution.sample`."""
        return self._choose(questions, [self.tokenized(question) for question in questions], rngs, cache)

    def mode(self, questions: Sequence[Question], cache: ScoreCache) -> list[SampledAction]:
        """See `ActionDistribution.mode`."""
        trees = [self.tokenized(question) for question in questions]
        return self._choose(questions, trees, [None] * len(questions), cache)

    def path(self, question: Question, text: str) -> TokenPath:
        """See `ActionDistribution.path`; the action is one of the list."""
        if question.actions is not None and text not in question.actions:
            listed = ", ".join(map(repr, question.actions[:5]))
            raise ObservationError(
                f"Expected an admissible action ({listed}, ...); got {text[:80]!r}. "
                "Fix: leave the episode out, or record one of admissible actions."
            )
        tokenized = self.tokenized(question)
        return self._path(tokenized, (question.actions or ()).index(text))

    def probabilities(self, question: Question, cache: ScoreCache) -> dict[str, float]:
        """See `ActionDistribution.probabilities`."""
        tokenized = self.tokenized(question)
        log_probs = action_log_probs(tokenized.trie, self._scores_of([tokenized.row], cache)[0])
        return dict(zip(question.actions or (), np.exp(log_probs).tolist(), strict=True))

    def token_choices(
        self, question: Question, path: TokenPath, cache: ScoreCache, *, most: int = 8
    ) -> list[TokenChoice]:
        """See `ActionDistribution.token_choices`; from the scores that the action was sampled by."""
        tokenized = self.tokenized(question)
        pick = tokenized.trie.sequences.index(path.action)
        decisions = tokenized.trie.decisions[pick]
        if self._is_large(tokenized):
            nodes = [self._node(tokenized.prompt, path.action, decision) for decision in decisions]
            scores = self._scores_of(nodes, cache)
        else:
            edges = self._scores_of([tokenized.row], cache)[0]
            starts = [
                edge - decision.choice for edge, decision in zip(tokenized.trie.edges[pick], decisions, strict=True)
            ]
            scores = [edges[start:][: len(of.children)] for start, of in zip(starts, decisions, strict=True)]
        return [
            token_choice(decision.position, decision.children, log_probs, most)
            for decision, log_probs in zip(decisions, scores, strict=True)
        ]

    def lists_are_scored(self, question: Question) -> bool:
        """See `ActionDistribution.lists_are_scored`."""
        return not self._is_large(self.tokenized(question))

    def prompt(self, question: Question) -> TokenIds:
        """See `ActionDistribution.prompt`; at the end of an episode the list of actions may be empty."""
        return self.tokenized(question).prompt if question.actions else self.lm.prompt_ids(question)

    def _tokenized(self, question: Question) -> TokenizedQuestion:
        actions = self._actions(question.actions)
        prompt = prompt_of(self.lm, question, actions.trie)
        row = branch_row(prompt, actions.branches)._replace(mixture=actions.mixture, temperature=self.temperature)
        return TokenizedQuestion(prompt, actions.trie, row)

    def _tokenized_actions(self, actions: tuple[str, ...] | None) -> TokenizedActions:
        trie = trie_of(self.lm, actions)
        return TokenizedActions(trie, trie.branches)

    def _choose(
        self,
        questions: Sequence[Question],
        trees: Sequence[TokenizedQuestion],
        rngs: Sequence[np.random.Generator | None],
        cache: ScoreCache,
    ) -> list[SampledAction]:
        """Sample an action on each trie, or take the most probable one where there is no generator."""
        along_path = [rng is not None and self._is_large(tree) for tree, rng in zip(trees, rngs, strict=True)]
        rows = [tree.row for tree, is_path in zip(trees, along_path, strict=True) if not is_path]
        scored = iter(self._scores_of(rows, cache))
        chosen = []
        for question, tree, is_path, rng in zip(questions, trees, along_path, rngs, strict=True):
            if is_path and rng is not None:
                chosen.append(self._sample_path(question, tree, rng, cache))
                continue
            scores = next(scored)
            of_actions = action_log_probs(tree.trie, scores)
            pick = int(of_actions.argmax()) if rng is None else sample_index(of_actions, rng)
            action = self._sampled((question.actions or ())[pick], tree, scores, pick)
            if self.records_leaves:
                leaves = Leaves(tree.trie.sequences, tuple(np.exp(of_actions).tolist()))
                action = action._replace(path=action.path._replace(leaves=leaves))
            chosen.append(action)
        return chosen

    def _is_large(self, tokenized: TokenizedQuestion) -> bool:
        """Return whether a sample scores the branch points on its path only; a mixture and leaves need all."""
        return (
            not self.records_leaves
            and tokenized.row.mixture is None
            and len(tokenized.row.children) > self.max_branch_points
        )

    def _sample_path(
        self, question: Question, tokenized: TokenizedQuestion, rng: np.random.Generator, cache: ScoreCache
    ) -> SampledAction:
        """Sample an action decision by decision, scoring only the branch points on its path."""
        trie, left, level = tokenized.trie, list(range(len(tokenized.trie.sequences))), 0
        log_probs: list[float] = []
        while level < len(trie.decisions[left[0]]):  # all actions that are left share this decision
            decision, tokens = trie.decisions[left[0]][level], trie.sequences[left[0]]
            scores = self._scores_of([self._node(tokenized.prompt, tokens, decision)], cache)[0]
            choice = sample_index(scores.astype(np.float64), rng)
            log_probs.append(scores[choice])
            left = [action for action in left if trie.decisions[action][level].choice == choice]
            level += 1
        (pick,) = left
        path = self._path(tokenized, pick)
        of_tokens = np.zeros(len(path.action), dtype=np.float32)
        of_tokens[[decision.position for decision in path.decisions]] = log_probs
        return SampledAction((question.actions or ())[pick], path, of_tokens)

    def _sampled(
        self, text: str, tokenized: TokenizedQuestion, scores: NDArray[np.float32], pick: int
    ) -> SampledAction:
        return SampledAction(text, self._path(tokenized, pick), path_log_probs(tokenized.trie, scores, pick))

    def _path(self, tokenized: TokenizedQuestion, pick: int) -> TokenPath:
        actions, decisions = tokenized.trie.sequences, tokenized.trie.decisions
        return TokenPath(tokenized.prompt, actions[pick], decisions[pick], temperature=self.temperature)

    def _node(self, prompt: TokenIds, action: TokenIds, decision: Decision) -> DecisionRow:
        """Return the row that scores one decision of an action alone."""
        row = (*prompt, *action[: decision.position])
        return DecisionRow(TokenRow(row, None, (len(row) - 1,)), (decision.children,), temperature=self.temperature)

    @torch.no_grad()
    def _scores_of(self, wanted: Sequence[DecisionRow], cache: ScoreCache) -> list[NDArray[np.float32]]:
        """Return the log-probabilities of the children of each row's decisions; only unknown rows are computed."""
        scores = cache.current()
        missing = list(dict.fromkeys(row for row in wanted if row not in scores))
        for row in [row for row in missing if not row.children]:
            scores[row] = _NO_SCORES
            missing.remove(row)

        def run(chunk: list[int]) -> Iterable[NDArray[np.float32]]:
            return self._row_scores([missing[index] for index in chunk])

        scores.update(zip(missing, self.lm.data_parallel([row.row for row in missing], run), strict=True))
        return [scores[row] for row in wanted]

    def _row_scores(self, rows: Sequence[DecisionRow]) -> Iterable[NDArray[np.float32]]:
        """Compute the scores of one chunk of rows."""
        return scores_by_row(rows, self.edges(rows))


def scores_by_row(rows: Sequence[DecisionRow], edges: Edges) -> list[NDArray[np.float32]]:
    """Return the log-probabilities of the children of each row's decisions, on the host."""
    ends = np.cumsum([sum(row.counts) for row in rows[:-1]], dtype=np.int64)
    return np.split(edges.log_probs.cpu().numpy(), ends)


def prompt_of(lm: LanguageModel, question: Question, trie: ActionTrie) -> TokenIds:
    """Return the token ids of a prompt that leaves room for each action."""
    return lm.prompt_ids(question, reserve=max(map(len, trie.sequences)))


def trie_of(lm: LanguageModel, actions: Sequence[str] | None) -> ActionTrie:
    """Return the trie of admissible actions.

    Raises:
        ObservationError: If any text is allowed, so that there is no trie; or if two different actions are the same to
            the tokenizer.
    """
    if actions is None:
        raise ObservationError(
            "Expected a list of admissible actions; got none (an open action space), on which neither a trie nor "
            "candidates can be made. Fix: action_sampling='free' (POAD, NTPO, ARCHER), which is the default where the "
            "environment declares metadata['actions']='text', or an environment that lists admissible actions."
        )
    words: dict[TokenIds, str] = {}
    for action in actions:
        ids = lm.action_ids(action)
        if ids in words:
            raise ObservationError(
                f"Expected admissible actions that the model's tokenizer tells apart; got {words[ids]!r} and "
                f"{action!r}, which are the same tokens (unknown words, case or accents that it drops). "
                "Fix: a model with another tokenizer, or other words in the environment."
            )
        words[ids] = action
    try:
        return build_trie(tuple(words))
    except ValueError as error:
        raise ObservationError(f"Admissible actions {list(actions[:5])}: {error}") from error


def branch_row(prompt: TokenIds, branches: Mapping[TokenIds, TokenIds]) -> DecisionRow:
    """Return the row of a prompt that reads every branch point of a trie of actions; see `ActionTrie.branches`."""
    return DecisionRow(tree_row(prompt, [*branches]), (*branches.values(),))
