"""Models that ship with the package: their sizes, trainings and corpora."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from lang_envs import TRAINING_IDS
from poad_sb3.pocket import SHIPPED_MODELS
from poad_sb3.pocket.coding.corpus import bare_lines, coding_lines
from poad_sb3.pocket.coding.grammar import WORD
from poad_sb3.pocket.corpus import Example, household_sentences, random_play


@dataclass(frozen=True)
class TrainingConfig:
    """Size and training of a model.

    Attributes:
        seed: Seed of corpus, initial weights and batches.
        vocab_size: Number of tokens of the byte-level BPE vocabulary, special tokens included.
        hidden_size: Width of the hidden states.
        n_layers: Number of Transformer blocks.
        n_heads: Number of attention heads.
        intermediate_size: Width of the feed-forward layers.
        batch_size: Number of lines in a batch.
        n_batches: Number of optimiser steps.
        learning_rate: Peak learning rate of AdamW; linear warm-up over 5%, then cosine to `last_rate` of it.
    """

    name: ClassVar[str]
    """Name of the model, a key of `SHIPPED_MODELS`."""
    context: ClassVar[int] = 1024
    """Maximum number of tokens that the model may read."""
    word: ClassVar[str | None] = None
    """Pattern of the longest texts that become one token; GPT-2's if None."""
    longest_action: ClassVar[int | None] = None
    """Maximum number of tokens after the prompt, end token included; longer lines are left out. None for no limit."""
    learns_prompts: ClassVar[bool] = True
    """Whether the loss counts the tokens of prompts."""
    last_rate: ClassVar[float] = 0.1
    """Share of the peak rate at the end."""
    pool: ClassVar[int] = 1
    """Number of batches that are drawn together and share their lines out by length, so that little is padded."""

    seed: int = 20260
    vocab_size: int = 1024
    hidden_size: int = 128
    n_layers: int = 4
    n_heads: int = 4
    intermediate_size: int = 352
    batch_size: int = 32
    n_batches: int = 800
    learning_rate: float = 3e-3

    @property
    def folder(self) -> Path:
        """Folder that the model ships in."""
        return SHIPPED_MODELS[self.name]

    def corpus(self) -> list[Example]:
        """Return all lines, in the order they were generated."""
        raise NotImplementedError

    def facts(self) -> Mapping[str, Any]:
        """Return the description of the corpus for the model card."""
        return {}


@dataclass(frozen=True)
class PocketConfig(TrainingConfig):
    """The pocket model.

    Attributes:
        n_play: Number of lines of random play in the corpus.
        n_sentences: Number of lines of household sentences in the corpus.
    """

    name: ClassVar[str] = "pocket"
    training_ids: ClassVar[tuple[str, ...]] = TRAINING_IDS
    """Ids of the environments whose situations are in the corpus."""

    n_play: int = 24_000
    n_sentences: int = 6_000

    def corpus(self) -> list[Example]:
        """See `TrainingConfig.corpus`."""
        rng = np.random.default_rng(self.seed)
        return [*random_play(self.n_play, rng, self.training_ids), *household_sentences(self.n_sentences, rng)]

    def facts(self) -> Mapping[str, Any]:
        """See `TrainingConfig.facts`."""
        return {"training_ids": list(self.training_ids)}


@dataclass(frozen=True)
class CharConfig(PocketConfig):
    """The character-level pocket model: the household part of the pocket model's corpus.

    Its vocabulary is too small for merges: the 256 bytes, one token per ASCII character, and the special tokens.
    """

    name: ClassVar[str] = "pocket-char"
    training_ids: ClassVar[tuple[str, ...]] = tuple(
        env_id for env_id in TRAINING_IDS if env_id.startswith("VirtualHome")
    )

    n_play: int = 12_000
    n_sentences: int = 3_000
    vocab_size: int = 259
    n_layers: int = 3
    batch_size: int = 16


@dataclass(frozen=True)
class CoderConfig(TrainingConfig):
    """The pocket coder.

    Attributes:
        n_lines: Number of prompts with bodies in the corpus.
        n_bare: Number of bodies without prompts in the corpus.
    """

    name: ClassVar[str] = "pocket-coder"
    context: ClassVar[int] = 2048
    word: ClassVar[str | None] = WORD
    longest_action: ClassVar[int | None] = 128
    learns_prompts: ClassVar[bool] = False
    last_rate: ClassVar[float] = 0.01
    pool: ClassVar[int] = 16

    n_lines: int = 12_000
    n_bare: int = 84_000
    vocab_size: int = 2560
    n_batches: int = 2_600

    def corpus(self) -> list[Example]:
        """See `TrainingConfig.corpus`."""
        rng = np.random.default_rng(self.seed)
        return [*coding_lines(self.n_lines, rng), *bare_lines(self.n_bare, rng)]


CONFIGS: Mapping[str, type[TrainingConfig]] = {kind.name: kind for kind in (PocketConfig, CharConfig, CoderConfig)}
"""Configurations by the names of the models."""
