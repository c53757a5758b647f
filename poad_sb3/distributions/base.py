"""`ActionDistribution`: pi(action | question) over the tokens of an action. One object samples and scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from poad_sb3.credit.losses import segment_entropy, segment_log_softmax
from poad_sb3.credit.mismatch import ROUNDED, CleanMismatch
from poad_sb3.distributions.action_trie import Decision, Mixture, TokenIds
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.language_model.lm_head import Picks
from poad_sb3.language_model.lora import is_quantized
from poad_sb3.language_model.packing import TokenRow, moved
from poad_sb3.prompts import Question

__all__ = [
    "ActionDistribution",
    "ActionEvaluation",
    "DecisionRow",
    "Edges",
    "Leaves",
    "SampledAction",
    "ScoreCache",
    "TokenChoice",
    "TokenPath",
    "decision_row",
    "token_choice",
]

_MAX_REMEMBERED = 4096
NOT_ENCODED = np.empty(0, dtype=np.int64)


class DecisionRow(NamedTuple):
    """A row of tokens for the model, with the tokens to choose from at each of its reads.

    Equal rows go through the model once.

    Attributes:
        row: Tokens, and the positions of the decisions.
        children: Tokens to choose from at each read; empty for the whole vocabulary.
        mixture: Mixture of whole actions: the children are then all tokens of whole candidates, and the decisions are
            those of the mixture; None elsewhere.
        temperature: Temperature that divides the logits.
    """

    row: TokenRow
    children: tuple[TokenIds, ...]
    mixture: Mixture | None = None
    temperature: float = 1.0

    @property
    def is_open(self) -> bool:
        """Whether some choice is among the whole vocabulary: all of them, but behind a thought."""
        return bool(self.children) and not self.children[0]

    @property
    def counts(self) -> Sequence[int]:
        """Number of tokens to choose from at each decision; 0 for the whole vocabulary."""
        return [*map(len, self.children)] if self.mixture is None else self.mixture.counts


class Leaves(NamedTuple):
    """The listed actions that an action was chosen among.

    Attributes:
        sequences: Token ids of each.
        probabilities: Probability of each at sampling.
    """

    sequences: tuple[TokenIds, ...]
    probabilities: tuple[float, ...]


class TokenPath(NamedTuple):
    """A prompt and the action sampled after it, as token ids, complete for scoring it again.

    Attributes:
        prompt: Token ids of the prompt.
        action: Token ids of the action, end token included.
        decisions: Tokens of the action that have alternatives.
        row: Row that scores the decisions, where their probabilities depend on the other candidates; None where the
            path alone is enough.
        nodes: Indices of the row's decisions that are on this path.
        temperature: Sampling temperature.
        leaves: Listed actions, if `ActionDistribution.records_leaves`.
        n_thought: Number of the action's first tokens that are a thought, with the mark that ends it.
    """

    prompt: TokenIds
    action: TokenIds
    decisions: tuple[Decision, ...]
    row: DecisionRow | None = None
    nodes: tuple[int, ...] = ()
    temperature: float = 1.0
    leaves: Leaves | None = None
    n_thought: int = 0


class SampledAction(NamedTuple):
    """An action, with its tokens and the log-probabilities that it was sampled with.

    Attributes:
        text: Text of the action.
        path: Prompt and action as token ids.
        log_probs: Log-probability of each token under the distribution sampled from, `[n]`, 0 where forced.
        env_action: Action in the environment's own tokens; empty until the policy encodes it.
    """

    text: str
    path: TokenPath
    log_probs: NDArray[np.float32]
    env_action: NDArray[np.int64] = NOT_ENCODED


class TokenChoice(NamedTuple):
    """The distribution that one token of an action was drawn from.

    Attributes:
        position: Index of the token in the action, from 0.
        tokens: Most probable tokens, best first; the chosen one need not be among them.
        log_probs: Log-probabilities of these tokens.
        entropy: Entropy of the whole distribution, in nats.
    """

    position: int
    tokens: TokenIds
    log_probs: tuple[float, ...]
    entropy: float


class ActionEvaluation(NamedTuple):
    """Sampled actions under the present weights, with gradient: one chunk of all units of credit.

    A unit is a decision, or with `whole_actions` all decisions of an action. Actions without decisions have none.

    Attributes:
        units: Indices of the units, int64 `[u]`.
        log_prob: Log-probability of each unit, `[u]`.
        entropy: Entropy of the distribution that each unit was drawn from, `[u]`.
        kl_to_base: KL divergence from the frozen base model, `[u]`, if asked for.
        micro_batch: Number of the micro-batch of the chunk; None for a pass without units, that other ranks need for
            theirs (FSDP2).
    """

    units: Tensor
    log_prob: Tensor
    entropy: Tensor
    kl_to_base: Tensor | None
    micro_batch: int | None


class Edges(NamedTuple):
    """The distributions at the decisions of some rows, in the order of the rows and their decisions.

    Attributes:
        log_probs: Log-probabilities of all children, flat `[E]`.
        starts: Index of the first child of each decision, `[D]`.
        entropies: Entropy of each decision, `[D]`.
        row_entropies: Entropy of the whole action, where a row knows it (a mixture): `[rows]`; None elsewhere.
    """

    log_probs: Tensor
    starts: Tensor
    entropies: Tensor
    row_entropies: Tensor | None = None


class ActionDistribution(ABC):
    """A distribution over actions, given a question.

    Args:
        lm: Language model of the distribution.
    """

    samples_elsewhere: ClassVar[bool] = False
    """Whether actions come from another engine than the passes of `lm`."""

    mixes_choices: ClassVar[bool] = False
    """Whether a path may have choices among the whole vocabulary and choices among listed tokens."""

    keeps_thoughts: bool = False
    """Whether a prompt continues the episode so far, `Question.past`."""

    records_leaves: bool = False
    """Whether sampled paths hold the listed actions and their probabilities, which a marginal critic reads."""

    def __init__(self, lm: LanguageModel) -> None:
        self.lm = lm

    @abstractmethod
    def sample(
        self, questions: Sequence[Question], rngs: Sequence[np.random.Generator], cache: ScoreCache
    ) -> list[SampledAction]:
        """Sample an action for each question, with its log-probabilities.

        Args:
            questions: Prompts and admissible actions.
            rngs: Random generator of each question, drawn from in this order: they may be the same.
            cache: Cache of known scores.
        """

    @abstractmethod
    def mode(self, questions: Sequence[Question], cache: ScoreCache) -> list[SampledAction]:
        """Return the most probable action for each question; see `sample`."""

    def path(self, question: Question, text: str) -> TokenPath:
        """Return the tokens of an action that was chosen elsewhere, for its log-probability.

        Raises:
            ObservationError: If this distribution never samples the action.
        """
        raise NotImplementedError

    def clean_mismatch(self, paths: Sequence[TokenPath]) -> CleanMismatch | None:
        """Return the mismatch of log-probabilities at sampling without a fault; None where it is unknown.

        Args:
            paths: Sampled actions, whose prompts are used.
        """
        return None if is_quantized(self.lm.base) else ROUNDED

    @abstractmethod
    def probabilities(self, question: Question, cache: ScoreCache) -> dict[str, float]:
        """Return the probability of every admissible action."""

    def token_choices(
        self, question: Question, path: TokenPath, cache: ScoreCache, *, most: int = 8
    ) -> list[TokenChoice]:
        """Return the distributions at the decisions of an action, under the present weights.

        Args:
            question: Question that the action answers.
            path: Path of the action, as it was sampled.
            cache: Cache of known scores.
            most: Number of tokens that are listed for each decision.

        Returns:
            One for each decision; empty where only whole actions have probabilities.
        """
        return []

    def lists_are_scored(self, question: Question) -> bool:
        """Return whether sampling scores all admissible actions, so that their probabilities cost no further pass."""
        return False

    def entropy(self, question: Question, cache: ScoreCache) -> float:
        """Return the entropy over whole actions in nats."""
        probabilities = np.array([*self.probabilities(question, cache).values()])
        return float(-(probabilities * np.log(np.maximum(probabilities, np.finfo(float).tiny))).sum())

    def prompt(self, question: Question) -> TokenIds:
        """Return the token ids of the prompt, with the room that an action needs."""
        return self.lm.prompt_ids(question)

    def log_prob(self, paths: Sequence[TokenPath]) -> Tensor:
        """Return the log-probability of whole actions under the present weights, with gradient, `[n]`."""
        decided = torch.tensor([index for index, path in enumerate(paths) if path.decisions])
        total = torch.zeros(len(paths), device=self.lm.base.device)
        for part in self.evaluate(paths, whole_actions=True):
            total = total.index_add(0, decided.to(part.units.device)[part.units], part.log_prob)
        return total

    def evaluate(
        self, paths: Sequence[TokenPath], *, whole_actions: bool = False, base_features: Tensor | None = None
    ) -> Iterator[ActionEvaluation]:
        """Score sampled actions under the present weights, with gradient, chunk by chunk.

        Memory follows the chunk: call `backward` on each before asking for the next. Equal rows go through the model
        once. In a training of several ranks each has the chunks of its micro-batches.

        Args:
            paths: Sampled actions.
            whole_actions: Whether a unit of credit is a whole action instead of a decision.
            base_features: Frozen-trunk features before each decision, `[D, hidden]`, for the divergence from the base.

        Yields:
            Each unit once, in the order of the forward passes, micro-batch by micro-batch.
        """
        device = self.lm.base.device
        children = [decision.children for path in paths for decision in path.decisions]
        rows: dict[DecisionRow, int] = {}
        triples: list[tuple[int, int, int]] = []
        units: list[int] = []
        n_units = 0
        for path in paths:
            deciding = decision_row(path)
            if deciding is None:
                continue
            index = rows.setdefault(deciding, len(rows))
            nodes = path.nodes if path.row is not None else range(len(path.decisions))
            triples += [(index, node, decision.choice) for node, decision in zip(nodes, path.decisions, strict=True)]
            units += [n_units] * len(path.decisions) if whole_actions else range(n_units, n_units + len(path.decisions))
            n_units = units[-1] + 1
        all_rows, unit = list(rows), torch.tensor(units)
        row_of, node_of, choice = torch.tensor(triples, dtype=torch.int64).reshape(-1, 3).unbind(1)
        for micro_batch, chunk in self.lm.own_chunks([row.row for row in all_rows]):
            # All of this is computed on the host, without waiting for the device.
            position = torch.full((len(all_rows),), -1)
            position[chunk] = torch.arange(len(chunk))
            inside = (position[row_of] >= 0).nonzero().squeeze(-1)
            row = position[row_of[inside]]
            sizes = torch.tensor([len(all_rows[index].counts) for index in chunk])
            first = sizes.cumsum(0) - sizes
            indices = (moved(part, device) for part in (row, first[row] + node_of[inside], choice[inside]))
            base = None
            if base_features is not None:
                base = base_features[moved(inside, device)], [children[index] for index in inside.tolist()]
            log_prob, entropy, action_entropy, kl = self._score(
                [all_rows[index] for index in chunk], *indices, base=base
            )
            # All decisions of an action are in one row: sum them within units.
            units_here, unit_of = (moved(part, device) for part in torch.unique(unit[inside], return_inverse=True))
            total = partial(_sum_within, unit_of, len(units_here))
            if whole_actions and action_entropy is not None:
                of_units = total(action_entropy) / total(torch.ones_like(entropy))
            else:  # along the sampled path: an estimate of the entropy of a whole action (chain rule)
                of_units = total(entropy)
            results = (units_here, total(log_prob), of_units, None if kl is None else total(kl))
            if micro_batch is None:  # still with its graph, since the backward pass is one of all ranks too
                results = tuple(part if part is None else part[:0] for part in results)  # type: ignore[assignment]
            yield ActionEvaluation(*results, micro_batch)

    def edges(self, rows: Sequence[DecisionRow]) -> Edges:
        """Return the distributions over the children at every decision of one chunk of rows."""
        return self.edges_at(self.lm.hidden_states([row.row for row in rows]), rows)

    def edges_at(self, hidden: Tensor, rows: Sequence[DecisionRow]) -> Edges:
        """Return the distributions over the children at the hidden states of all decisions of some rows."""
        children = [tokens for row in rows for tokens in row.children]
        return _child_edges(self.lm.child_logits(hidden, children), children, _temperatures(rows, hidden.device))

    def _score(
        self,
        rows: Sequence[DecisionRow],
        row_of: Tensor,
        positions: Tensor,
        choice: Tensor,
        *,
        base: tuple[Tensor, list[TokenIds]] | None,
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """Score decisions of one chunk of rows.

        Args:
            rows: Rows of the chunk.
            row_of: Row of each decision, `[D]`.
            positions: Position of each decision among all decisions of the rows, `[D]`.
            choice: Index of the chosen token among the children of each decision, `[D]`.
            base: Frozen-trunk features before each decision and its children, if divergences from the base are wanted;
                else None.

        Returns:
            Log-probability and entropy of each, `[D]`; entropy of its whole action, and divergence, where known.
        """
        temperatures = _temperatures(rows, positions.device)[positions] if rows[0].mixture is None else None
        if self.mixes_choices and rows[0].is_open:  # whatever the chunk: ranks of FSDP2 make as many passes of the head
            assert temperatures is not None
            return self._score_thoughts(rows, positions, choice, temperatures, base)
        if rows[0].is_open:
            hidden = self.lm.hidden_states([row.row for row in rows])[positions]
            picks = Picks(choice, [1] * len(choice))
            log_prob, entropy, kl = self.lm.statistics(hidden, picks, temperatures, None if base is None else base[0])
            return log_prob, entropy, None, None if base is None else kl
        edges = self.edges(rows)
        log_prob = edges.log_probs[edges.starts[positions] + choice]
        whole = None if edges.row_entropies is None else edges.row_entropies[row_of]
        divergence = None
        if base is not None and temperatures is not None:
            features, children = base
            with torch.no_grad():
                logits = self.lm.child_logits(features, children, reference=True)
                reference = _child_edges(logits, children, temperatures)
            divergence = _divergence(edges, edges.starts[positions], reference, children)
        return log_prob, edges.entropies[positions], whole, divergence

    def _score_thoughts(
        self,
        rows: Sequence[DecisionRow],
        positions: Tensor,
        choice: Tensor,
        temperatures: Tensor,
        base: tuple[Tensor, list[TokenIds]] | None,
    ) -> tuple[Tensor, Tensor, None, Tensor | None]:
        """Score decisions among the whole vocabulary and decisions among listed tokens; see `_score`."""
        hidden = self.lm.hidden_states([row.row for row in rows])[positions]
        children = [tokens for row in rows for tokens in row.children]
        is_listed = torch.tensor([bool(children[position]) for position in positions.tolist()], device=hidden.device)
        free, listed = (~is_listed).nonzero().squeeze(-1), is_listed.nonzero().squeeze(-1)
        picks = Picks(choice[free], [1] * len(free))
        of_free = self.lm.statistics(hidden[free], picks, temperatures[free], None if base is None else base[0][free])
        at_listed = [children[position] for position in positions[listed].tolist()]
        edges = _child_edges(self.lm.child_logits(hidden[listed], at_listed), at_listed, temperatures[listed])
        of_listed = [edges.log_probs[edges.starts + choice[listed]], edges.entropies]
        if base is not None:
            with torch.no_grad():
                logits = self.lm.child_logits(base[0][listed], at_listed, reference=True)
                reference = _child_edges(logits, at_listed, temperatures[listed])
            of_listed.append(_divergence(edges, edges.starts, reference, at_listed))
        log_prob, entropy, *kl = (
            torch.zeros(len(positions), device=hidden.device).index_copy(0, free, part).index_copy(0, listed, other)
            for part, other in zip(of_free, of_listed, strict=False)
        )
        return log_prob, entropy, None, kl[0] if kl else None


def decision_row(path: TokenPath) -> DecisionRow | None:
    """Return the row that decides everything on a path, the shortest unless it has its own; None without decisions."""
    if not path.decisions:
        return None
    if path.row is not None:
        return path.row
    start = len(path.prompt)
    tokens = (*path.prompt, *path.action[: path.decisions[-1].position])
    reads = tuple(start - 1 + decision.position for decision in path.decisions)
    children = tuple(decision.children for decision in path.decisions)
    return DecisionRow(TokenRow(tokens, None, reads), children, temperature=path.temperature)


def token_choice(position: int, tokens: TokenIds, log_probs: NDArray[np.floating], most: int) -> TokenChoice:
    """Return a decision with the most probable of its tokens; equal ones in their order."""
    wide = np.asarray(log_probs, dtype=np.float64)
    best = np.argsort(-wide, kind="stable")[:most]
    entropy = float(-(np.exp(wide) * np.maximum(wide, np.finfo(np.float64).min)).sum())
    return TokenChoice(position, tuple(tokens[index] for index in best), tuple(wide[best].tolist()), max(entropy, 0.0))


def edges_of(logits: Tensor, counts: Tensor) -> Edges:
    """Normalise the logits of all children within each decision; `counts` are their numbers, `[D]`."""
    n_decisions = len(counts)
    segments = torch.arange(n_decisions, device=logits.device).repeat_interleave(counts, output_size=len(logits))
    log_probs = segment_log_softmax(logits, segments, n_decisions)
    return Edges(log_probs, counts.cumsum(0) - counts, segment_entropy(log_probs, segments, n_decisions))


def _child_edges(logits: Tensor, children: Sequence[TokenIds], temperatures: Tensor) -> Edges:
    counts = moved(torch.tensor([len(tokens) for tokens in children], dtype=torch.int64), logits.device)
    return edges_of(logits / temperatures.repeat_interleave(counts, output_size=len(logits)), counts)


def _divergence(edges: Edges, starts: Tensor, reference: Edges, children: Sequence[TokenIds]) -> Tensor:
    """Return the KL divergence of each decision from the same decision of the base model, `[D]`.

    Args:
        edges: Distributions under the present weights.
        starts: Index in `edges` of the first child of each decision, `[D]`.
        reference: Distributions of the base model at these decisions.
        children: Tokens to choose from at each.
    """
    counts = torch.tensor([len(tokens) for tokens in children], dtype=torch.int64)
    of = moved(torch.repeat_interleave(torch.arange(len(counts)), counts), starts.device)
    within = torch.arange(len(of), device=of.device) - reference.starts[of]
    log_probs = edges.log_probs[starts[of] + within]
    return log_probs.new_zeros(len(children)).index_add(0, of, log_probs.exp() * (log_probs - reference.log_probs))


def _temperatures(rows: Sequence[DecisionRow], device: torch.device) -> Tensor:
    return moved(torch.tensor([row.temperature for row in rows for _ in row.children]), device)


def _sum_within(groups: Tensor, n_groups: int, values: Tensor) -> Tensor:
    return values.new_zeros(n_groups).index_add(0, groups, values)


class ScoreCache:
    """Scores of rows under the present weights; empties itself when these change, and drops the oldest when full.

    Args:
        parameters: Weights that the scores depend on. A change is seen by their version counters and addresses; writing
            through `.data` in place bypasses both.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._parameters = parameters
        self._token: tuple[tuple[int, int], ...] = ()
        self._scores_by_row: dict[DecisionRow, NDArray[np.float32]] = {}

    def current(self) -> dict[DecisionRow, NDArray[np.float32]]:
        """Return the known scores of rows; new ones are added to it."""
        tensors = [
            parameter.to_local() if isinstance(parameter, DTensor) else parameter for parameter in self._parameters
        ]
        token = tuple((parameter.data_ptr(), parameter._version) for parameter in tensors)
        if token != self._token:
            self._token = token
            self._scores_by_row.clear()
        for row in list(self._scores_by_row)[: max(0, len(self._scores_by_row) - _MAX_REMEMBERED)]:
            del self._scores_by_row[row]
        return self._scores_by_row

    def clear(self) -> None:
        """Remove all scores."""
        self._scores_by_row.clear()
