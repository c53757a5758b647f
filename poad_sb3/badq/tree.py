"""The decisions of a question as a tree of edges, each with a Q-value.

An *edge* is a child of a decision node: a token with siblings. Forced tokens need no edge of their own: inside an
action there is no discount and no reward, so with one child Q before and after it is the same number, and so is the
soft one (the reference gives the only child probability 1). Tying them is exact; a reward then takes one backup for
each choice, not for each token, from the last token to the first.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from poad_sb3.distributions.action_trie import ActionTrie, Decision, TokenIds
from poad_sb3.distributions.trie import prompt_of, trie_of
from poad_sb3.errors import ObservationError
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.language_model.packing import TokenRow, tree_row
from poad_sb3.prompts import Question


class QuestionTree(NamedTuple):
    """Decision nodes and their edges. Node 0 is the first decision, common to all actions.

    Attributes:
        row: Row of the forward pass. It reads each edge's token, then the position before each node's decision.
        children: Tokens to choose from at each node; the edges of all nodes, in this order, are the flat edges.
        paths: Edges on the path of each action.
        following: Node that each edge leads to, -1 where it completes an action.
        below: Number of actions that each edge begins.
        prompt: Tokens of the prompt, as it was scored.
        sequences: Tokens of each action.
    """

    row: TokenRow
    children: tuple[TokenIds, ...]
    paths: tuple[tuple[int, ...], ...]
    following: tuple[int, ...]
    below: tuple[int, ...]
    prompt: TokenIds
    sequences: tuple[TokenIds, ...]

    def edges_of(self, node: int) -> range:
        """Return the flat edges of a node."""
        start = sum(map(len, self.children[:node]))
        return range(start, start + len(self.children[node]))

    @property
    def node_of(self) -> list[int]:
        """Node of each flat edge."""
        return [node for node, tokens in enumerate(self.children) for _ in tokens]


def question_tree(lm: LanguageModel, question: Question) -> QuestionTree:
    """Tokenise a question.

    Raises:
        ObservationError: If any text is allowed, if there is no action, or if the actions make no trie.
    """
    if question.actions is None:
        raise ObservationError(
            "Expected a list of admissible actions to take the best of; got none (an open action space). "
            "Fix: POAD, NTPO or ARCHER with action_sampling='free', or an environment that lists admissible actions."
        )
    trie = trie_of(lm, question.actions)
    return build_tree(prompt_of(lm, question, trie), trie)


def build_tree(prompt: TokenIds, trie: ActionTrie) -> QuestionTree:
    """Build the tree of the actions of a trie after a prompt. A single action counts as one edge."""
    sequences, decisions, edges, nodes = trie.sequences, trie.decisions, trie.edges, trie.nodes
    if len(sequences) == 1:
        decisions, edges, nodes = ((Decision(0, sequences[0][:1], 0),),), ((0,),), ((0,),)
    ends: dict[int, TokenIds] = {}
    starts: dict[int, tuple[TokenIds, TokenIds]] = {}
    following: dict[int, int] = {}
    below: Counter[int] = Counter()
    for sequence, *path in zip(sequences, decisions, edges, nodes, strict=True):
        for decision, edge, node, next_node in zip(*path, (*path[2][1:], -1), strict=True):
            ends[edge] = sequence[: decision.position + 1]
            starts[node] = (sequence[: decision.position], decision.children)
            following[edge] = next_node
            below[edge] += 1
    before = [starts[node] for node in range(len(starts))]
    order = range(len(ends))
    return QuestionTree(
        tree_row(prompt, [*(ends[edge] for edge in order), *(prefix for prefix, _ in before)]),
        tuple(children for _, children in before),
        tuple(edges),
        tuple(following[edge] for edge in order),
        tuple(below[edge] for edge in order),
        prompt,
        tuple(sequences),
    )
