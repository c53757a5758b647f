"""The ways to act: along the trie, among whole candidates, or freely."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from poad_sb3.candidates import ActionTrie, Decision, TokenIds, action_log_probs, path_log_probs, sample_index
from poad_sb3.decisions import edge_log_probs
from poad_sb3.errors import ObservationError
from poad_sb3.generation import Limits, generate
from poad_sb3.lm import LanguageModel
from poad_sb3.paths import DecisionRow, TokenPath, TreeDecisions
from poad_sb3.prompts import Question
from poad_sb3.rows import Memo, Normalization, Prepared, ScoreCache, Scores, decision_row, prepare
from poad_sb3.sampling import TokenSampling

Kind = TypeVar("Kind", bound=StrEnum)
_NOTHING = np.empty(0, dtype=np.float32)

__all__ = [
    "AUTO",
    "ActionSampling",
    "CandidateChooser",
    "Chooser",
    "Chosen",
    "FreeChooser",
    "TrieChooser",
    "each_rng",
    "make_chooser",
    "member",
]


class ActionSampling(StrEnum):
    """How an action is sampled."""

    TRIE = "trie"
    """Token by token, among the children of the trie of admissible actions."""
    CANDIDATES = "candidates"
    """A softmax over whole admissible actions (TWOSOME), by its token conditionals along the trie."""
    FREE = "free"
    """Token by token, among the whole vocabulary."""


AUTO = "auto"
"""`action_sampling` of an algorithm: the trie where actions are listed, free where any text is an action."""


class Chosen(NamedTuple):
    """An action and how it was sampled.

    Attributes:
        text: The action.
        path: Its tokens, as the update scores them.
        log_probs: Log-probability of each token as the update computes it, `[n]`.
    """

    text: str
    path: TokenPath
    log_probs: NDArray[np.float32]


class Chooser(ABC):
    """A distribution over actions, given a question.

    Args:
        lm: The model it asks.
    """

    def __init__(self, lm: LanguageModel) -> None:
        self.lm = lm

    @abstractmethod
    def choose(
        self, questions: Sequence[Question], rngs: Sequence[np.random.Generator] | None, cache: ScoreCache
    ) -> list[Chosen]:
        """A sampled action for each question.

        Args:
            questions: What is asked.
            rngs: What to sample each with, drawn from in this order: they may be the same. None for the most probable
                actions (greedy, where they are free).
            cache: Scores that are known.
        """

    @abstractmethod
    def probabilities(self, question: Question, cache: ScoreCache) -> dict[str, float]:
        """Probability of every admissible action."""

    def prompt(self, question: Question) -> TokenIds:
        """Token ids of the prompt, with the room that an action of this way to act needs."""
        return self.lm.prompt_ids(question)


class TrieChooser(Chooser):
    """At each node of the trie the model's distribution over the node's children."""

    normalization: Normalization | None = None

    def __init__(self, lm: LanguageModel) -> None:
        super().__init__(lm)
        self._prepare = Memo(partial(prepare, lm, normalization=self.normalization), maxsize=512)

    def choose(
        self, questions: Sequence[Question], rngs: Sequence[np.random.Generator] | None, cache: ScoreCache
    ) -> list[Chosen]:
        """See `Chooser.choose`."""
        prepared = [self._prepare(question) for question in questions]
        chosen = []
        scored, drawn_by = self._score(prepared, cache), each_rng(rngs, len(prepared))
        for question, one, scores, rng in zip(questions, prepared, scored, drawn_by, strict=True):
            pick = _pick(one.trie, scores.edges, rng)
            chosen.append(self._chosen((question.actions or ())[pick], one, scores, pick))
        return chosen

    def probabilities(self, question: Question, cache: ScoreCache) -> dict[str, float]:
        """See `Chooser.probabilities`."""
        prepared = self._prepare(question)
        log_probs = action_log_probs(prepared.trie, self._score([prepared], cache)[0].edges)
        return dict(zip(question.actions or (), np.exp(log_probs).tolist(), strict=True))

    def prompt(self, question: Question) -> TokenIds:
        """See `Chooser.prompt`; at the end of an episode nothing may be left to choose."""
        return self._prepare(question).prompt if question.actions else self.lm.prompt_ids(question)

    def _chosen(self, text: str, one: Prepared, scores: Scores, pick: int) -> Chosen:
        path = TokenPath(one.prompt, one.trie.sequences[pick], one.trie.decisions[pick])
        return Chosen(text, path, path_log_probs(one.trie, scores.edges, pick))

    @torch.no_grad()
    def _score(self, prepared: Sequence[Prepared], cache: ScoreCache) -> list[Scores]:
        """What is known of each question."""
        known = cache.current()
        missing = list(dict.fromkeys(one.row for one in prepared if one.row not in known))
        for row in [row for row in missing if not row.children]:
            known[row] = Scores(_NOTHING, _NOTHING)
            missing.remove(row)
        for chunk in self.lm.chunks([row.row for row in missing]):
            rows = [missing[index] for index in chunk]
            scored = edge_log_probs(self.lm, rows)
            edges = _split(scored.log_probs, [_n_edges(row) for row in rows])
            tokens = [_NOTHING] * len(rows)
            if scored.token_log_probs is not None:
                tokens = _split(scored.token_log_probs, [sum(map(len, row.children)) for row in rows])
            known.update(zip(rows, map(Scores, edges, tokens), strict=True))
        return [known[one.row] for one in prepared]


class CandidateChooser(TrieChooser):
    """TWOSOME's softmax over whole actions.

    Args:
        lm: The model it asks.
        normalization: N(a).
        paper_mode: Let the update see full-vocabulary token probabilities instead of those that were sampled from, as
            the published code does: off-policy.
    """

    def __init__(self, lm: LanguageModel, normalization: Normalization, paper_mode: bool) -> None:
        self.normalization = normalization
        self._paper_mode = paper_mode
        super().__init__(lm)

    def choose(
        self, questions: Sequence[Question], rngs: Sequence[np.random.Generator] | None, cache: ScoreCache
    ) -> list[Chosen]:
        """See `Chooser.choose`."""
        chosen = super().choose(questions, rngs, cache)
        if not self._paper_mode:
            return chosen
        alone = [index for index, one in enumerate(chosen) if one.path.tree is not None]  # nothing was scored
        for index, one in zip(alone, _as_free(self.lm, [chosen[index] for index in alone]), strict=True):
            chosen[index] = one
        return chosen

    def _chosen(self, text: str, one: Prepared, scores: Scores, pick: int) -> Chosen:
        chosen = super()._chosen(text, one, scores, pick)
        if self._paper_mode and one.row.mixture is not None:
            path = _free_path(chosen.path.prompt, chosen.path.action)
            return Chosen(text, path, scores.tokens[list(one.row.mixture.token_edges[pick])])
        tree = TreeDecisions(one.row, one.trie.nodes[pick])
        return chosen._replace(path=chosen.path._replace(tree=tree))


class FreeChooser(Chooser):
    """Ordinary sampling from the model's next-token distribution until an end token or a stop text.

    Args:
        lm: The model it asks.
        limits: When an action ends.
        sampling: What tokens are drawn by.
    """

    def __init__(self, lm: LanguageModel, limits: Limits, sampling: TokenSampling) -> None:
        super().__init__(lm)
        self._limits, self._sampling = limits, sampling

    def choose(
        self, questions: Sequence[Question], rngs: Sequence[np.random.Generator] | None, cache: ScoreCache
    ) -> list[Chosen]:
        """See `Chooser.choose`."""
        prompts = [self.prompt(question) for question in questions]
        uniforms = None if rngs is None else np.stack([rng.random(self._limits.max_new_tokens) for rng in rngs])
        temperature = float(self._sampling.temperature)
        chosen = []
        for prompt, one in zip(
            prompts, generate(self.lm, prompts, self._limits, self._sampling, uniforms), strict=True
        ):
            path = TokenPath(prompt, one.tokens, one.decisions, temperature=temperature)
            chosen.append(Chosen(one.text, path, one.log_probs))
        return chosen

    def prompt(self, question: Question) -> TokenIds:
        """See `Chooser.prompt`."""
        return self.lm.prompt_ids(question, reserve=self._limits.max_new_tokens)

    def probabilities(self, question: Question, cache: ScoreCache) -> dict[str, float]:
        """Not known: there is no list.

        Raises:
            ObservationError: Always.
        """
        raise ObservationError(
            "Expected a way to act that knows all actions; got action_sampling='free'. Fix: 'trie' or 'candidates'."
        )


def make_chooser(
    lm: LanguageModel,
    sampling: ActionSampling | str,
    normalization: Normalization | str,
    *,
    paper_mode: bool,
    limits: Limits,
    drawn_by: TokenSampling,
) -> Chooser:
    """The way to act that goes by a name.

    Raises:
        ValueError: If there is none, or `paper_mode` without candidates.
    """
    chosen = member(ActionSampling, "action_sampling", sampling)
    divided = member(Normalization, "candidate_normalization", normalization)
    if paper_mode and chosen is not ActionSampling.CANDIDATES:
        raise ValueError(
            f"Expected paper_mode with action_sampling='candidates', which the papers sample from; got "
            f"{str(chosen)!r}. Fix: leave one of them out."
        )
    if chosen is ActionSampling.FREE:
        return FreeChooser(lm, limits, drawn_by)
    return TrieChooser(lm) if chosen is ActionSampling.TRIE else CandidateChooser(lm, divided, paper_mode)


def member(kind: type[Kind], name: str, value: str) -> Kind:
    """The member of an enumeration that a word stands for.

    Raises:
        ValueError: If there is none.
    """
    if value not in [one.value for one in kind]:
        raise ValueError(f"Expected {name} to be one of {[one.value for one in kind]}; got {value!r}.")
    return kind(value)


def each_rng(rngs: Sequence[np.random.Generator] | None, n: int) -> Sequence[np.random.Generator | None]:
    """What to sample each of `n` actions with; None for the most probable one."""
    return [None] * n if rngs is None else rngs


@torch.no_grad()
def _as_free(lm: LanguageModel, chosen: Sequence[Chosen]) -> list[Chosen]:
    """The same actions, as if each token had been chosen from the whole vocabulary."""
    paths = [_free_path(one.path.prompt, one.path.action) for one in chosen]
    rows = [row for row in map(decision_row, paths) if row is not None]  # no path is without decisions
    scored: list[NDArray[np.float32]] = [np.empty(0, dtype=np.float32)] * len(rows)
    for chunk in lm.chunks([row.row for row in rows]):
        hidden = lm.hidden_states([rows[index].row for index in chunk])
        flat = lm.child_log_probs(hidden, [(token,) for index in chunk for token in paths[index].action])
        ends = np.cumsum([len(paths[index].action) for index in chunk])[:-1]
        for index, part in zip(chunk, np.split(flat.cpu().numpy(), ends), strict=True):
            scored[index] = part
    return [
        one._replace(path=path, log_probs=log_probs) for one, path, log_probs in zip(chosen, paths, scored, strict=True)
    ]


def _free_path(prompt: TokenIds, action: TokenIds) -> TokenPath:
    return TokenPath(prompt, action, tuple(Decision(place, (), token) for place, token in enumerate(action)))


def _split(flat: torch.Tensor, sizes: Sequence[int]) -> list[NDArray[np.float32]]:
    return np.split(flat.cpu().numpy(), np.cumsum(sizes)[:-1])


def _n_edges(row: DecisionRow) -> int:
    return sum(map(len, row.children)) if row.mixture is None else sum(row.mixture.counts)


def _pick(trie: ActionTrie, edges: NDArray[np.float32], rng: np.random.Generator | None) -> int:
    """A sampled action, or without a generator the most probable one."""
    log_probs = action_log_probs(trie, edges)
    return int(log_probs.argmax()) if rng is None else sample_index(log_probs, rng)
