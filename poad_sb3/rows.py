"""Which tokens go through the model, for acting, for the update and for the critic; and what is remembered of it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import nn

from poad_sb3.candidates import ActionTrie, TokenIds, TokenTree, build_mixture, build_trie
from poad_sb3.errors import ObservationError
from poad_sb3.lm import LanguageModel, TokenRow
from poad_sb3.paths import DecisionRow, TokenPath
from poad_sb3.prompts import Question

__all__ = [
    "DecisionRow",
    "Memo",
    "Normalization",
    "Prepared",
    "ScoreCache",
    "Scores",
    "decision_row",
    "prepare",
    "tokenise",
    "tree_row",
    "value_row",
]

_MAX_REMEMBERED = 4096
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Prepared(NamedTuple):
    """A question in tokens: its prompt, the trie of its actions, and the one row that scores them all."""

    prompt: TokenIds
    trie: ActionTrie
    row: DecisionRow


class Normalization(StrEnum):
    """N(a), by which TWOSOME divides the log-probability of a candidate."""

    SUM = "sum"
    """1: the model's own probability (GLAM)."""
    TOKEN = "token"
    """Number of tokens, end token included."""
    WORD = "word"
    """Number of words, as in the papers."""

    def of(self, text: str, ids: TokenIds) -> float:
        """N of an action."""
        sizes = {Normalization.SUM: 1, Normalization.TOKEN: len(ids), Normalization.WORD: max(1, len(text.split()))}
        return float(sizes[self])


def prepare(lm: LanguageModel, question: Question, normalization: Normalization | None = None) -> Prepared:
    """Tokenise a question. The row holds the prompt once and each shared beginning of actions once.

    Args:
        lm: Whose tokens.
        question: Prompt and actions.
        normalization: For the distribution over whole candidates; None for the trie's.

    Raises:
        ObservationError: If any text is allowed, so that there is no trie.
    """
    if question.actions is None:
        raise ObservationError(
            "Expected a list of admissible actions; got none (an open action space), on which neither a trie nor "
            "candidates can be made. Fix: action_sampling='free' (POAD, NTPO, ARCHER), which is the default where the "
            "environment declares metadata['actions']='text', or an environment that lists admissible actions."
        )
    prompt, sequences = tokenise(lm, question)
    try:
        trie = build_trie(sequences)
    except ValueError as error:
        raise ObservationError(f"Admissible actions {list(question.actions[:5])}: {error}") from error
    if normalization is None:
        return Prepared(prompt, trie, tree_row(prompt, trie.tree))
    pairs = zip(question.actions, trie.sequences, strict=True)
    tree, mixture = build_mixture(trie, [normalization.of(text, ids) for text, ids in pairs])
    if len(trie.sequences) == 1:  # nothing to decide
        return Prepared(prompt, trie, DecisionRow(TokenRow(prompt, None, ()), ()))
    return Prepared(prompt, trie, tree_row(prompt, tree)._replace(mixture=mixture))


def tokenise(lm: LanguageModel, question: Question) -> tuple[TokenIds, tuple[TokenIds, ...]]:
    """Token ids of a prompt and of its admissible actions.

    Raises:
        ObservationError: If two different actions are the same to the tokenizer.
    """
    words: dict[TokenIds, str] = {}
    for action in question.actions or ():
        ids = lm.action_ids(action)
        if ids in words:
            raise ObservationError(
                f"Expected admissible actions that the model's tokenizer tells apart; got {words[ids]!r} and "
                f"{action!r}, which are the same tokens (unknown words, case or accents that it drops). "
                "Fix: a model with another tokenizer, or other words in the environment."
            )
        words[ids] = action
    return lm.prompt_ids(question, reserve=max(map(len, words), default=1)), tuple(words)


def tree_row(prompt: TokenIds, tree: TokenTree) -> DecisionRow:
    """Row of a prompt and a tree of actions behind it, which reads every branch point."""
    start = len(prompt)
    parents = (*range(-1, start - 1), *(start + parent for parent in tree.parents))
    reads = tuple(start + position for position, _ in tree.queries)
    row = TokenRow((*prompt, *tree.tokens), parents if tree.tokens else None, reads)
    return DecisionRow(row, tuple(children for _, children in tree.queries))


def decision_row(path: TokenPath) -> DecisionRow | None:
    """The row that decides everything on a path, the shortest unless the path has its own; None without decisions."""
    if not path.decisions:
        return None
    if path.tree is not None:
        return path.tree.row
    start = len(path.prompt)
    tokens = (*path.prompt, *path.action[: path.decisions[-1].position])
    reads = tuple(start - 1 + decision.position for decision in path.decisions)
    children = tuple(decision.children for decision in path.decisions)
    return DecisionRow(TokenRow(tokens, None, reads), children, temperature=path.temperature)


def value_row(path: TokenPath) -> TokenRow:
    """Row whose reads are the positions before each action token."""
    start = len(path.prompt) - 1
    return TokenRow((*path.prompt, *path.action[:-1]), None, tuple(range(start, start + len(path.action))))


class Memo(Generic[Key, Value]):
    """A function that remembers its latest results, and can be pickled.

    Args:
        compute: The function.
        maxsize: How many results it keeps.
    """

    def __init__(self, compute: Callable[[Key], Value], maxsize: int) -> None:
        self._compute, self._maxsize = compute, maxsize
        self._known: dict[Key, Value] = {}

    def __call__(self, key: Key) -> Value:
        """The result for `key`."""
        if key not in self._known:
            value = self._compute(key)
            if len(self._known) >= self._maxsize:
                del self._known[next(iter(self._known))]
            self._known[key] = value
        return self._known[key]


class Scores(NamedTuple):
    """What the model says of a question.

    Attributes:
        edges: Log-probabilities of all children of all decision nodes, flat.
        tokens: Of a mixture, log-probabilities of all tokens of all candidates under the whole vocabulary, flat.
    """

    edges: NDArray[np.float32]
    tokens: NDArray[np.float32]


class ScoreCache:
    """Scores computed with the present weights; forgets by itself when these change, and the oldest when full.

    Args:
        parameters: The weights that scores depend on. A change is seen by their version counters and addresses;
            writing through `.data` in place bypasses both.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._parameters = parameters
        self._token: tuple[tuple[int, int], ...] = ()
        self._known: dict[DecisionRow, Scores] = {}

    def current(self) -> dict[DecisionRow, Scores]:
        """What is known; add to it what is computed."""
        token = tuple((parameter.data_ptr(), parameter._version) for parameter in self._parameters)
        if token != self._token:
            self._token = token
            self._known.clear()
        for row in list(self._known)[: max(0, len(self._known) - _MAX_REMEMBERED)]:
            del self._known[row]
        return self._known

    def clear(self) -> None:
        """Forget everything."""
        self._known.clear()
