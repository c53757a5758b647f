"""Show the memory that a training needs."""

from __future__ import annotations

from typing import Any

from stable_baselines3.common.callbacks import BaseCallback

from lang_envs.cli.common import echo
from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm
from poad_sb3.memory import estimate_training

_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0))
_FIX = (
    "Fix: --set policy_kwargs.gradient_checkpointing=true or a smaller policy_kwargs.max_tokens_per_forward, which "
    "learn the same, more slowly; or a smaller model."
)


def size(n_bytes: int) -> str:
    """Format a number of bytes in the unit that suits it."""
    unit, factor = next((pair for pair in _UNITS if n_bytes >= pair[1]), _UNITS[-1])
    return f"{n_bytes / factor:.1f} {unit}"


def show_memory(model: LLMOnPolicyAlgorithm, observation: Any, free: int | None) -> None:
    """Print the expected memory of a training, and warn where less is free.

    Args:
        model: Algorithm with all its settings.
        observation: Batch of first observations.
        free: Free memory of the device before the model was made, in bytes; None if unknown.
    """
    try:
        needed = estimate_training(model, observation)
    except Exception as error:  # an estimate that cannot be made, for any reason, is no reason not to train
        echo(f"memory: not estimated ({' '.join(str(error).split())})")
        return
    available = "free memory unknown" if free is None else f"{size(free)} free"
    parts = ", ".join(f"{name} {size(n_bytes)}" for name, n_bytes in needed._asdict().items() if n_bytes)
    echo(f"memory: {size(needed.total)} needed, {available} on {model.device} ({parts})")
    if free is not None and needed.total > free:
        warning = f"{size(needed.total)} may be needed, {size(free)} is free on {model.device}. {_FIX}"
        echo(f"poad: warning: {warning}", err=True)


class MemoryCallback(BaseCallback):
    """Shows the expected memory of the training before it begins.

    Args:
        free: Free memory of the device before the model was made, in bytes; None if unknown.
    """

    model: LLMOnPolicyAlgorithm

    def __init__(self, free: int | None) -> None:
        super().__init__()
        self._free = free

    def _on_training_start(self) -> None:
        show_memory(self.model, self.model._last_obs, self._free)

    def _on_step(self) -> bool:
        return True
