"""Expected memory of a training: `poad_sb3.memory.estimate` fed with an algorithm and its first observations.

The algorithm may be one that is about to learn, or one made with `poad_sb3.memory.outline.OutlinePolicy`, without
weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm
from poad_sb3.distributions import CandidateDistribution, TrieDistribution
from poad_sb3.distributions.base import TokenPath, decision_row
from poad_sb3.distributions.token_sampling import MAX_SUPPORT
from poad_sb3.language_model.language_model import CACHED_PER_FORWARD
from poad_sb3.memory.estimate import MemoryEstimate, ModelSize, Workload, bits_of, estimate
from poad_sb3.prompts import Question
from poad_sb3.settings import ModelSettings, SamplingSettings
from poad_sb3.vec_env.text_observations import parse_observation

__all__ = ["Expected", "Rows", "expect", "expected_rows", "largest_pass", "remedy"]

_ID, _DECISION, _ACTION = 40, 140, 600
"""Bytes that Python takes for a token id in a tuple, a decision, and the other data of an action (measured)."""


class Rows(NamedTuple):
    """Numbers of tokens of the longest of some questions.

    Attributes:
        prompt: Number of tokens of the longest prompt.
        action: Number of tokens of the longest action, end token included.
        row: Number of tokens of the longest row of a training pass: a prompt and an action, or with candidates all
            actions of a prompt.
        share: Largest share of a row's tokens that are decisions.
        children: Number of tokens to choose from at a decision, averaged over a row, the largest average of all rows; 0
            for the whole vocabulary.
    """

    prompt: int
    action: int
    row: int
    share: float
    children: float


class Expected(NamedTuple):
    """Expected memory of a training, with the numbers that it follows from.

    Attributes:
        size: Size of the model.
        settings: Settings of the model.
        workload: Numbers of tokens of the training.
        rows: Lengths that the workload follows from.
    """

    size: ModelSize
    settings: ModelSettings
    workload: Workload
    rows: Rows

    @property
    def needed(self) -> MemoryEstimate:
        """Estimate of the memory, in bytes."""
        return estimate(self.size, self.settings, self.workload)

    def with_settings(self, **changes: object) -> Expected:
        """Return the same training with other settings of the model that do not change its size."""
        return self._replace(settings=replace(self.settings, **changes))  # type: ignore[arg-type]


def expect(algorithm: LLMOnPolicyAlgorithm, observation: Any) -> Expected:
    """Return the memory that learning will need. Later prompts and actions may be longer than the first.

    Args:
        algorithm: Algorithm with all its settings.
        observation: Batch of first observations, one of each environment.

    Raises:
        ValueError: If the estimate does not cover the quantization of the weights.
        ObservationError: If the observations allow no action.
        ModelError: If a prompt is longer than the model's context.
    """
    lm, kwargs = algorithm.policy.lm, algorithm.policy_kwargs
    given = {name: kwargs.get(name, default) for name, default in ModelSettings.defaults().items()}
    config = lm.base.config
    found = getattr(config, "quantization_config", None)
    found = found if found is None or isinstance(found, Mapping) else found.to_dict()
    bits = bits_of(found)
    given |= {"dtype": str(lm.base.dtype), "quantization": f"{bits}bit" if bits else None}
    settings = ModelSettings(**given)
    rows = expected_rows(algorithm, parse_observation(observation)[0])
    return Expected(ModelSize.of(config, settings), settings, _workload(algorithm, rows), rows)


def largest_pass(expected: Expected, usable: int) -> int | None:
    """Return the largest `max_tokens_per_forward` that fits; None if not even one row does.

    Args:
        expected: Expected memory of the training.
        usable: Memory that the training may use, in bytes.
    """

    def fits_with(tokens: int) -> bool:
        return expected.with_settings(max_tokens_per_forward=tokens).needed.total <= usable

    low, beyond = expected.workload.row_tokens, 2 * expected.workload.row_tokens
    if not fits_with(low):
        return None
    while fits_with(beyond):
        low, beyond = beyond, 2 * beyond
    while beyond - low > 1:  # more tokens never need less memory
        middle = (low + beyond) // 2
        low, beyond = (middle, beyond) if fits_with(middle) else (low, middle)
    return low


def remedy(expected: Expected, usable: int) -> dict[str, object] | None:
    """Return arguments of the policy that make a training fit, with the same updates; None if none do.

    Try gradient checkpointing first, then smaller passes, then both.

    Args:
        expected: Expected memory of the training that does not fit.
        usable: Memory that the training may use, in bytes.
    """
    again = expected.with_settings(gradient_checkpointing=True)
    if again.needed.total <= usable:
        return {"gradient_checkpointing": True}
    tokens = largest_pass(expected, usable)
    if tokens is not None:
        return {"max_tokens_per_forward": tokens}
    tokens = largest_pass(again, usable)
    return None if tokens is None else {"gradient_checkpointing": True, "max_tokens_per_forward": tokens}


# ---------------------------------------------------------------------- rows


def expected_rows(algorithm: LLMOnPolicyAlgorithm, questions: Sequence[Question]) -> Rows:
    """Compute the lengths of the rows of a training pass over the answers to some questions.

    Args:
        algorithm: Algorithm whose tokenizer and action distribution are used.
        questions: Questions, at least one.
    """
    distribution = algorithm.policy.distribution
    if isinstance(distribution, TrieDistribution):
        rows = [row for question in questions for row in _listed(algorithm, distribution, question)]
    else:
        rows = [_written(len(distribution.prompt(question)), algorithm.max_new_tokens) for question in questions]
    return Rows(*map(max, zip(*rows, strict=True)))


def _written(prompt: int, action: int) -> Rows:
    """Return the lengths where every token of the action is a decision; the last one is not read."""
    return Rows(prompt, action, prompt + action - 1, action / (prompt + action - 1), 0.0)


def _listed(algorithm: LLMOnPolicyAlgorithm, distribution: TrieDistribution, question: Question) -> Iterator[Rows]:
    """Yield a row for each action, as the update makes it."""
    one = distribution.tokenized(question)
    for ids, decisions in zip(one.trie.sequences, one.trie.decisions, strict=True):
        if algorithm.paper_mode:
            yield _written(len(one.prompt), len(ids))
            continue
        by_tree = isinstance(distribution, CandidateDistribution)
        row = one.row if by_tree else decision_row(TokenPath(one.prompt, ids, decisions))
        if row is None:  # a single action
            yield Rows(len(one.prompt), len(ids), len(one.prompt), 0.0, 0.0)
        else:
            reads = len(row.row.reads)
            children = sum(map(len, row.children)) / max(1, reads)
            yield Rows(len(one.prompt), len(ids), len(row.row.tokens), reads / len(row.row.tokens), children)


def _workload(algorithm: LLMOnPolicyAlgorithm, rows: Rows) -> Workload:
    is_free = algorithm.action_sampling == "free"
    along_trie = algorithm.action_sampling == "trie" and not algorithm.paper_mode
    max_tokens = algorithm.policy.lm.max_tokens_per_forward
    steps = algorithm.max_rollout_steps()
    if steps is None:
        raise ValueError(
            "Expected rollouts of a known length; they are whole episodes, and this environment registers no "
            "max_episode_steps. Fix: a limit in its registration, or gym.make(id, max_episode_steps=...)."
        )
    actions = steps * algorithm.n_envs
    units = rows.action if algorithm.kl_coef else algorithm.credit.n_values(rows.action)
    # Merged rows have their beginning in common and decide beyond it; at most all of a minibatch are in one pass.
    together = min(algorithm.batch_size, actions)
    share = max(rows.share, together * rows.share * rows.row / max(max_tokens, rows.row))
    texts = max(1, CACHED_PER_FORWARD * max_tokens // (rows.prompt + rows.action))
    # Token ids and decisions; the children of a trie are shared, the tokens that a drawn one was drawn from are not.
    sampling = SamplingSettings.of(algorithm)
    support = algorithm.top_k or MAX_SUPPORT if is_free and sampling.restricts_tokens else 0
    stored = _ACTION + _ID * rows.prompt + (_ID + _DECISION + _ID * support) * rows.action
    return Workload(
        row_tokens=rows.row,
        merged_tokens=together * rows.row,
        action_share=min(1.0, share),
        children=rows.children if along_trie else 0.0,
        decode_batch=min(algorithm.n_envs, texts) if is_free else 0,
        decode_context=rows.prompt + rows.action,
        rollout_tokens=actions * units + (algorithm.n_envs if units else 0),  # and the state after the last step
        host_bytes=actions * stored,
        has_critic=algorithm.credit.has_critic,
        micro_batches=algorithm.micro_batches,
        ranks=algorithm.ranks.size,
    )
