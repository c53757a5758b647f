"""Which models can be trained in some memory, and with which settings."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from poad_sb3.memory import SHAPES, MemoryEstimate, ModelShape, TrainingSettings, estimate

__all__ = ["TOKENS", "WAYS", "Choice", "Fit", "Way", "fits", "largest_choice", "largest_pass", "remedy"]

TOKENS = (1024, 512, 256)
"""Values of `max_tokens_per_forward` to try: a smaller pass takes less memory and more time, and learns the same."""


class Way(NamedTuple):
    """How weights are held."""

    name: str
    dtype: str
    quantization: str | None = None


WAYS = (
    Way("float32", "float32"),
    Way("bfloat16", "bfloat16"),
    Way("8-bit", "bfloat16", "8bit"),
    Way("4-bit", "bfloat16", "4bit"),
)
"""With an adapter each, the most exact first."""


class Choice(NamedTuple):
    """A model, and settings with which it can be trained.

    Attributes:
        model: Name of its shape.
        settings: Of the training.
        needed: What it takes.
    """

    model: str
    settings: TrainingSettings
    needed: MemoryEstimate

    @property
    def policy_kwargs(self) -> dict[str, object]:
        """Arguments of the policy that say so."""
        names = ("dtype", "quantization", "gradient_checkpointing", "max_tokens_per_forward")
        return {name: getattr(self.settings, name) for name in names}


class Fit(NamedTuple):
    """One model in one way to hold its weights, with passes of the default size.

    Attributes:
        model: Name of the shape.
        way: How its weights are held.
        bytes: Needed without gradient checkpointing.
        bytes_with_checkpointing: Needed with it.
        verdict: `"yes"`, `"checkpointing"` (only with it), `"no"`, or `""` if nobody knows what is free.
    """

    model: str
    way: Way
    bytes: int
    bytes_with_checkpointing: int
    verdict: str


def fits(usable: int | None) -> tuple[Fit, ...]:
    """All common models, each in all ways.

    Args:
        usable: Bytes that a training may take; None if that is unknown.
    """
    return tuple(_fit(shape, way, usable) for shape in SHAPES.values() for way in WAYS)


def _fit(shape: ModelShape, way: Way, usable: int | None) -> Fit:
    settings = _settings(way)
    needed = estimate(shape, settings).total
    least = estimate(shape, replace(settings, gradient_checkpointing=True)).total
    verdict = "" if usable is None else "yes" if needed <= usable else "checkpointing" if least <= usable else "no"
    return Fit(shape.name, way, needed, least, verdict)


def largest_choice(
    usable: int, ways: Sequence[Way] = WAYS, shapes: Iterable[ModelShape] = tuple(SHAPES.values())
) -> Choice | None:
    """The largest model that can be trained; of the settings that do, those that cost the least.

    Large passes come before small ones, then exact weights before coarse ones, and what is computed once before what
    is computed twice.

    Args:
        usable: Bytes that a training may take.
        ways: Those that work.
        shapes: Candidates.
    """
    from_large_to_small = sorted(shapes, key=lambda one: one.parameters, reverse=True)
    for shape, tokens, way, again in itertools.product(from_large_to_small, TOKENS, ways, (False, True)):
        settings = replace(_settings(way), gradient_checkpointing=again, max_tokens_per_forward=tokens)
        needed = estimate(shape, settings)
        if needed.total <= usable:
            return Choice(shape.name, settings, needed)
    return None


def largest_pass(shape: ModelShape, settings: TrainingSettings, usable: int) -> int | None:
    """The largest `max_tokens_per_forward` that fits; None if not even one row does. More never needs less memory.

    Args:
        shape: Of the model.
        settings: Of the training.
        usable: Bytes that it may take.
    """

    def fits_with(tokens: int) -> bool:
        return estimate(shape, replace(settings, max_tokens_per_forward=tokens)).total <= usable

    if not fits_with(settings.row_tokens):
        return None
    low, beyond = settings.row_tokens, 2 * settings.row_tokens
    while fits_with(beyond):
        low, beyond = beyond, 2 * beyond
    while beyond - low > 1:
        middle = (low + beyond) // 2
        low, beyond = (middle, beyond) if fits_with(middle) else (low, middle)
    return low


def remedy(shape: ModelShape, settings: TrainingSettings, usable: int) -> dict[str, object] | None:
    """Arguments of the policy that make a training fit and change nothing that is learned; None if none do.

    Gradient checkpointing comes before smaller passes, and both before nothing.

    Args:
        shape: Of the model.
        settings: Of the training, which do not fit.
        usable: Bytes that it may take.
    """
    again = replace(settings, gradient_checkpointing=True)
    if estimate(shape, again).total <= usable:
        return {"gradient_checkpointing": True}
    for one in (settings, again):
        tokens = largest_pass(shape, one, usable)
        if tokens is not None:
            smaller: dict[str, object] = {"max_tokens_per_forward": tokens}
            return smaller if one is settings else {"gradient_checkpointing": True, **smaller}
    return None


def _settings(way: Way) -> TrainingSettings:
    return TrainingSettings(dtype=way.dtype, quantization=way.quantization)
