"""What was sampled, in tokens, and which tokens have to go through the model to score it again."""

from __future__ import annotations

from typing import NamedTuple

from poad_sb3.candidates import Decision, Mixture, TokenIds
from poad_sb3.models.packing import TokenRow

__all__ = ["DecisionRow", "TokenPath", "TreeDecisions"]


class DecisionRow(NamedTuple):
    """Run `row`, and at each of its reads choose among `children`.

    Whatever asks the model the same thing is equal here, and goes through it once.

    Attributes:
        row: Tokens, and the positions that decide.
        children: Tokens to choose from at each read; empty for the whole vocabulary.
        mixture: With it the children are all tokens of whole candidates, and decisions are those of the mixture.
        temperature: Divides the logits.
    """

    row: TokenRow
    children: tuple[TokenIds, ...]
    mixture: Mixture | None = None
    temperature: float = 1.0

    @property
    def is_open(self) -> bool:
        """Whether the choice is among the whole vocabulary."""
        return bool(self.children) and not self.children[0]


class TreeDecisions(NamedTuple):
    """The row that scores all candidates of a question, and which of its decisions are on a path."""

    row: DecisionRow
    nodes: tuple[int, ...]


class TokenPath(NamedTuple):
    """A prompt and the action that was sampled after it, as the token ids that were sampled.

    Attributes:
        prompt: Token ids of the prompt.
        action: Token ids of the action, end token included.
        decisions: The action's tokens at which there was a choice.
        tree: Where the probability of a token depends on the other candidates; None where its own path will do.
        temperature: That it was sampled at.
    """

    prompt: TokenIds
    action: TokenIds
    decisions: tuple[Decision, ...]
    tree: TreeDecisions | None = None
    temperature: float = 1.0
