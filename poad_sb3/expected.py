"""The memory that a training will need: `poad_sb3.memory` fed with an algorithm and its first observations.

The algorithm may be one that is about to learn, or one made with `poad_sb3.outline.OutlinePolicy`, without weights.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from poad_sb3.choosers import TrieChooser
from poad_sb3.lm import CACHED_PER_FORWARD, DEFAULT_LORA, LanguageModel
from poad_sb3.memory import MemoryEstimate, ModelShape, TrainingSettings, estimate
from poad_sb3.observations import parse_observation
from poad_sb3.on_policy import LLMOnPolicyAlgorithm
from poad_sb3.paths import TokenPath
from poad_sb3.prompts import Question
from poad_sb3.rollouts import CreditLevel
from poad_sb3.rows import decision_row, prepare

__all__ = ["Expected", "Rows", "expect", "expected_rows"]

_ID, _DECISION, _ACTION = 40, 140, 600
"""Bytes that Python takes for a token id in a tuple, a decision, and what else is stored of an action (measured)."""


class Rows(NamedTuple):
    """Tokens of the longest of some questions.

    Attributes:
        prompt: Of the longest prompt.
        action: Of the longest action, end token included.
        row: Of the longest row of a training pass: a prompt and an action, or with candidates all actions of a prompt.
        share: The largest share of a row's tokens at which something is decided.
        children: The most tokens to decide among, on average over a row; 0 for the whole vocabulary.
    """

    prompt: int
    action: int
    row: int
    share: float
    children: float


class Expected(NamedTuple):
    """What a training will need.

    Attributes:
        shape: Of the model.
        settings: Of the training, as `poad_sb3.memory` knows them.
        rows: What the settings' lengths follow from.
        needed: Bytes.
    """

    shape: ModelShape
    settings: TrainingSettings
    rows: Rows
    needed: MemoryEstimate


def expect(algorithm: LLMOnPolicyAlgorithm, observation: Any) -> Expected:  # noqa: ANN401 - see parse_observation
    """What an algorithm will need to learn. Later prompts and actions may be longer than those of the observation.

    Args:
        algorithm: With all its settings.
        observation: Batch of first observations, one of each environment.

    Raises:
        ValueError: If the weights of the architecture, or of the way they are quantised, are not counted here.
        ObservationError: If no action can be chosen there.
        ModelError: If a prompt is longer than the model's context.
    """
    shape = ModelShape.of(algorithm.policy.lm.base.config)
    rows = expected_rows(algorithm, parse_observation(observation)[0])
    settings = _settings(algorithm, rows, shape)
    return Expected(shape, settings, rows, estimate(shape, settings))


# ---------------------------------------------------------------------- rows


def expected_rows(algorithm: LLMOnPolicyAlgorithm, questions: Sequence[Question]) -> Rows:
    """Lengths of what goes through the model to learn from the answers to some questions.

    Args:
        algorithm: Whose tokens, and way to act.
        questions: At least one.
    """
    chooser = algorithm.policy.chooser
    if isinstance(chooser, TrieChooser):
        rows = [row for question in questions for row in _listed(algorithm, chooser, question)]
    else:
        rows = [_written(len(chooser.prompt(question)), algorithm.max_new_tokens) for question in questions]
    return Rows(*map(max, zip(*rows, strict=True)))


def _written(prompt: int, action: int) -> Rows:
    """Every token of the action is a decision, and the last one is not read."""
    return Rows(prompt, action, prompt + action - 1, action / (prompt + action - 1), 0.0)


def _listed(algorithm: LLMOnPolicyAlgorithm, chooser: TrieChooser, question: Question) -> Iterator[Rows]:
    """A row for each action, as the update makes it."""
    one = prepare(algorithm.policy.lm, question, chooser.normalization)
    for ids, decisions in zip(one.trie.sequences, one.trie.decisions, strict=True):
        if algorithm.paper_mode:
            yield _written(len(one.prompt), len(ids))
            continue
        row = one.row if chooser.normalization is not None else decision_row(TokenPath(one.prompt, ids, decisions))
        if row is None:  # nothing to decide
            yield Rows(len(one.prompt), len(ids), len(one.prompt), 0.0, 0.0)
        else:
            reads = len(row.row.reads)
            children = sum(map(len, row.children)) / max(1, reads)
            yield Rows(len(one.prompt), len(ids), len(row.row.tokens), reads / len(row.row.tokens), children)


# ---------------------------------------------------------------------- settings


def _settings(algorithm: LLMOnPolicyAlgorithm, rows: Rows, shape: ModelShape) -> TrainingSettings:
    """The settings of an algorithm in the words of the arithmetic."""
    lm = algorithm.policy.lm
    defaults = {name: one.default for name, one in inspect.signature(type(algorithm.policy)).parameters.items()}
    own = {**defaults, **algorithm.policy_kwargs}
    is_free = algorithm.action_sampling == "free"
    actions = algorithm.n_steps * algorithm.n_envs
    units = rows.action if algorithm.credit_level == CreditLevel.TOKEN else 1
    together = max(1, CACHED_PER_FORWARD * lm.max_tokens_per_forward // (rows.prompt + rows.action))
    return TrainingSettings(
        dtype=str(lm.base.dtype).removeprefix("torch."),
        quantization=_bits(lm.base.config),
        lora_rank=None if own["lora"] is None else {**DEFAULT_LORA, **own["lora"]}["r"],
        lora_targets=_targets(lm, shape),
        trained_parameters=sum(one.numel() for one in algorithm.policy.adapter_parameters()),
        critic_trunk=str(lm.critic_trunk),
        gradient_checkpointing=own["gradient_checkpointing"],
        max_tokens_per_forward=lm.max_tokens_per_forward,
        row_tokens=rows.row,
        merged_tokens=_together(algorithm) * rows.row,
        action_share=_share(algorithm, rows),
        children=rows.children,
        action_sampling="free" if algorithm.paper_mode else algorithm.action_sampling,
        critic_arch=tuple(own["critic_arch"]),
        decode_batch=min(algorithm.n_envs, together) if is_free else 0,
        decode_context=rows.prompt + rows.action,
        rollout_tokens=actions * units + algorithm.n_envs,  # and the state after the last step
        host_bytes=actions * _stored(algorithm, rows),
    )


def _share(algorithm: LLMOnPolicyAlgorithm, rows: Rows) -> float:
    """The largest share of the tokens of a pass at which something is decided.

    Merged rows have their beginning in common and decide beyond it. At most all rows of a minibatch are in one pass.
    """
    tokens = max(algorithm.policy.lm.max_tokens_per_forward, rows.row)
    return min(1.0, max(rows.share, _together(algorithm) * rows.share * rows.row / tokens))


def _together(algorithm: LLMOnPolicyAlgorithm) -> int:
    """Rows of a minibatch."""
    return min(algorithm.batch_size, algorithm.n_steps * algorithm.n_envs)


def _stored(algorithm: LLMOnPolicyAlgorithm, rows: Rows) -> int:
    """Bytes of main memory for an action in a rollout: token ids, decisions, and what the environment gets."""
    children = algorithm.top_k if algorithm.action_sampling == "free" else 0  # those of a trie are shared
    encoded = 8 * getattr(algorithm.action_space, "max_length", 0)
    return _ACTION + encoded + _ID * rows.prompt + (_ID + _DECISION + _ID * children) * rows.action


def _targets(lm: LanguageModel, shape: ModelShape) -> tuple[str, ...]:
    """Matrices of the layers that have an adapter; others, such as the head, are only among the trained weights."""
    paths = [name.split(".") for name, module in lm.network.named_modules() if hasattr(module, "lora_A")]
    names = {word for path in paths for word in (path[-1], ".".join(path[-2:]))}
    return tuple(sorted(name for name in names if _has(shape, name)))


def _has(shape: ModelShape, name: str) -> bool:
    try:
        shape.matrix(name)
    except ValueError:
        return False
    return True


def _bits(config: Any) -> str | None:  # noqa: ANN401 - transformers has no types
    """How bitsandbytes holds the weights: as the config of a loaded model says."""
    said = getattr(config, "quantization_config", None)
    if said is None:
        return None
    asked = said if isinstance(said, Mapping) else said.to_dict()
    bits = [name for name in ("8bit", "4bit") if asked.get(f"load_in_{name}") or asked.get(f"_load_in_{name}")]
    if not bits:
        raise ValueError(
            f"Expected weights that bitsandbytes holds in 8 or 4 bits; got {asked.get('quant_method')!r}, which is not "
            "counted here. Fix: start a short training and look at what it takes."
        )
    return bits[0]
